"""What a process without an HTTP API shows to Prometheus, at an address of its own."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg
from oslo_log import log
from prometheus_client import CollectorRegistry, start_http_server

from pinfold.model import errors

LOG = log.getLogger(__name__)


class MetricsService:
    """Shows ``registry`` at [metrics] host and port; with port 0 it does nothing."""

    def __init__(self, conf: cfg.ConfigOpts, registry: CollectorRegistry) -> None:
        self._host = conf.metrics.host
        self._port = conf.metrics.port
        self._registry = registry
        self._server: Any = None

    def start(self) -> None:
        """Listen. Raises errors.ConfigurationError for a port that is taken."""
        if not self._port:
            return
        try:
            self._server, _thread = start_http_server(self._port, self._host, self._registry)
        except OSError as error:
            raise errors.ConfigurationError(
                f"[metrics] cannot listen at host = {self._host}, port = {self._port}: {error.strerror or error}. "
                "Choose another port, or stop what listens there."
            ) from error
        LOG.info("Metrics are shown at %s port %s", self._host, self._port)

    def stop(self) -> None:
        """Close. Safe to repeat."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
