"""The conductor as a service: its parts, put together, and their start and stop."""

from __future__ import annotations

from oslo_log import log

from pinfold.conductor.manager import Manager
from pinfold.conductor.runner import Runner
from pinfold.conductor.scheduler import Scheduler
from pinfold.conductor.settings import Settings
from pinfold.conductor.sweeper import Sweeper
from pinfold.conductor.workers import Workers
from pinfold.db import schema
from pinfold.db.session import Book
from pinfold.image.store import Store
from pinfold.metrics import ConductorMetrics
from pinfold.rpcapi import wire
from pinfold.rpcapi.clients import CONDUCTOR, CONDUCTOR_TOPIC, ComputeClient
from pinfold.rpcapi.context import Context
from pinfold.runtime import Runtime, Task

LOG = log.getLogger(__name__)


class ConductorService:
    """Answers workers, runs operations and sweeps; any number side by side."""

    def __init__(
        self,
        book: Book,
        transport: wire.Transport,
        images: Store,
        runtime: Runtime,
        settings: Settings,
        *,
        compute_pin: str | None = None,
        metrics: ConductorMetrics | None = None,
    ) -> None:
        """Raises errors.ConfigurationError for a pin of [upgrade_levels] that is not supported."""
        self._book = book
        self._transport = transport
        self._runtime = runtime
        self._settings = settings
        self.incarnation = runtime.new_id()
        self._stop = runtime.event()
        outbox_bell = runtime.event()
        compute = ComputeClient(
            transport, Context(request_id=f"req-conductor-{self.incarnation}"), pin=compute_pin
        )
        scheduler = Scheduler(runtime, settings.times.service_down, settings.default_zone)
        metrics = metrics or ConductorMetrics()
        runner = Runner(book, compute, images, scheduler, settings, metrics)
        workers = Workers(book, runtime, settings.times.lease)
        self.manager = Manager(book, runner, workers, settings, outbox_bell, metrics)
        self.sweeper = Sweeper(
            book, runner, compute, images, runtime, settings, self._stop, outbox_bell, metrics
        )
        self._outbox_bell = outbox_bell
        self._server: wire.Server | None = None
        self._tasks: list[Task] = []

    def start(self) -> None:
        """Check the schema, listen, and sweep. Raises errors.ConfigurationError, errors.Unavailable."""
        schema.require(self._book.engine)
        self._server = self._transport.serve(
            CONDUCTOR_TOPIC, self._settings.host, self.manager, CONDUCTOR.version
        )
        self._tasks = [
            self._runtime.spawn(self.sweeper.run, name="sweeper"),
            self._runtime.spawn(self.sweeper.run_outbox, name="outbox"),
            self._runtime.spawn(self.sweeper.heartbeat, self.incarnation, name="heartbeat"),
        ]
        LOG.info("Conductor %s has started", self._settings.host)

    def stop(self) -> None:
        """Take no more messages, end what is under way."""
        self._stop.set()
        self._outbox_bell.set()
        if self._server is not None:
            self._server.stop()
        for task in self._tasks:
            task.join(10.0)
