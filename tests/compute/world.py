"""A worker in a world of tests: a real tracker and runner, a fake hypervisor and a file store on disk, and a book.

Everything that the worker does outside itself is an event that can be counted, lost, held, doubled, or be its death.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from pinfold.compute.audit import Audit
from pinfold.compute.calls import Calls, Conductor
from pinfold.compute.fence import Fence
from pinfold.compute.jobs import Jobs
from pinfold.compute.operations import PLANS
from pinfold.compute.operations.attempt import Tools
from pinfold.compute.operations.runner import Plan, Runner
from pinfold.compute.partition import node_report
from pinfold.compute.settings import Partition, Settings
from pinfold.compute.tracker import ResourceTracker
from pinfold.image.files import FileStore
from pinfold.image.store import Image
from pinfold.model import host, numa
from pinfold.model.host import NodeView
from pinfold.model.work import Work
from pinfold.rpcapi import messages, wire
from pinfold.rpcapi.context import Context
from pinfold.runtime import RealRuntime
from pinfold.virt import witness
from pinfold.virt.driver import Driver, Guest, GuestSpec, Inventory, PowerState, Source, Wish
from pinfold.virt.fake import FakeDriver
from tests.compute.books import SERVER_IMAGE, BookOfTests

R = TypeVar("R", bound=msgspec.Struct)
T = TypeVar("T")
CONTEXT = Context("req-test")
HOST, NODE = "host-1", "host-1"
DISK = b"the image of a small system" * 100
PARTITION = Partition(cpu_shared_set="0,8", cpu_dedicated_set="1-7,9-15", cpu_allocation_ratio=4.0)


class Killed(BaseException):
    """The worker's process is gone, as by kill -9."""


class Watch:
    """Sees every event, a name such as ``conductor.begin`` or ``driver.spawn``, before and after it happens."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.at: Callable[[int, str, str], None] | None = None
        self.doubled = False
        self._rules: list[tuple[str, str, Callable[[], None], int]] = []

    def see(self, event: str, act: Callable[[], T], *, may_double: bool = True) -> T:
        """Let ``act`` happen."""
        number = len(self.events)
        self.events.append(event)
        self._tell(number, event, "before")
        result = act()
        if self.doubled and may_double:
            result = act()
        self._tell(number, event, "after")
        return result

    def on(self, event: str, when: str, act: Callable[[], None], times: int = 1) -> None:
        """Do ``act`` at the next ``times`` events of this name."""
        self._rules.append((event, when, act, times))

    def lose(self, event: str, when: str = "after", times: int = 1) -> None:
        """The call does not get there (before), or its reply does not come back (after)."""
        self.on(event, when, _lost, times)

    def _tell(self, number: int, event: str, when: str) -> None:
        if self.at is not None:
            self.at(number, event, when)
        for index, (name, at, act, times) in enumerate(self._rules):
            if name == event and at == when and times > 0:
                self._rules[index] = (name, at, act, times - 1)
                act()


def _lost() -> None:
    raise wire.CallTimeout("no reply")


class WatchedConductor:
    """The line to the conductor; values travel as JSON, as they would."""

    def __init__(self, conductor: Callable[[], Conductor], watch: Watch) -> None:
        self._conductor = conductor
        self._watch = watch

    def with_context(self, context: Context) -> Conductor:
        return self

    def register(self, record: messages.Register) -> messages.Registered:
        return self._call("register", record, lambda conductor, copied: conductor.register(copied))

    def heartbeat(self, record: messages.Heartbeat) -> messages.Heard:
        return self._call("heartbeat", record, lambda conductor, copied: conductor.heartbeat(copied))

    def begin(self, record: messages.Begin) -> messages.Begun:
        return self._call("begin", record, lambda conductor, copied: conductor.begin(copied))

    def claim(self, record: messages.Claim) -> messages.Claimed:
        return self._call("claim", record, lambda conductor, copied: conductor.claim(copied))

    def finish(self, record: messages.Finish) -> messages.Finished:
        return self._call("finish", record, lambda conductor, copied: conductor.finish(copied))

    def abort(self, record: messages.Abort) -> messages.Aborted:
        return self._call("abort", record, lambda conductor, copied: conductor.abort(copied))

    def release(self, record: messages.Release) -> messages.Released:
        return self._call("release", record, lambda conductor, copied: conductor.release(copied))

    def guest(self, record: messages.GuestRequest) -> messages.GuestView:
        return self._call("guest", record, lambda conductor, copied: conductor.guest(copied))

    def guests(self, record: messages.GuestsRequest) -> messages.Guests:
        return self._call("guests", record, lambda conductor, copied: conductor.guests(copied))

    def power_seen(self, record: messages.PowerSeen) -> None:
        return self._call("power_seen", record, lambda conductor, copied: conductor.power_seen(copied))

    def refit(self, record: messages.Refit) -> messages.Refitted:
        return self._call("refit", record, lambda conductor, copied: conductor.refit(copied))

    def answer(self, record: messages.Answer) -> None:
        return self._call("answer", record, lambda conductor, copied: conductor.answer(copied))

    def node_view(self, node: str, host: str) -> NodeView:
        return self._watch.see("conductor.node_view", lambda: self._conductor().node_view(node, host))

    def _call(self, method: str, record: R, call: Callable[[Conductor, R], T]) -> T:
        copied = msgspec.json.decode(msgspec.json.encode(record), type=type(record))
        return self._watch.see(f"conductor.{method}", lambda: call(self._conductor(), copied))


class WatchedDriver:
    """The hypervisor: every call that changes something is an event."""

    def __init__(self, driver: FakeDriver, watch: Watch, refused: list[str] | None = None) -> None:
        """``refused`` collects what the hypervisor could not have run: somebody was wrong."""
        self._driver = driver
        self._watch = watch
        self._refused = [] if refused is None else refused

    def nodes(self) -> tuple[str, ...]:
        return self._driver.nodes()

    def inventory(self, node: str) -> Inventory:
        return self._driver.inventory(node)

    def list(self, node: str) -> tuple[Guest, ...]:
        return self._driver.list(node)

    def spawn(self, spec: GuestSpec, image: Iterator[bytes]) -> None:
        pieces = list(image)
        try:
            self._watch.see("driver.spawn", lambda: self._driver.spawn(spec, iter(pieces)))
        except witness.Refused as error:
            self._refused.append(error.message)
            raise

    def shares_disk(self, node: str, instance: str, source: Source) -> bool:
        return self._driver.shares_disk(node, instance, source)

    def spawn_on_disk(self, spec: GuestSpec, source: Source, *, power_on: bool) -> None:
        self._watch.see("driver.spawn", lambda: self._driver.spawn_on_disk(spec, source, power_on=power_on))

    def snapshot(self, node: str, instance: str) -> Iterator[bytes]:
        # Read at once, so that a test that loses it leaves no file open.
        return iter(self._watch.see("driver.snapshot", lambda: list(self._driver.snapshot(node, instance))))

    def migrate_disk(self, node: str, instance: str) -> Iterator[bytes]:
        return iter(
            self._watch.see("driver.migrate_disk", lambda: list(self._driver.migrate_disk(node, instance)))
        )

    def finish_migration(
        self, spec: GuestSpec, disk: Iterator[bytes], *, power_on: bool, same_node: bool
    ) -> None:
        pieces = list(disk)
        try:
            self._watch.see(
                "driver.finish_migration",
                lambda: self._driver.finish_migration(
                    spec, iter(pieces), power_on=power_on, same_node=same_node
                ),
            )
        except witness.Refused as error:
            self._refused.append(error.message)
            raise

    def confirm_migration(self, node: str, instance: str, *, same_node: bool) -> None:
        self._watch.see(
            "driver.confirm_migration",
            lambda: self._driver.confirm_migration(node, instance, same_node=same_node),
        )

    def admit_live_migration(self, node: str, instance: str, *, admitted: bool) -> None:
        self._watch.see(
            "driver.admit_live_migration",
            lambda: self._driver.admit_live_migration(node, instance, admitted=admitted),
        )

    def check_live_migration(self, spec: GuestSpec, source: host.Hypervisor) -> None:
        self._watch.see(
            "driver.check_live_migration", lambda: self._driver.check_live_migration(spec, source)
        )

    def live_migrate(self, node: str, instance: str, spec: GuestSpec, host: str, wish: Wish) -> None:
        self._watch.see(
            "driver.live_migrate", lambda: self._driver.live_migrate(node, instance, spec, host, wish)
        )

    def revert_migration(self, node: str, instance: str) -> PowerState:
        return self._watch.see(
            "driver.revert_migration", lambda: self._driver.revert_migration(node, instance)
        )

    def destroy(self, node: str, instance: str) -> None:
        self._watch.see("driver.destroy", lambda: self._driver.destroy(node, instance))

    def power_on(self, node: str, instance: str) -> PowerState:
        return self._watch.see("driver.power_on", lambda: self._driver.power_on(node, instance))

    def power_off(self, node: str, instance: str, *, clean: bool = True) -> PowerState:
        return self._watch.see(
            f"driver.power_off{'' if clean else ' at once'}",
            lambda: self._driver.power_off(node, instance, clean=clean),
        )

    def pause(self, node: str, instance: str) -> PowerState:
        return self._watch.see("driver.pause", lambda: self._driver.pause(node, instance))

    def suspend(self, node: str, instance: str) -> PowerState:
        return self._watch.see("driver.suspend", lambda: self._driver.suspend(node, instance))

    def reboot(self, node: str, instance: str, *, hard: bool = False) -> PowerState:
        return self._watch.see("driver.reboot", lambda: self._driver.reboot(node, instance, hard=hard))

    def unpause(self, node: str, instance: str) -> PowerState:
        return self._watch.see("driver.unpause", lambda: self._driver.unpause(node, instance))

    def resume(self, node: str, instance: str) -> PowerState:
        return self._watch.see("driver.resume", lambda: self._driver.resume(node, instance))

    def rebuild(self, spec: GuestSpec, image: Iterator[bytes], *, power_on: bool = True) -> PowerState:
        pieces = list(image)
        try:
            return self._watch.see(
                "driver.rebuild", lambda: self._driver.rebuild(spec, iter(pieces), power_on=power_on)
            )
        except witness.Refused as error:
            self._refused.append(error.message)
            raise

    def console_log(self, node: str, instance: str, lines: int | None = None) -> str:
        return self._driver.console_log(node, instance, lines)


class WatchedStore:
    """The image store: every change is an event."""

    def __init__(self, store: FileStore, watch: Watch) -> None:
        self._store = store
        self._watch = watch

    def get(self, image: str) -> Image:
        return self._watch.see("store.get", lambda: self._store.get(image))

    def list(self) -> list[Image]:
        return self._store.list()

    def create(self, image: Image) -> Image:
        # Twice the same record is a conflict by the store's contract.
        return self._watch.see("store.create", lambda: self._store.create(image), may_double=False)

    def update(self, image: str, changes: Mapping[str, object]) -> Image:
        return self._store.update(image, changes)

    def upload(self, image: str, data: Iterable[bytes]) -> Image:
        pieces = list(data)
        return self._watch.see("store.upload", lambda: self._store.upload(image, pieces))

    def download(self, image: str) -> Iterator[bytes]:
        # Read at once, so that a test that loses it leaves no file open.
        return iter(self._watch.see("store.download", lambda: list(self._store.download(image))))

    def delete(self, image: str) -> None:
        self._watch.see("store.delete", lambda: self._store.delete(image))


class Picture(msgspec.Struct, frozen=True):
    """All that can be seen of a world: equal pictures mean that nothing has changed."""

    servers: dict[str, tuple[str, str | None]]
    claims: tuple[tuple[str, str, frozenset[int]], ...]
    guests: tuple[tuple[str, int], ...]
    images: tuple[tuple[str, str], ...]


class World:
    """One host with one worker, whose process can die and be started again."""

    def __init__(
        self,
        folder: Path,
        make_book: Callable[[World], BookOfTests],
        partition: Partition = PARTITION,
    ) -> None:
        self.folder = folder
        self.partition = partition
        self.refused: list[str] = []
        self.at: Callable[[int, str, str], None] | None = None
        self.runtime = RealRuntime()
        self.hypervisor = FakeDriver(
            self.runtime, HOST, [NODE], str(folder / "hypervisor" / HOST), str(folder / "faults.json")
        )
        self.images = FileStore(self.runtime, str(folder / "images"))
        now = self.runtime.now()
        self.images.create(Image(SERVER_IMAGE, "tiny", "queued", "project", "public", now, now))
        self.images.upload(SERVER_IMAGE, [DISK])
        self.book = make_book(self)
        self.servers: list[str] = []
        self.settings = Settings(
            host=HOST, nodes=(NODE,), state_path=str(folder / "state"), partition=partition, destroy_tries=2
        )
        self.start_worker()

    def start_worker(self) -> None:
        """A new process on the same host: it registers and reconciles."""
        self.watch = watch = Watch()
        watch.at = self.at
        self.driver: Driver = WatchedDriver(self.hypervisor, watch, self.refused)
        self.conductor: Conductor = WatchedConductor(lambda: self.book.conductor, watch)
        incarnation = self.runtime.new_id()
        reports = (node_report(self.driver.inventory(NODE), self.partition),)
        registered = self.conductor.register(messages.Register(HOST, "machine", incarnation, reports))
        assert registered.refused is None, registered.refused
        self.tracker = ResourceTracker(
            self.runtime, reports, lambda node: self.conductor.node_view(node, HOST)
        )
        for view in registered.nodes:
            self.tracker.load(view)
        self.stop = self.runtime.event()
        self.fence = Fence(self.runtime, 15.0)
        self.fence.renewed(self.runtime.monotonic())
        self.jobs = Jobs(self.runtime, 16)
        self.tools = Tools(
            settings=self.settings,
            incarnation=incarnation,
            runtime=self.runtime,
            conductor=self.conductor,
            calls=Calls(self.runtime, self.stop),
            driver=self.driver,
            store=WatchedStore(self.images, watch),
            tracker=self.tracker,
            fence=self.fence,
            jobs=self.jobs,
            stop=self.stop,
        )
        self.audit = Audit(self.tools)
        self.conductor.heartbeat(messages.Heartbeat(HOST, incarnation))
        self.reconcile(starting=True)
        watch.events.clear()

    def reconcile(self, *, starting: bool = False) -> None:
        """One audit, waited for."""
        for done in self.audit.look(NODE, starting=starting):
            assert done.wait(10)

    def run(self, work: Work, plans: Mapping[str, Plan] = PLANS, seconds: float | None = None) -> None:
        """What the worker does with a cast, in this thread."""
        if work.instance not in self.servers:
            self.servers.append(work.instance)
        deadline = self.runtime.monotonic() + (work.seconds_left if seconds is None else seconds)
        Runner(self.tools, plans).run(CONTEXT, work, deadline)

    def run_aside(self, work: Work) -> threading.Thread:
        """The same in a thread of its own."""
        thread = threading.Thread(target=self.run, args=(work,), daemon=True)
        thread.start()
        return thread

    def boot(self, work: Work) -> str:
        """Run a create; the server's id."""
        self.run(work)
        assert self.book.server(work.instance).vm_state == "active", self.book.server(work.instance)
        return work.instance

    def guests(self) -> dict[str, int]:
        """Power state by server."""
        return {guest.instance: guest.power_state for guest in self.hypervisor.list(NODE)}

    def used(self) -> frozenset[int]:
        """CPUs that claims hold, in the book."""
        return frozenset().union(*(_cpus(claim) for claim in self.book.claims(NODE)))

    def picture(self) -> Picture:
        """What there is, after the outbox has been done."""
        self.book.outbox()
        servers = {server: self.book.server(server) for server in self.servers}
        return Picture(
            servers={name: (server.vm_state, server.open_kind) for name, server in servers.items()},
            claims=tuple(
                sorted((claim.instance, claim.role, _cpus(claim)) for claim in self.book.claims(NODE))
            ),
            guests=tuple(sorted(self.guests().items())),
            images=tuple(sorted((image.id, image.status) for image in self.images.list())),
        )

    def check(self) -> None:
        """The invariants: tracker and book agree, every guest has a claim, no CPU is held twice."""
        claims = self.book.claims(NODE)
        report = node_report(self.hypervisor.inventory(NODE), self.partition)
        usage = host.usage_of(report, claims)
        assert set(self.guests()) <= {claim.instance for claim in claims}, "a guest without a claim"
        view = self.tracker.current_view(NODE)
        assert {claim.id for claim in view.claims} == {claim.id for claim in claims}
        assert self.tracker.usage(NODE) == usage
        assert self.tracker.not_held == 0


def _cpus(claim: host.ClaimView) -> frozenset[int]:
    cells = claim.placement.cells if claim.placement else ()
    return frozenset().union(*(numa.held_cpus(cell) for cell in cells))
