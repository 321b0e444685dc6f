"""The worker as a service: its parts, put together, and their start and stop.

Nothing is taken on before the partition holds, the conductor knows this incarnation, and what the hypervisor has is
reconciled with the book.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial

from pinfold import durable
from pinfold.compute.audit import Audit
from pinfold.compute.calls import Calls, Conductor
from pinfold.compute.fence import Fence
from pinfold.compute.hearing import Hearing
from pinfold.compute.jobs import Jobs
from pinfold.compute.manager import Manager
from pinfold.compute.memory import Memory
from pinfold.compute.operations import PLANS
from pinfold.compute.operations.attempt import Tools
from pinfold.compute.operations.runner import Runner
from pinfold.compute.partition import node_report
from pinfold.compute.settings import Settings
from pinfold.compute.tracker import ResourceTracker
from pinfold.image.store import Store
from pinfold.metrics import WorkerMetrics
from pinfold.model import errors
from pinfold.model.host import NodeReport, NodeView
from pinfold.rpcapi import messages, wire
from pinfold.rpcapi.clients import COMPUTE, COMPUTE_TOPIC
from pinfold.runtime import Runtime, Task
from pinfold.virt.driver import Driver

LOG = logging.getLogger(__name__)

_SAY_AGAIN = 10.0
_PAUSE = 1.0


class ComputeService:
    """The worker of one host.

    ``heartbeats`` is a conductor client with a short timeout, so that one lost reply does not fence the worker.
    ``on_end`` is told, once, why this incarnation must end at once: the process then exits with an error.
    ``on_deaf`` is told instead where another incarnation would do better: the process is to be replaced.
    """

    def __init__(
        self,
        *,
        runtime: Runtime,
        settings: Settings,
        driver: Driver,
        store: Store,
        transport: wire.Transport,
        conductor: Conductor,
        heartbeats: Conductor,
        on_end: Callable[[str], None],
        on_deaf: Callable[[str], None] | None = None,
        metrics: WorkerMetrics | None = None,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._driver = driver
        self._store = store
        self._transport = transport
        self._conductor = conductor
        self._heartbeats = heartbeats
        self._on_end = on_end
        self._on_deaf = on_deaf or on_end
        self._metrics = metrics or WorkerMetrics()
        self.incarnation = runtime.new_id()
        self._stopping = runtime.event()
        self._stopped = runtime.event()
        self._ready = False
        self._serving = runtime.lock()
        self._server: wire.Server | None = None
        self._tasks: list[Task] = []
        self._lock_file = -1
        self._memory: Memory | None = None
        self.tools: Tools | None = None
        self.hearing: Hearing | None = None
        self.audit: Audit | None = None

    def start(self) -> None:
        """Returns once work is taken, or the service is stopped before. Raises ConfigurationError."""
        host_id = self._take_state_path()
        reports = tuple(self._report(node) for node in self._settings.nodes)
        found = self._found()
        if found is None:
            return
        record = messages.Register(self._settings.host, host_id, self.incarnation, reports, found)
        sent_at, registered = self._register(record)
        if registered is None:
            return
        if registered.refused is not None:
            raise errors.ConfigurationError(registered.refused)
        for view in registered.nodes:
            self._refuse_older(view)
        tools = self._build(reports, registered)
        tools.fence.renewed(sent_at)
        self._spawn(self._beat, "heartbeat")
        self._reconcile()
        assert self.hearing is not None
        assert self.audit is not None
        manager = Manager(tools, Runner(tools, PLANS), self.hearing, self.audit)
        with self._serving:
            if self._stopping.is_set():
                return
            self._server = self._transport.serve(COMPUTE_TOPIC, self._settings.host, manager, COMPUTE.version)
        self._ready = True
        for node in self._settings.nodes:
            self._spawn(partial(self._audit_again_and_again, node), f"audit-{node}")
        nodes = ", ".join(self._settings.nodes)
        LOG.info("The worker of host %s takes work for nodes %s", self._settings.host, nodes)

    def stop(self) -> None:
        """Take no more work, let what runs end within ``stop_wait`` seconds; the rest is the sweeper's. Safe to
        repeat."""
        with self._serving:
            self._stopping.set()
        if self._server is not None:
            self._server.stop()
        tools = self.tools
        if tools is not None:
            tools.jobs.close()
            if not tools.jobs.drain(self._settings.stop_wait):
                LOG.warning("Operations %s are left to the sweeper", tools.jobs.under_way())
            tools.fence.end("The service has stopped.")
        self._stopped.set()
        for task in self._tasks:
            task.join(1.0)
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    def _take_state_path(self) -> str:
        """Lock out a second worker of this host here, and read (or make) what tells this machine apart."""
        folder = self._settings.state_path
        path = os.path.join(folder, "host_id")
        try:
            os.makedirs(folder, exist_ok=True)
            lock = os.path.join(folder, f"worker-{self._settings.host}")
            os.close(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._lock_file = durable.claim(lock)
            self._memory = Memory(folder)
            if not os.path.exists(path):
                durable.replace(path, self._runtime.new_id().encode(), sync=True)
            with open(path, encoding="ascii") as file:
                return file.read().strip()
        except BlockingIOError:
            raise errors.ConfigurationError(
                f"Another worker of host {self._settings.host} runs with [compute] state_path = {folder}: stop "
                "it, or give this one a [DEFAULT] host and a state_path of its own."
            ) from None
        except OSError as error:
            raise errors.ConfigurationError(
                f"[compute] state_path = {folder} cannot be used: {error.strerror}."
            ) from error

    def _refuse_older(self, view: NodeView) -> None:
        """An older copy of the book does not know of guests that came later. (A node without guests, such as one
        that was taken out of the book and is new there, has none.)"""
        memory = self._memory
        assert memory is not None
        known = memory.of(view.node)
        if view.generation < known and self._driver.list(view.node):
            raise errors.ConfigurationError(
                f"The database is at generation {view.generation} of node {view.node}, and this worker has seen "
                f"{known}: it is an older copy, and may not know of guests that are there. Restore a newer one; or, "
                f"if this one is to be believed, make sure that no guest is needed that it does not know, and remove "
                f"{memory.path}."
            )

    def _remember(self, tracker: ResourceTracker) -> None:
        assert self._memory is not None
        try:
            self._memory.note({node: tracker.generation(node) for node in self._settings.nodes})
        except OSError as error:
            LOG.error("[compute] state_path cannot be written: %s", error)

    def _report(self, node: str) -> NodeReport:
        known = self._driver.nodes()
        if node not in known:
            raise errors.ConfigurationError(
                f"[compute] nodes names {node}, but the hypervisor has {', '.join(known) or 'no node'}."
            )
        return node_report(self._driver.inventory(node), self._settings.partition)

    def _found(self) -> tuple[str, ...] | None:
        """Of which instances there are guests; None when the service is stopped before that is known."""
        said_at = float("-inf")
        while True:
            try:
                return tuple(
                    guest.instance for node in self._settings.nodes for guest in self._driver.list(node)
                )
            except errors.PinfoldError as error:
                if (now := self._runtime.monotonic()) - said_at >= _SAY_AGAIN:
                    said_at = now
                    LOG.warning(
                        "The hypervisor does not say what it has, and this worker waits for it: %s", error
                    )
            if self._stopping.wait(_PAUSE):
                return None

    def _register(self, record: messages.Register) -> tuple[float, messages.Registered | None]:
        """When it was sent, and the answer; None when the service is stopped before there is one."""
        said_at = float("-inf")
        while True:
            sent_at = self._runtime.monotonic()
            try:
                return sent_at, self._conductor.register(record)
            except (errors.Unavailable, wire.RemoteError) as error:
                if sent_at - said_at >= _SAY_AGAIN:
                    said_at = sent_at
                    LOG.warning("No conductor answers yet, and this worker waits for one: %s", error)
            if self._stopping.wait(_PAUSE):
                return sent_at, None

    def _build(self, reports: tuple[NodeReport, ...], registered: messages.Registered) -> Tools:
        tracker = ResourceTracker(self._runtime, reports, self._view, self._waited)
        for view in registered.nodes:
            try:
                tracker.load(view)
            except errors.AccountingError as error:
                raise errors.ConfigurationError(
                    f"Node {view.node} is not what its claims were made on: {error.message}"
                ) from error
        self.tools = Tools(
            settings=self._settings,
            incarnation=self.incarnation,
            runtime=self._runtime,
            conductor=self._conductor,
            calls=Calls(self._runtime, self._stopped),
            driver=self._driver,
            store=self._store,
            tracker=tracker,
            fence=Fence(self._runtime, registered.lease),
            jobs=Jobs(self._runtime, self._settings.max_operations),
            stop=self._stopped,
            metrics=self._metrics,
        )
        self.hearing = Hearing(self._runtime, registered.lease)
        self._show(self.tools, self.hearing)
        self.audit = Audit(self.tools)
        return self.tools

    def _show(self, tools: Tools, hearing: Hearing) -> None:
        """Have the numbers that stand somewhere read when they are asked for."""
        host, metrics = self._settings.host, self._metrics
        metrics.under_way.labels(host).set_function(lambda: len(tools.jobs.under_way()))
        metrics.unheard.labels(host).set_function(lambda: hearing.unheard)
        metrics.not_held.labels(host).set_function(lambda: tools.tracker.not_held)

    def _waited(self, node: str, seconds: float) -> None:
        self._metrics.lock_wait.labels(self._settings.host, node).observe(seconds)

    def _view(self, node: str) -> NodeView:
        return self._conductor.node_view(node, self._settings.host)

    def _spawn(self, function: Callable[[], None], name: str) -> None:
        self._tasks.append(self._runtime.spawn(function, name=name))

    def _beat(self) -> None:
        """Say again and again that this worker lives, and what it is doing."""
        while not self._stopped.is_set():
            started = self._runtime.monotonic()
            if self._beat_once(started):
                return
            left = self._settings.heartbeat - (self._runtime.monotonic() - started)
            self._stopped.wait(max(0.1, left))

    def _beat_once(self, sent_at: float) -> bool:
        """True when this incarnation is over."""
        tools, hearing = self.tools, self.hearing
        assert tools is not None
        assert hearing is not None
        self._remember(tools.tracker)
        tools.jobs.look()
        named = tools.jobs.under_way()
        ready = self._ready and not self._stopping.is_set()
        deaf = ready and hearing.is_deaf
        record = messages.Heartbeat(
            self._settings.host,
            self.incarnation,
            named,
            ready and not deaf,
            echo=hearing.ask() if ready and not deaf else None,
            unheard=hearing.unheard,
            deaf=deaf,
        )
        try:
            heard = self._heartbeats.heartbeat(record)
        except errors.PinfoldError as error:
            self._metrics.heartbeats.labels(self._settings.host, "lost").inc()
            LOG.warning("A heartbeat was not heard: %s", error)
            return False
        self._metrics.heartbeats.labels(self._settings.host, "heard").inc()
        if heard.superseded:
            self._end(
                f"The service of host {self._settings.host} was deleted, or another worker of it has registered."
            )
            return True
        if deaf:
            self._end_deaf(record.unheard)
            return True
        if heard.echoed and record.echo is not None:
            hearing.sent(record.echo, sent_at)
        tools.fence.renewed(sent_at)
        refused = set(heard.refused)
        tools.jobs.refuse((operation, attempt) for operation, attempt in named if operation in refused)
        return False

    def _end_deaf(self, seconds: float) -> None:
        """A new incarnation listens anew."""
        host = self._settings.host
        why = f"No message has reached the worker of host {host} for {seconds:.0f} s, though some were sent to it."
        self._end(why, self._on_deaf)

    def _end(self, why: str, tell: Callable[[str], None] | None = None) -> None:
        """At once, and with an error: nothing more is changed here by this incarnation."""
        LOG.error("%s This one ends.", why)
        tools = self.tools
        if tools is not None:
            tools.fence.end(why)
            tools.jobs.close()
        self._stopping.set()
        self._stopped.set()
        (tell or self._on_end)(why)

    def _reconcile(self) -> None:
        """The first audit of every node. What takes too long goes on while work is taken: its server's lane is
        held until it is done."""
        give_up_at = self._runtime.monotonic() + self._settings.start_wait
        assert self.audit is not None
        for node in self._settings.nodes:
            while not self._stopping.is_set():
                try:
                    settled = self.audit.look(node, starting=True)
                    break
                except errors.PinfoldError as error:
                    LOG.warning("Node %s cannot be reconciled yet: %s", node, error)
                    self._stopping.wait(_PAUSE)
            else:
                return
            for done in settled:
                if not done.wait(max(0.0, give_up_at - self._runtime.monotonic())):
                    LOG.warning("Node %s: a server is still being reconciled; work is taken meanwhile", node)

    def _audit_again_and_again(self, node: str) -> None:
        assert self.audit is not None
        while not self._stopping.wait(self._settings.audit_interval):
            try:
                self.audit.look(node)
            except errors.PinfoldError as error:
                LOG.warning("The audit of node %s is left to the next time: %s", node, error)
            except Exception:
                LOG.exception("The audit of node %s ended with an unexpected error", node)
