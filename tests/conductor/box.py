"""A conductor and its book without a worker: tests speak as the worker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.conductor.manager import Manager
from pinfold.conductor.runner import Runner
from pinfold.conductor.scheduler import Scheduler
from pinfold.conductor.settings import Settings
from pinfold.conductor.sweeper import Sweeper
from pinfold.conductor.workers import Workers
from pinfold.db import claims, hosts, resets, starts
from pinfold.db.models import Claim, Instance, Node, Operation, Outbox, Pin, Service
from pinfold.db.operations import Requester
from pinfold.db.session import Book
from pinfold.image.files import FileStore
from pinfold.image.store import Image
from pinfold.metrics import ConductorMetrics
from pinfold.model import host, states
from pinfold.model.host import NodeReport
from pinfold.model.numa import HostCell, HostTopology
from pinfold.model.rebuild import Rebuild
from pinfold.model.request import Demand, demand_for
from pinfold.model.work import Bell, Times, Work
from pinfold.rpcapi import messages, wire
from pinfold.rpcapi.context import Context
from pinfold.rpcapi.messages import from_wire, to_wire
from pinfold.runtime import RealRuntime, Runtime

T = TypeVar("T")
WHO = Requester("req-test", "project", "user")
NOBODY = Context("req-test")


class RecordingCompute:
    """Keeps what is cast to workers, but tells ``on_control`` at once what is wished of what they do. ``deaf`` hosts
    have never been seen by the broker; it may be ``away``."""

    def __init__(self) -> None:
        self.work: list[Work] = []
        self.reports: list[tuple[str, messages.ReportRequest]] = []
        self.echoes: list[tuple[str, messages.Echo]] = []
        self.deaf: set[str] = set()
        self.away = False
        self.on_control: Callable[[str, messages.Control], None] = lambda host, wish: None

    def with_context(self, context: Context) -> RecordingCompute:
        return self

    def perform(self, host: str, work: Work) -> None:
        if host in self.deaf:
            raise wire.Undeliverable(f"nobody listens at {host}")
        self.work.append(work)

    def echo(self, host: str, echo: messages.Echo) -> None:
        if self.away:
            raise wire.Undeliverable("the broker is away")
        if host in self.deaf:
            raise wire.NobodyListens(f"nobody listens at {host}")
        self.echoes.append((host, echo))

    def require(self, kind: str) -> None:
        """These workers do whatever there is."""

    def control(self, host: str, wish: messages.Control) -> None:
        self.on_control(host, wish)

    def report(self, host: str, request: messages.ReportRequest) -> None:
        self.reports.append((host, request))


def two_cells(name: str) -> NodeReport:
    """Cells 0-3 with siblings 4-7, and 8-11 with 12-15; CPUs 0 and 8 are shared."""
    cells = tuple(
        HostCell(
            id=number,
            shared=frozenset({base}),
            dedicated=frozenset(range(base + 1, base + 8)),
            siblings=tuple(frozenset({base + core, base + core + 4}) for core in range(4)),
            memory_mb=8192,
        )
        for number, base in ((0, 0), (1, 8))
    )
    return NodeReport(name, HostTopology(cells), memory_mb=16384, disk_gb=100, cpu_ratio=4.0)


def pinned(vcpus: int) -> Demand:
    """A demand for dedicated CPUs."""
    return demand_for(
        vcpus=vcpus,
        memory_mb=512,
        disk_gb=1,
        extra_specs={"hw:cpu_policy": "dedicated"},
        image_properties={},
    )


def patient(times: Times) -> Times:
    """No host is down because the machine that tests run on is slow: one is when a test says so."""
    return msgspec.structs.replace(times, service_down=86400.0)


class Box:
    """One conductor on ``book``, and what a worker would say to it."""

    def __init__(
        self, book: Book, images: FileStore, settings: Settings | None = None, runtime: Runtime | None = None
    ) -> None:
        self.runtime = runtime or RealRuntime()
        self.book = book
        self.images = images
        settings = settings or Settings(host="conductor-1")
        self.settings = msgspec.structs.replace(settings, times=patient(settings.times))
        self.compute = RecordingCompute()
        self.scheduler = Scheduler(self.runtime, self.settings.times.service_down, self.settings.default_zone)
        runner = Runner(book, self.compute, images, self.scheduler, self.settings)  # type: ignore[arg-type]
        self.runner = runner
        workers = Workers(book, self.runtime, self.settings.times.lease)
        bell = self.runtime.event()
        self.metrics = ConductorMetrics()
        self.manager = Manager(book, runner, workers, self.settings, bell, self.metrics)
        self.sweeper = Sweeper(
            book,
            runner,
            self.compute,  # type: ignore[arg-type]
            images,
            self.runtime,
            self.settings,
            self.runtime.event(),
            bell,
        )
        self.incarnations: dict[str, str] = {}

    # --- the worker's side ---------------------------------------------------------------------

    def call(self, method: str, record: msgspec.Struct, kind: type[T]) -> T:
        """Call the conductor as a worker does, through the wire's form."""
        wired = msgspec.json.decode(msgspec.json.encode(to_wire(record)))
        return from_wire(getattr(self.manager, method)(NOBODY, record=wired), kind)

    def register(self, host: str, *reports: NodeReport, host_id: str = "id") -> messages.Registered:
        """A worker of ``host`` starts with these nodes (by default one of two cells) and is ready."""
        self.incarnations[host] = incarnation = self.runtime.new_id()
        nodes = reports or (two_cells(host),)
        registered = self.call(
            "register",
            messages.Register(host, f"{host}-{host_id}", incarnation, nodes),
            messages.Registered,
        )
        self.beat(host)
        return registered

    def beat(self, host: str, *doing: Work) -> messages.Heard:
        """A heartbeat of ``host`` that names what it is doing."""
        named = tuple((work.operation, work.attempt) for work in doing)
        return self.call(
            "heartbeat", messages.Heartbeat(host, self.incarnations[host], named), messages.Heard
        )

    def begin(self, work: Work, step: str) -> messages.Begun:
        """The worker is about to do ``step``."""
        record = messages.Begin(work.operation, work.attempt, step, work.host, self.incarnations[work.host])
        return self.call("begin", record, messages.Begun)

    def claim(self, work: Work, generation: int | None = None) -> messages.Claimed:
        """The worker fits and claims, on the book's present view of its node unless told another generation."""
        claimed = self.try_claim(work, generation)
        assert claimed is not None, "it does not fit"
        return claimed

    def try_claim(self, work: Work, generation: int | None = None) -> messages.Claimed | None:
        """The same; None where it does not fit."""
        report, view = self.book.read(lambda session: self._node(session, work.node))
        place = host.place(report, host.usage_of(report, view.claims), work.demand)
        if place is None:
            return None
        record = messages.Claim(
            operation=work.operation,
            attempt=work.attempt,
            host=work.host,
            incarnation=self.incarnations[work.host],
            node=work.node,
            generation=view.generation if generation is None else generation,
            claim=self.runtime.new_id(),
            memory_mb=work.demand.memory_mb,
            disk_gb=work.demand.disk_gb,
            shared_vcpus=work.demand.shared_vcpus,
            placement=place.placement,
        )
        return self.call("claim", record, messages.Claimed)

    def finish(self, work: Work, power_state: int = 1) -> messages.Finished:
        """The worker has done all steps."""
        record = messages.Finish(
            work.operation, work.attempt, work.host, self.incarnations[work.host], work.node, power_state
        )
        return self.call("finish", record, messages.Finished)

    def abort(self, work: Work, step: str = "spawn", **fields: Any) -> messages.Aborted:
        """The worker could not do ``step``."""
        values = {"code": "driver-error", "message": "The hypervisor said no.", **fields}
        record = messages.Abort(
            work.operation, work.attempt, work.host, self.incarnations[work.host], work.node, step, **values
        )
        return self.call("abort", record, messages.Aborted)

    @staticmethod
    def _node(session: Session, name: str) -> tuple[NodeReport, host.NodeView]:
        node = hosts.node_by_name(session, name)
        assert node is not None
        return node.report, hosts.node_view(session, node)

    # --- the API's side ------------------------------------------------------------------------

    @property
    def times(self) -> Times:
        return self.settings.times

    def ask_create(
        self, demand: Demand | None = None, name: str = "a", image: str = "tiny", **arguments: Any
    ) -> str:
        """POST a server; its id. The conductor has been rung when this returns."""
        instance = Instance(
            id=self.runtime.new_id(),
            project_id="project",
            user_id="user",
            name=name,
            hostname=name,
            reservation_id="r-1",
            vm_state="",
            image_ref=image,
            flavor={"name": "p"},
            demand=demand or pinned(4),
        )
        operation = self.runtime.new_id()
        self.ring(
            self.book.write(
                lambda session: starts.create(
                    session,
                    [instance],
                    WHO,
                    self.times,
                    operation_ids=[operation],
                    arguments=arguments,
                )
            )
        )
        return instance.id

    def ring(self, bell: Bell) -> None:
        """As the API does after its commit."""
        self.runner.ring(bell)

    def ask(self, kind: str, server: str, **more: Any) -> Bell:
        """Any other request; rung when this returns."""
        if kind == "shelve":
            more = {
                "image_id": self.runtime.new_id(),
                "image_name": "a-shelved",
                "image_properties": {},
                **more,
            }
        if kind == "create_image":
            more = {"arguments": {"snapshot": self.runtime.new_id(), "snapshot_name": "image"}, **more}
        start = getattr(starts, kind, None) or partial(starts.in_place, kind=kind)
        operation = self.runtime.new_id()
        bell: Bell = self.book.write(
            lambda session: start(
                session, server, requester=WHO, times=self.times, operation_id=operation, **more
            )
        )
        self.ring(bell)
        return bell

    def ask_rebuild(
        self, server: str, demand: Demand | None = None, image: str = "tiny", **fields: Any
    ) -> Bell:
        """Rebuild it from ``image``, which asks for ``demand`` (by default what it has)."""
        wanted = Rebuild(image, {}, demand or self.server(server).demand, fields)
        return self.ask("rebuild", server, wanted=wanted)

    def reset(self, server: str, state: str) -> None:
        """An admin says what state it is in."""
        operation = self.runtime.new_id()
        self.book.write(
            lambda session: resets.reset_state(
                session, server, state, WHO, self.times, operation_id=operation
            )
        )

    def refit(self, work: Work, generation: int | None = None) -> messages.Refitted:
        """The worker plans the place of a server that is rebuilt anew."""
        report, view = self.book.read(lambda session: self._node(session, work.node))
        others = [claim for claim in view.claims if claim.id != work.claim]
        place = host.place(report, host.usage_of(report, others), work.demand)
        assert place is not None, "it does not fit"
        record = messages.Refit(
            operation=work.operation,
            attempt=work.attempt,
            host=work.host,
            incarnation=self.incarnations[work.host],
            node=work.node,
            generation=view.generation if generation is None else generation,
            claim=work.claim or "",
            memory_mb=work.demand.memory_mb,
            disk_gb=work.demand.disk_gb,
            shared_vcpus=work.demand.shared_vcpus,
            placement=place.placement,
        )
        return self.call("refit", record, messages.Refitted)

    def do(self, work: Work | None = None, power_state: int = 1) -> Work:
        """The worker does all steps of what was cast last."""
        work = work or self.last
        for step in states.KINDS[work.kind].steps:
            assert self.begin(work, step.name).accepted
        assert self.finish(work, power_state).done
        return work

    # --- whole operations ----------------------------------------------------------------------

    @property
    def last(self) -> Work:
        """What was cast last."""
        return self.compute.work[-1]

    def boot(self, demand: Demand | None = None, name: str = "a", **arguments: Any) -> str:
        """A server that runs."""
        server = self.ask_create(demand, name, **arguments)
        self.claim(self.last)
        assert self.finish(self.last).done
        return server

    def shelve(self, server: str) -> str:
        """Shelve it as far as the settings say; the id of its image."""
        self.ask("shelve", server)
        work = self.last
        for step in ("power_off", "snapshot"):
            assert self.begin(work, step).accepted
        self.make_image(work.snapshot or "")
        if self.begin(work, "record").offload:
            assert self.begin(work, "destroy").accepted
        assert self.finish(work, 4).done
        return work.snapshot or ""

    def make_image(self, image: str) -> None:
        """What a worker uploads."""
        now = self.runtime.now()
        self.images.create(Image(image, "a-shelved", "queued", "project", "private", now, now))
        self.images.upload(image, [b"disk"])

    # --- looking -------------------------------------------------------------------------------

    def server(self, server: str) -> Instance:
        """The row."""
        found = self.book.read(lambda session: session.get(Instance, server))
        assert found is not None
        return found

    def operation(self, server: str) -> Operation:
        """The last operation of the server."""
        found = self.book.read(
            lambda session: session.scalars(
                sa.select(Operation)
                .where(Operation.instance_id == server)
                .order_by(Operation.created_at.desc(), Operation.open_key.is_(None))
            ).first()
        )
        assert found is not None
        return found

    def claims(self, server: str) -> list[tuple[str, str]]:
        """(role, node) of each of its claims."""
        rows = self.book.read(lambda session: claims.of_instance(session, server))
        return [(claim.role, node.name) for claim, node in rows]

    def used(self, node: str) -> set[int]:
        """The node's pinned CPUs in the book."""
        rows = self.book.read(
            lambda session: session.scalars(
                sa.select(Pin.cpu).join(Node, Node.id == Pin.node_id).where(Node.name == node)
            ).all()
        )
        return set(rows)

    def view(self, node: str) -> host.NodeView:
        """The node's claims in the book."""
        return self.book.read(lambda session: self._node(session, node))[1]

    def outbox(self) -> list[str]:
        """What is still to be done outside."""
        return self.book.read(lambda session: list(session.scalars(sa.select(Outbox.subject))))

    def check(self) -> None:
        """The invariants of the book: pins are exactly those of claims, and claims name open or finished work."""
        assert self.book.read(hosts.torn_claims) == []
        for claim in self.book.read(lambda session: session.scalars(sa.select(Claim)).all()):
            assert (claim.slot is None) == (claim.role == claims.LEFTOVER)

    # --- time and death ------------------------------------------------------------------------

    def age(self, server: str, *, lease: bool = True, deadline: bool = False) -> None:
        """Let the lease, or the whole time, of the server's open operation run out."""
        values = {}
        if lease:
            values["lease_until"] = 0.0
        if deadline:
            values["deadline_at"] = 1.0
        self.book.write(
            lambda session: session.execute(
                sa.update(Operation).where(Operation.open_key == server).values(values)
            )
        )

    def die(self, host: str) -> None:
        """The worker of ``host`` has not been heard of for long."""
        self.book.write(
            lambda session: session.execute(
                sa.update(Service).where(Service.host == host).values(last_seen_at=0.0)
            )
        )

    def sweep(self) -> None:
        """One sweep of all kinds."""
        self.sweeper.operations()
        self.sweeper.outbox()
        self.sweeper.reports()
        self.sweeper.offloads()
        self.sweeper.reclaims()
