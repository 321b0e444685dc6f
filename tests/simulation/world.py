"""The simulated world: hosts with hypervisors and workers, conductors, APIs, a broker, a book and an image store."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable

import msgspec

from pinfold.api.deps import Deps
from pinfold.compute.service import ComputeService
from pinfold.compute.settings import Partition, Settings
from pinfold.conductor.service import ConductorService
from pinfold.conductor.settings import Settings as ConductorSettings
from pinfold.image.store import Image
from pinfold.model import errors
from pinfold.model.work import Times
from pinfold.rpcapi.clients import ComputeClient, ConductorClient
from pinfold.rpcapi.context import Context
from pinfold.virt.driver import MachineCell
from tests.simulation import invariants, story
from tests.simulation.book import Database, SimBook, database_clock
from tests.simulation.faults import Faults
from tests.simulation.history import History
from tests.simulation.hypervisor import Machine, SimDriver
from tests.simulation.images import Images, SimStore
from tests.simulation.invariants import Invariants, Picture, Violation
from tests.simulation.loop import Busy, Fiber, Loop, Process
from tests.simulation.network import Broker, SimTransport
from tests.simulation.requests import BASE_IMAGE
from tests.simulation.runtime import SimRuntime

TIMES = Times(
    service_down=10.0,
    lease=10.0,
    sweep_after=2.0,
    deadlines={
        "create": 60.0,
        "unshelve": 60.0,
        "resize": 90.0,
        "migrate": 90.0,
        "confirm_resize": 40.0,
        "revert_resize": 60.0,
        "evacuate": 60.0,
        "rebuild": 60.0,
        "create_image": 60.0,
        **dict.fromkeys(
            (
                "start",
                "stop",
                "reboot",
                "hard_reboot",
                "pause",
                "unpause",
                "suspend",
                "resume",
                "soft_delete",
                "restore",
                "power_sync",
                "power_restore",
            ),
            40.0,
        ),
        "shelve": 80.0,
        "shelve_offload": 40.0,
        "unshelve_in_place": 40.0,
        "delete": 40.0,
        "force_delete": 40.0,
    },
)
#: One cell of three cores with two threads; CPU 0 floats, its sibling 3 is the host's own.
CELL = MachineCell(
    id=0,
    cpus=frozenset(range(6)),
    siblings=(frozenset({0, 3}), frozenset({1, 4}), frozenset({2, 5})),
    memory_mb=8192,
)
PARTITION = Partition(cpu_shared_set="0", cpu_dedicated_set="1-2,4-5", cpu_allocation_ratio=4.0)
CALL_TIMEOUT = 6.0
HEARTBEAT = 3.0


class Shape(msgspec.Struct, frozen=True):
    """How large the world is, and options of the conductor; by the seed."""

    nodes: tuple[int, ...]
    conductors: int
    apis: int
    offload_time: int
    confirm_after: int
    same_host: bool
    keep_deleted: float


class Place:
    """Where a process is started again and again: ``process`` is its present incarnation, if there is one.

    ``on`` is False while its machine has no power, and ``fenced`` while it must not get it back.
    """

    def __init__(self, name: str, start: Callable[[Place], None]) -> None:
        self.name = name
        self.start = start
        self.on = True
        self.fenced = False
        self.process: Process | None = None
        self.machines: list[Machine] = []
        self.service: ComputeService | ConductorService | None = None
        self.ready = False
        self.deps: Deps | None = None
        self.incarnations = itertools.count(1)

    @property
    def up(self) -> bool:
        """Whether a process of it lives and has started."""
        return self.process is not None and not self.process.dead and self.ready


class World:
    """Everything, for one seed. ``failure`` is what was found wrong, once."""

    def __init__(self, seed: int, database: Database, folder: str, kinds: Iterable[str]) -> None:
        self.loop = Loop(seed)
        self.folder = folder
        self.history = History(lambda: self.loop.now)
        self.faults = Faults(self.loop, self.history, kinds)
        self.clock_offset = 0.0
        self.broker = Broker(self.loop, self.faults, self.history)
        self.images = Images()
        self.database = database
        self.outside = Process("world")
        self.processes = [self.outside]
        self.shape = _shape(self.loop)
        self.times = msgspec.structs.replace(TIMES, keep_deleted=self.shape.keep_deleted)
        self.workers = [self._host(number, count) for number, count in enumerate(self.shape.nodes, 1)]
        self.conductors = [Place(f"cond{n + 1}", self._start_conductor) for n in range(self.shape.conductors)]
        self.apis = [Place(f"api{n + 1}", self._start_api) for n in range(self.shape.apis)]
        self.machines = [machine for place in self.workers for machine in place.machines]
        self.failure: Exception | None = None
        self.picture: Picture | None = None
        self.waits_for_orphans = True
        self._prepare()
        self.invariants = Invariants(database.raw, self.machines, self.images)

    def _prepare(self) -> None:
        loop = self.loop
        loop.restless = loop.random.choice((0.05, 0.3, 1.0))
        loop.at_point = self.faults.at_point
        loop.on_crash = self._crashed
        clock = database_clock(loop)
        self.database.clock = lambda: clock() + self.clock_offset
        self.database.reset()
        self.database.on_commit = self._committed
        now = SimRuntime(loop, self.outside).now()
        self.images.records[BASE_IMAGE] = Image(BASE_IMAGE, "tiny", "active", "p", "public", now, now)
        self.images.data[BASE_IMAGE] = b"base:0"

    def _host(self, number: int, nodes: int) -> Place:
        place = Place(f"host{number}", self._start_worker)
        names = [place.name] if nodes == 1 else [f"{place.name}{letter}" for letter in "ab"[:nodes]]
        place.machines = [Machine(name, (CELL,)) for name in names]
        return place

    @property
    def places(self) -> list[Place]:
        """All of them."""
        return [*self.workers, *self.conductors, *self.apis]

    # --- what is watched -----------------------------------------------------------------------

    def _crashed(self, fiber: Fiber, error: BaseException) -> None:
        self.fail(
            Violation(f"{fiber.name} of {fiber.process} ended with {type(error).__name__}: {error}"), error
        )

    def fail(self, failure: Exception, cause: BaseException | None = None) -> None:
        """The first thing that is found wrong ends the run."""
        if self.failure is None:
            failure.__cause__ = cause
            self.failure = failure
            self.history.add("world", "** %s", failure)
            self.loop.halted = True

    def _committed(self, process: Process) -> None:
        picture = invariants.read(self.database.raw)
        for line in story.changes(self.history, self.picture, picture):
            self.history.add(process.name, line)
        self.picture = picture
        self._check(picture)

    def changed(self) -> None:
        """A guest or an image has changed."""
        if self.picture is not None:
            self._check(self.picture)

    def _check(self, picture: Picture) -> None:
        try:
            self.invariants.check(picture)
        except Violation as violation:
            self.fail(violation)

    # --- processes -----------------------------------------------------------------------------

    def start(self, place: Place) -> None:
        """A new incarnation."""
        if place.on and (place.process is None or place.process.dead):
            place.ready = False
            place.process = Process(f"{place.name}.{next(place.incarnations)}")
            self.processes.append(place.process)
            self.history.add(place.process.name, "starts")
            place.start(place)

    def _store(self, process: Process) -> SimStore:
        return SimStore(self.loop, process, self.faults, self.history, self.images, self.changed)

    def _book(self, process: Process) -> SimBook:
        runtime = SimRuntime(self.loop, process)
        return SimBook(self.database, self.loop, process, runtime, self.faults)

    def _start_conductor(self, place: Place) -> None:
        process = place.process
        assert process is not None

        def main() -> None:
            service = ConductorService(
                self._book(process),
                SimTransport(self.broker, process),
                self._store(process),
                SimRuntime(self.loop, process),
                ConductorSettings(
                    host=place.name,
                    times=self.times,
                    shelved_offload_time=self.shape.offload_time,
                    resize_confirm_window=self.shape.confirm_after,
                    allow_resize_to_same_host=self.shape.same_host,
                    sweep_interval=3.0,
                    heartbeat=5.0,
                ),
            )
            place.service = service
            service.start()
            place.ready = True

        self.loop.spawn(process, main, "main")

    def _start_api(self, place: Place) -> None:
        process = place.process
        assert process is not None
        transport = SimTransport(self.broker, process)
        context = Context("req-api")
        place.deps = Deps(
            book=self._book(process),
            conductor=ConductorClient(transport, context, timeout=CALL_TIMEOUT),
            compute=ComputeClient(transport, context),
            images=self._store(process),
            runtime=SimRuntime(self.loop, process),
            broker_answers=transport.ping,
            times=self.times,
        )
        place.ready = True

    def _start_worker(self, place: Place) -> None:
        process = place.process
        assert process is not None
        runtime = SimRuntime(self.loop, process)
        transport = SimTransport(self.broker, process)
        context = Context(f"req-{place.name}")

        def ended(why: str) -> None:
            self.history.add(process.name, "ends: %s", why)
            self.loop.kill(process)

        def main() -> None:
            service = ComputeService(
                runtime=runtime,
                settings=self._settings(place),
                driver=self._driver(place, process),
                store=self._store(process),
                transport=transport,
                conductor=ConductorClient(transport, context, timeout=CALL_TIMEOUT),
                heartbeats=ConductorClient(transport, context, timeout=HEARTBEAT),
                on_end=ended,
            )
            place.service = service
            process.at_death.append(lambda: _let_go(service))
            try:
                service.start()
            except errors.ConfigurationError as error:
                ended(f"it is refused: {error}")
            place.ready = True

        self.loop.spawn(process, main, "main")

    def _settings(self, place: Place) -> Settings:
        return Settings(
            host=place.name,
            nodes=tuple(machine.node for machine in place.machines),
            state_path=os.path.join(self.folder, place.name),
            partition=PARTITION,
            heartbeat=HEARTBEAT,
            audit_interval=20.0,
            max_operations=4,
            patience=20.0,
            start_wait=20.0,
        )

    def _driver(self, place: Place, process: Process) -> SimDriver:
        return SimDriver(
            self.loop,
            process,
            self.faults,
            self.history,
            place.machines,
            on_change=self.changed,
            on_refused=lambda what: self.fail(Violation(f"the hypervisor cannot do it: {what}")),
            waits_for_orphans=self.waits_for_orphans,
        )

    def stop(self, place: Place) -> None:
        """As by SIGTERM: it ends by itself."""
        process, service = place.process, place.service
        if process is None or service is None or not place.up:
            return

        def end() -> None:
            service.stop()
            self.history.add(process.name, "has stopped")
            self.loop.kill(process)

        self.history.add(process.name, "is told to stop")
        self.loop.spawn(process, end, "stop")

    # --- the end -------------------------------------------------------------------------------

    def unsettled(self) -> list[str]:
        """What is not yet as it should be when nothing fails any more."""
        if self.picture is None:
            return ["nothing has happened"]
        found = [f"{place.name} is not up" for place in self.places if not place.up]
        forced = self.database.raw.execute("SELECT host FROM services WHERE forced_down").fetchall()
        found += [f"host {host} is forced down" for (host,) in forced]
        return found or [
            *self.invariants.unsettled(self.picture, [BASE_IMAGE]),
            *self._unsettled_trackers(),
        ]

    def _unsettled_trackers(self) -> list[str]:
        found = []
        assert self.picture is not None
        for place in self.workers:
            service = place.service
            tools = service.tools if isinstance(service, ComputeService) else None
            for machine in place.machines:
                if tools is None:
                    found.append(f"{place.name} has not registered")
                    continue
                try:
                    view = tools.tracker.view(machine.node)
                except Busy:
                    found.append(f"the tracker of {machine.node} is busy")
                    continue
                believed = {claim.id: claim.role for claim in view.claims}
                real = {
                    identity: claim.role
                    for identity, claim in self.picture.claims.items()
                    if claim.node == machine.node
                }
                if believed != real or view.generation != self.picture.nodes[machine.node]:
                    found.append(f"the tracker of {machine.node} believes {believed} at {view.generation}")
        return found


def _let_go(service: ComputeService) -> None:
    """The kernel frees the locks of a dead process."""
    if service._lock_file >= 0:
        os.close(service._lock_file)
        service._lock_file = -1


def _shape(loop: Loop) -> Shape:
    random = loop.random
    return Shape(
        nodes=tuple(random.choice((1, 1, 1, 2)) for _ in range(random.choice((2, 2, 3)))),
        conductors=random.choice((1, 2, 2)),
        apis=random.choice((1, 2)),
        offload_time=random.choice((0, 0, 5, -1)),
        confirm_after=random.choice((0, 0, 10)),
        same_host=random.random() < 0.5,
        keep_deleted=random.choice((0.0, 0.0, 20.0)),
    )
