"""The API as a service: an HTTP server with a pool of threads, and its start and stop."""

from __future__ import annotations

import logging
import socket
from typing import Any

import msgspec
from waitress import wasyncore
from waitress.server import create_server

from pinfold.api.deps import Deps
from pinfold.db import hosts, schema
from pinfold.model import errors
from pinfold.runtime import Task

LOG = logging.getLogger(__name__)

BINARY = "pinfold-api"
_LOOK = 0.02
_OVERFLOW = 1024**2


class Listen(msgspec.Struct, frozen=True):
    """Where and how to listen; ``conf.api`` says what each means. ``service`` is the host's name in the cloud."""

    service: str
    host: str = "127.0.0.1"
    port: int = 8774
    threads: int = 8
    backlog: int = 1024
    connection_limit: int = 1000
    stop_wait: float = 10.0
    heartbeat: float = 5.0


class ApiService:
    """Serves ``app``, a WSGI application."""

    def __init__(self, app: Any, deps: Deps, listen: Listen) -> None:
        self._app = app
        self._deps = deps
        self._listen = listen
        self._stopping = deps.runtime.event()
        self._turn = deps.runtime.lock()
        self._incarnation = deps.runtime.new_id()
        self._tasks: list[Task] = []
        self._server: Any = None
        self.port = listen.port

    def start(self) -> None:
        """Listen; requests are answered once this returns.

        Raises errors.ConfigurationError for a taken port, and for a database of another schema version.
        """
        schema.require(self._deps.book.engine)
        with self._turn:
            if not self._stopping.is_set():
                self._begin()

    def _begin(self) -> None:
        bound = _bound(self._listen)
        self.port = bound.getsockname()[1]
        # what waits for a thread is no news: the operator sees it in the latency
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        self._server = create_server(
            self._app,
            sockets=[bound],
            threads=self._listen.threads,
            backlog=self._listen.backlog,
            connection_limit=self._listen.connection_limit,
            max_request_body_size=self._deps.settings.max_image_size,
            inbuf_overflow=_OVERFLOW,
            ident="pinfold",
            asyncore_use_poll=True,
            clear_untrusted_proxy_headers=True,
        )
        runtime = self._deps.runtime
        self._tasks = [
            runtime.spawn(self._server.run, name="http"),
            runtime.spawn(self._beat, name="api-heartbeat"),
        ]
        LOG.info("The API listens at %s port %s", self._listen.host, self.port)

    def stop(self) -> None:
        """Accept no more connections, let requests end within ``stop_wait`` seconds. Safe to repeat."""
        self._stopping.set()
        with self._turn:
            if self._server is not None:
                self._drain()
                self._server = None

    def _drain(self) -> None:
        runtime = self._deps.runtime
        until = runtime.monotonic() + self._listen.stop_wait
        self._in_loop(self._close_listener)
        while self._server.active_channels and runtime.monotonic() < until:
            self._in_loop(self._close_idle)
            runtime.sleep(_LOOK)
        if self._server.active_channels:
            LOG.warning("%s requests did not end in time", len(self._server.active_channels))
        self._in_loop(lambda: wasyncore.close_all(self._server._map))
        for task in self._tasks:
            task.join(1.0)
        self._server.task_dispatcher.shutdown(timeout=1)

    def _in_loop(self, work: Any) -> None:
        """Sockets belong to the server's own thread."""
        self._server.trigger.pull_trigger(work)

    def _close_listener(self) -> None:
        wasyncore.dispatcher.close(self._server)

    def _close_idle(self) -> None:
        for channel in list(self._server.active_channels.values()):
            if not channel.requests and channel.request is None and not channel.total_outbufs_len:
                channel.handle_close()

    def _beat(self) -> None:
        """Note again and again in the book that this API lives, for the list of services."""
        name, incarnation, new_id = self._listen.service, self._incarnation, self._deps.runtime.new_id()
        while True:
            try:
                self._deps.book.write(
                    lambda session: hosts.seen(session, BINARY, name, incarnation, new_id=new_id)
                )
            except Exception as error:  # nothing depends on it
                LOG.warning("Could not note that this API lives: %s", error)
            if self._stopping.wait(self._listen.heartbeat):
                return


def _bound(listen: Listen) -> socket.socket:
    """A socket bound to the one address. Raises errors.ConfigurationError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise errors.ConfigurationError(
            f"[api] cannot listen at host = {listen.host}, port = {listen.port}: {error.strerror or error}. Choose "
            "another port, or stop what listens there."
        ) from error
    return bound
