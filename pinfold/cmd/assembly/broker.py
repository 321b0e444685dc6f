"""The transport of a process that has a broker; the all-in-one, which has none, does not load what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oslo_config import cfg

from pinfold.runtime import Runtime

if TYPE_CHECKING:
    from pinfold.rpcapi.transport import RabbitTransport


def register(conf: cfg.ConfigOpts) -> None:
    """oslo.messaging's options."""
    from pinfold.rpcapi import transport

    transport.register(conf)


def connect(conf: cfg.ConfigOpts, runtime: Runtime, host: str | None = None) -> RabbitTransport:
    """As ``rpcapi.transport.connect``. Raises errors.ConfigurationError."""
    from pinfold.rpcapi import transport

    return transport.connect(conf, runtime, host=host)
