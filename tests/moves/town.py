"""A town of several hosts in one thread: one conductor and its book, a worker and a fake hypervisor on each host.

Nothing happens by itself: what has been cast is carried out by ``pump``, in order; leases run out when ``settle``
says so. Every call of a worker is an event, at which it can fail, be lost, be doubled or be the end of its process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from pinfold.compute.audit import Audit
from pinfold.compute.calls import Calls, Conductor
from pinfold.compute.fence import Fence
from pinfold.compute.jobs import Jobs
from pinfold.compute.operations import PLANS
from pinfold.compute.operations.attempt import Tools
from pinfold.compute.operations.runner import Runner
from pinfold.compute.partition import node_report
from pinfold.compute.settings import Settings
from pinfold.compute.tracker import ResourceTracker
from pinfold.conductor.settings import Settings as ConductorSettings
from pinfold.db import moves, starts
from pinfold.db.models import Claim, Instance, Node, Operation, Service
from pinfold.db.session import Book
from pinfold.image.files import FileStore
from pinfold.image.store import Image
from pinfold.model import power
from pinfold.model.request import Demand, demand_for
from pinfold.model.work import Bell, Work
from pinfold.rpcapi import messages
from pinfold.rpcapi.context import Context
from pinfold.runtime import RealRuntime
from pinfold.virt.fake import FakeDriver
from tests.compute.realbook import BoxConductor
from tests.compute.world import DISK, PARTITION, Killed, Watch, WatchedConductor, WatchedDriver, WatchedStore
from tests.conductor.box import WHO, Box

IMAGE = "00000000-0000-4000-8000-000000000001"
CONTEXT = Context("req-town")
At = Callable[[int, str, str], None]
_LOOKS = ("guest", "guests", "node_view", "list")


def flavor(name: str, vcpus: int, *, dedicated: bool = True, disk: int = 1) -> dict[str, Any]:
    """A copy of a flavor, as servers have it."""
    specs = {"hw:cpu_policy": "dedicated"} if dedicated else {}
    return {
        "flavorid": name,
        "name": name,
        "vcpus": vcpus,
        "memory_mb": 512,
        "root_gb": disk,
        "ephemeral_gb": 0,
        "swap_mb": 0,
        "extra_specs": specs,
    }


def demand(of: dict[str, Any]) -> Demand:
    """What a flavor asks of a node."""
    return demand_for(
        vcpus=of["vcpus"],
        memory_mb=of["memory_mb"],
        disk_gb=of["root_gb"],
        extra_specs=of["extra_specs"],
        image_properties={},
    )


P1, P2, P4, P6 = (flavor(f"p{size}", size) for size in (1, 2, 4, 6))
S2 = flavor("s2", 2, dedicated=False)


class Seeded(RealRuntime):
    """The real world, but that the same dice fall each time."""

    def __init__(self) -> None:
        super().__init__()
        self._dice = random.Random(1)

    def random(self) -> random.Random:
        return self._dice


class StartRefused(Exception):
    """The conductor says that this worker must not start, and why."""


class Worker:
    """The worker of one host, whose process can die and be started again; its hypervisor lives on."""

    def __init__(self, town: Town, host: str, nodes: Sequence[str]) -> None:
        self.town, self.host = town, host
        self.watch = Watch()
        self.up = False
        self.serve(nodes)

    def serve(self, nodes: Sequence[str]) -> None:
        """What its configuration says from now on, or rather from its next start on."""
        self.nodes, town, host = tuple(nodes), self.town, self.host
        folder = town.folder / "hypervisor" / host
        self.hypervisor = FakeDriver(
            town.runtime,
            host,
            self.nodes,
            str(folder),
            str(town.folder / "faults.json"),
            shared_storage=host in town.sharing,
            cpu_model=town.cpus.get(host, "fake"),
        )

    def start(self) -> None:
        """A new process: it registers and reconciles. Raises StartRefused."""
        town, runtime = self.town, self.town.runtime
        self.watch = watch = Watch()
        watch.at = self._at
        self.driver = WatchedDriver(self.hypervisor, watch, town.refused)
        self.conductor: Conductor = WatchedConductor(lambda: BoxConductor(town.box), watch)
        self.incarnation = runtime.new_id()
        reports = tuple(node_report(self.hypervisor.inventory(node), PARTITION) for node in self.nodes)
        registered = self.conductor.register(
            messages.Register(self.host, f"machine-{self.host}", self.incarnation, reports)
        )
        if registered.refused is not None:
            raise StartRefused(registered.refused)
        self.tracker = ResourceTracker(
            runtime, reports, lambda node: self.conductor.node_view(node, self.host)
        )
        for view in registered.nodes:
            self.tracker.load(view)
        stop = runtime.event()
        self.fence = Fence(runtime, 15.0)
        self.fence.renewed(runtime.monotonic() + 3600)
        self.tools = Tools(
            settings=Settings(
                host=self.host,
                nodes=self.nodes,
                state_path="",
                partition=PARTITION,
                destroy_tries=1,
                patience=0.0,
            ),
            incarnation=self.incarnation,
            runtime=runtime,
            conductor=self.conductor,
            calls=Calls(runtime, stop),
            driver=self.driver,
            store=WatchedStore(town.images, watch),
            tracker=self.tracker,
            fence=self.fence,
            jobs=Jobs(runtime, 16),
            stop=stop,
        )
        self.audit = Audit(self.tools)
        town.box.incarnations[self.host] = self.incarnation
        self.up = True
        self.beat()
        self.reconcile(starting=True)

    def _at(self, number: int, event: str, when: str) -> None:
        if self.town.at is not None:
            self.town.at(len(self.town.events), f"{self.host} {event}", when)
        if when == "after":
            self.town.events.append(f"{self.host} {event}")

    def beat(self) -> None:
        self.conductor.heartbeat(messages.Heartbeat(self.host, self.incarnation))

    def reconcile(self, *, starting: bool = False) -> None:
        for node in self.nodes:
            for done in self.audit.look(node, starting=starting):
                # against a hang, not a measure of time
                assert done.wait(60)

    def perform(self, work: Work) -> None:
        deadline = self.town.runtime.monotonic() + min(work.seconds_left, self.town.patience)
        Runner(self.tools, PLANS).run(CONTEXT, work, deadline)


class Picture(msgspec.Struct, frozen=True):
    """All that can be seen: equal pictures mean that nothing has changed."""

    servers: dict[str, tuple[str, str, Any, str | None]]
    claims: tuple[tuple[str, str, str, tuple[int, ...]], ...]
    guests: tuple[tuple[str, str, int], ...]
    images: tuple[str, ...]
    disks: tuple[tuple[str, str, bytes], ...]


class Town:
    """``nodes`` are those of a host, if they are not the one of its name; the disks of hosts that are ``sharing``
    stand on shared storage. ``cpus`` are models of hosts that have other ones than most."""

    def __init__(
        self,
        folder: Path,
        book: Book,
        hosts: Sequence[str] = ("n1", "n2", "n3"),
        nodes: dict[str, Sequence[str]] | None = None,
        sharing: Sequence[str] = (),
        cpus: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.sharing = frozenset(sharing)
        self.cpus = cpus or {}
        self.runtime = Seeded()
        self.images = FileStore(self.runtime, str(folder / "images"))
        now = self.runtime.now()
        self.images.create(Image(IMAGE, "tiny", "queued", "project", "public", now, now))
        self.images.upload(IMAGE, [DISK])
        self.image = IMAGE
        self.box = Box(book, self.images, ConductorSettings(host="conductor-1", **settings), self.runtime)
        self.book = book
        self.at: At | None = None
        self.events: list[str] = []
        self.refused: list[str] = []
        self.casts: list[Work] = []
        self.patience = 5.0
        self.twice = False
        self.fillers: list[str] = []
        self.box.compute.on_control = self._control
        self.workers = {host: Worker(self, host, (nodes or {}).get(host, (host,))) for host in hosts}
        for worker in self.workers.values():
            worker.start()
        self.events.clear()

    # --- what happens --------------------------------------------------------------------------

    def pump(self) -> None:
        """Carry out what has been cast, and what that leads to. A worker that dies leaves its work to the book."""
        while self.box.compute.work:
            work = self.box.compute.work.pop(0)
            self.casts.append(work)
            self.deliver(work)
            if self.twice:
                self.deliver(work)

    def deliver(self, work: Work) -> None:
        """A cast arrives at its worker, if that is there."""
        worker = self.workers[work.host]
        if not worker.up:
            return
        try:
            worker.perform(work)
        except Killed:
            worker.up = False

    def _control(self, host: str, wish: messages.Control) -> None:
        """Tests carry work out in their own thread, so that the worker's jobs do not know of it."""
        self.workers[host].tools.jobs._told[wish.operation] = wish.wish

    def kill(self, host: str) -> None:
        """kill -9 of a worker, and long enough for everybody to notice."""
        self.workers[host].up = False
        self.box.die(host)

    def restart(self, host: str) -> None:
        """A new process on the host."""
        self.workers[host].start()

    def restart_dead(self) -> None:
        """Whoever died is started again."""
        for worker in self.workers.values():
            if not worker.up:
                worker.start()

    def power_cut(self, host: str) -> None:
        """The machine stops: its guests with it, but those whose memory is on disk."""
        self.kill(host)
        worker = self.workers[host]
        for node in worker.nodes:
            for guest in worker.hypervisor.list(node):
                if guest.power_state != power.SUSPENDED:
                    worker.hypervisor.power_off(node, guest.instance)

    def force_down(self, host: str, down: bool = True) -> None:
        """An operator says that the host is fenced."""
        self._write(sa.update(Service).where(Service.host == host).values(forced_down=down))

    def sweep(self, server: str, *, deadline: bool = False) -> None:
        """The lease, or the time, of the server's operation has run out, and a conductor looks."""
        self.box.age(server, deadline=deadline)
        for worker in self.workers.values():
            if worker.up:
                worker.beat()
        self.box.sweeper.operations()
        self.pump()

    def settle(self, *servers: str, audits: bool = True) -> None:
        """Until nothing is under way any more: leases run out again and again, then the time of the operations. An
        audit may find something to do."""
        self.pump()
        for _ in range(3):
            for number in range(12):
                busy = [server for server in self.busy() if server in servers]
                if not busy:
                    break
                for server in busy:
                    self.sweep(server, deadline=number > 8)
            if not audits:
                break
            seen = len(self.events)
            for worker in self.workers.values():
                if worker.up:
                    worker.reconcile()
            self.pump()
            if not any(event.split(".")[1] not in _LOOKS for event in self.events[seen:]):
                break
        self.box.sweeper.outbox()

    def busy(self) -> list[str]:
        """The servers with an open operation."""
        return self.book.read(
            lambda session: list(
                session.scalars(sa.select(Operation.open_key).where(Operation.open_key >= ""))
            )
        )

    # --- requests ------------------------------------------------------------------------------

    def boot(self, of: dict[str, Any] = P2, host: str = "n1", stopped: bool = False) -> str:
        """A server that runs on ``host`` (or was stopped there)."""
        server = self.box.ask_create(demand(of), image=IMAGE, host=host)
        self._write(sa.update(Instance).where(Instance.id == server).values(flavor=of))
        self.pump()
        assert self.row(server).vm_state == "active", self.row(server).fault
        if stopped:
            self._write(
                sa.update(Instance).where(Instance.id == server).values(vm_state="stopped", power_state=4)
            )
            self.workers[host].hypervisor.power_off(self.place(server)[1], server)
        return server

    def resize(self, server: str, of: dict[str, Any] = P4) -> None:
        """Ask for it; nothing has been carried out when this returns."""
        self._start(moves.resize, server, image_id=self.runtime.new_id(), size=moves.Size(of, demand(of)))

    def migrate(self, server: str, host: str | None = None) -> None:
        self._start(moves.migrate, server, image_id=self.runtime.new_id(), host=host)

    def live_migrate(self, server: str, host: str | None = None) -> None:
        self._start(moves.live_migrate, server, host=host)

    def evacuate(self, server: str, host: str | None = None, **more: Any) -> None:
        self._start(moves.evacuate, server, host=host, **more)

    def confirm(self, server: str) -> None:
        self._start(moves.confirm, server)

    def revert(self, server: str) -> None:
        self._start(moves.revert, server)

    def pin_to_zone(self, server: str, zone: str) -> None:
        """It was asked for in this availability zone."""
        self._write(sa.update(Instance).where(Instance.id == server).values(availability_zone=zone))

    def age_move(self, server: str) -> None:
        """Long ago it was moved."""
        self._write(sa.update(Instance).where(Instance.id == server).values(moved_at=1.0))

    def in_place(self, kind: str, server: str) -> None:
        """An operation of the worker that has the server."""
        self.box.ring(
            self.book.write(
                lambda session: starts.in_place(
                    session, server, kind, WHO, self.box.times, operation_id=self.runtime.new_id()
                )
            )
        )

    def ask(self, kind: str, server: str, **more: Any) -> None:
        """Any other request, as ``Box.ask``."""
        self.box.ask(kind, server, **more)

    def _start(self, start: Callable[..., Bell], server: str, **more: Any) -> None:
        self.box.ring(
            self.book.write(
                lambda session: start(
                    session, server, WHO, self.box.times, operation_id=self.runtime.new_id(), **more
                )
            )
        )

    def _write(self, statement: Any) -> None:
        self.book.write(lambda session: session.execute(statement))

    # --- looking -------------------------------------------------------------------------------

    def row(self, server: str) -> Instance:
        return self.box.server(server)

    def operation(self, server: str) -> Operation:
        return self.box.operation(server)

    def outcome(self, operation: str) -> str:
        """How a move was ended."""
        row = self.book.read(lambda session: session.get(Operation, operation))
        assert row is not None
        return str(row.arguments["outcome"])

    def fill(self, host: str) -> None:
        """Servers that take all dedicated CPUs of a host."""
        waiting, self.box.compute.work = self.box.compute.work, []
        for size in (P6, P6, P2):
            server = self.box.ask_create(demand(size), image=IMAGE, host=host)
            for work in list(self.box.compute.work):
                self.box.claim(work)
                self.box.finish(work)
            self.box.compute.work.clear()
            self._write(sa.update(Instance).where(Instance.id == server).values(flavor=size))
            self.fillers.append(server)
        self.box.compute.work = waiting

    def open_kind(self, server: str) -> str | None:
        return self.book.read(
            lambda session: session.scalar(sa.select(Operation.kind).where(Operation.open_key == server))
        )

    def state(self, server: str) -> str:
        return self.row(server).vm_state

    def roles(self, server: str) -> dict[str, str]:
        """The node of each of its claims, by role."""
        return dict(self.box.claims(server))

    def place(self, server: str) -> tuple[str, str]:
        """Host and node of its current claim."""
        node = self.roles(server)["current"]
        return next((worker.host, node) for worker in self.workers.values() if node in worker.nodes)

    def places(self) -> list[tuple[str, str, str]]:
        """Role, server and node of each claim there is."""
        query = sa.select(Claim.role, Claim.instance_id, Node.name).join(Node, Node.id == Claim.node_id)
        return [tuple(row) for row in self.book.read(lambda session: session.execute(query).all())]  # type: ignore[misc]

    def used(self, node: str) -> set[int]:
        return self.box.used(node)

    def guests(self, server: str) -> dict[str, int]:
        """Power state by node."""
        return self.all_guests().get(server, {})

    def all_guests(self) -> dict[str, dict[str, int]]:
        """Power state by server and node."""
        found: dict[str, dict[str, int]] = {}
        for worker in self.workers.values():
            for node in worker.nodes:
                for guest in worker.hypervisor.list(node):
                    found.setdefault(guest.instance, {})[node] = guest.power_state
        return found

    def disk(self, server: str, node: str) -> Path:
        return next(self.folder.glob(f"hypervisor/*/{node}/guests/{server}/disk"))

    def write_disk(self, server: str, text: bytes) -> None:
        """What the guest writes to its disk."""
        path = self.disk(server, self.place(server)[1])
        with open(path, "r+b") as file:
            file.write(text)

    def read_disk(self, server: str, length: int) -> bytes:
        with open(self.disk(server, self.place(server)[1]), "rb") as file:
            return file.read(length)

    def claims(self) -> list[Claim]:
        return self.book.read(lambda session: list(session.scalars(sa.select(Claim))))

    def picture(self) -> Picture:
        """What there is, after the outbox has been done."""
        from tests.moves.invariants import cpus_of

        self.box.sweeper.outbox()
        rows = self.book.read(
            lambda session: list(session.scalars(sa.select(Instance).where(Instance.deleted_at.is_(None))))
        )
        nodes = {node: worker for worker in self.workers.values() for node in worker.nodes}
        found = [(node, guest) for node, worker in nodes.items() for guest in worker.hypervisor.list(node)]
        return Picture(
            servers={
                row.id: (row.vm_state, row.flavor["name"], row.moved_from, self.open_kind(row.id))
                for row in rows
            },
            claims=tuple(
                sorted(
                    (
                        claim.instance_id,
                        claim.role,
                        str(claim.node_id),
                        tuple(sorted(cpus_of(claim.placement))),
                    )
                    for claim in self.claims()
                )
            ),
            guests=tuple(sorted((guest.instance, node, guest.power_state) for node, guest in found)),
            images=tuple(sorted(image.id for image in self.images.list())),
            disks=tuple(
                sorted(
                    (guest.instance, node, _begin(self.disk(guest.instance, node))) for node, guest in found
                )
            ),
        )


def _begin(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(64)
