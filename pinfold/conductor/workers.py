"""Workers in the book: who they are, that they live, and what they must know when they start."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.orm import Session

from pinfold.conductor import power
from pinfold.db import claims as book_claims
from pinfold.db import hosts
from pinfold.db.models import Claim, Instance, Node, Operation, Service
from pinfold.db.session import Book
from pinfold.db.types import epoch
from pinfold.model import cpuset, errors, host
from pinfold.model.host import NodeReport, NodeView
from pinfold.model.work import Bell, Times
from pinfold.rpcapi.messages import (
    GuestRequest,
    Guests,
    GuestsRequest,
    GuestView,
    Heard,
    Heartbeat,
    PowerSeen,
    Register,
    Registered,
    Release,
    Released,
)
from pinfold.runtime import Runtime


class Refused(errors.PinfoldError):
    """The worker must not start; nothing was written."""


class Workers:
    """What workers tell of themselves."""

    def __init__(self, book: Book, runtime: Runtime, lease: float) -> None:
        self._book = book
        self._runtime = runtime
        self._lease = lease

    def register(self, record: Register) -> Registered:
        """A worker starts: check that it may, write its nodes, and make its operations due for a sweep."""
        try:
            return self._book.write(lambda session: self._register(session, record))
        except Refused as refused:
            return Registered(refused=refused.message)

    def _register(self, session: Session, record: Register) -> Registered:
        service = hosts.worker(session, record.host, lock=True)
        if service is not None and service.host_id not in (None, record.host_id):
            raise Refused(
                f"The host name {record.host!r} belongs to another machine. Give this one a [DEFAULT] host of its "
                "own; if it replaces that machine, delete its compute service first."
            )
        if service is None:
            self._check_new(session, record)
        # locks in the order of all transactions: operations first, then nodes by id
        session.execute(
            sa.update(Operation)
            .where(Operation.open_key.is_not(None), Operation.owner_host == record.host)
            .values(lease_until=epoch())
        )
        names = [report.name for report in record.nodes]
        session.execute(
            sa.select(Node.id)
            .where(sa.or_(Node.name.in_(names), Node.host == record.host))
            .order_by(Node.id)
            .with_for_update()
        )
        nodes = [self._save_node(session, record.host, report) for report in record.nodes]
        self._drop_nodes(session, record)
        self._save_service(session, record, service)
        return Registered(
            lease=self._lease,
            nodes=tuple(hosts.node_view(session, node) for node in nodes),
            guests=tuple(
                guest
                for node in nodes
                for guest in guests(session, node, forced_down=service is not None and service.forced_down)
            ),
        )

    @staticmethod
    def _check_new(session: Session, record: Register) -> None:
        """A host that the database has not seen is a machine that it has not seen, and empty."""
        former = hosts.of_machine(session, record.host_id)
        if former is not None:
            raise Refused(
                f"This machine is host {former!r} in the database, and its [DEFAULT] host is {record.host!r} now. "
                "Put the former name back. To rename it, move or delete its servers and delete its compute service "
                "first."
            )
        if record.found:
            some = ", ".join(record.found[:5])
            raise Refused(
                f"The database does not know host {record.host!r}, and yet its hypervisor has {len(record.found)} "
                f"guests, of {some}: look whether [database] connection of the conductors names the right database, "
                "and [DEFAULT] host of this worker its right name. If both do, remove the guests first."
            )

    def _save_node(self, session: Session, host_name: str, report: NodeReport) -> Node:
        existing = hosts.node_by_name(session, report.name)
        if existing is not None:
            if existing.host != host_name:
                raise Refused(f"Node {report.name} belongs to host {existing.host}, not to {host_name}.")
            self._check_claims_fit(session, existing, report)
        return hosts.save_node(session, host_name, report, new_id=self._runtime.new_id())

    @staticmethod
    def _check_claims_fit(session: Session, node: Node, report: NodeReport) -> None:
        lost = hosts.lost_cpus(session, node, report)
        if lost:
            cpus = cpuset.render({cpu for cpu, _instance in lost})
            servers = ", ".join(sorted({instance for _cpu, instance in lost}))
            raise Refused(
                f"[compute] cpu_dedicated_set of node {node.name} no longer has CPUs {cpus}, which servers {servers} "
                "hold. Put them back, or shelve and offload these servers first."
            )
        try:
            host.usage_of(report, hosts.node_view(session, node).claims)
        except errors.AccountingError as error:
            raise Refused(f"Node {node.name} is not what its claims were made on: {error}") from error

    @staticmethod
    def _drop_nodes(session: Session, record: Register) -> None:
        kept = [report.name for report in record.nodes]
        for node in session.scalars(
            sa.select(Node).where(Node.host == record.host, Node.name.not_in(kept))
        ).all():
            if session.scalar(sa.select(Claim.id).where(Claim.node_id == node.id).limit(1)):
                raise Refused(
                    f"[compute] nodes no longer names node {node.name}, on which servers still hold claims. Put it "
                    "back, or move or delete these servers first."
                )
            # only as its own: another worker may have it by now
            session.execute(sa.delete(Node).where(Node.id == node.id, Node.host == record.host))

    def _save_service(self, session: Session, record: Register, service: Service | None) -> None:
        if service is None:
            service = Service(
                id=self._runtime.new_id(),
                binary=hosts.COMPUTE,
                host=record.host,
                created_at=session.scalar(sa.select(epoch())) or 0.0,
                disabled=False,
                forced_down=False,
                ready=False,
                last_seen_at=0.0,
                incarnation=record.incarnation,
            )
            session.add(service)
        service.host_id = record.host_id
        service.incarnation = record.incarnation
        service.ready = False
        session.flush()
        session.execute(sa.update(Service).where(Service.id == service.id).values(last_seen_at=epoch()))
        hosts.touch(session, [record.host])

    def heartbeat(self, record: Heartbeat) -> Heard:
        """Note that the worker lives (or until when messages have reached it), and renew the leases of the
        operations it names."""
        return self._book.write(lambda session: self._heartbeat(session, record))

    def _heartbeat(self, session: Session, record: Heartbeat) -> Heard:
        known = session.execute(
            sa.update(Service)
            .where(
                Service.binary == hosts.COMPUTE,
                Service.host == record.host,
                Service.incarnation == record.incarnation,
            )
            .values(last_seen_at=epoch() - record.unheard, ready=record.ready)
        )
        if known.rowcount == 0:  # type: ignore[attr-defined]
            return Heard(superseded=True)
        return Heard(refused=self._renew(session, record)) if record.operations else Heard()

    def _renew(self, session: Session, record: Heartbeat) -> tuple[str, ...]:
        """A lease is renewed by operation and attempt, for those that are this host's to do."""
        named = dict(record.operations)
        rows = session.execute(
            sa.select(Operation.id, Operation.attempt)
            .where(
                Operation.id.in_(named),
                Operation.open_key.is_not(None),
                Operation.owner_host == record.host,
            )
            .order_by(Operation.id)
            .with_for_update()
        )
        mine = [operation for operation, attempt in rows if named[operation] == attempt]
        if mine:
            session.execute(
                sa.update(Operation)
                .where(Operation.id.in_(mine))
                .values(lease_until=epoch() + self._lease, owner_incarnation=record.incarnation)
            )
        return tuple(sorted(set(named) - set(mine)))

    def release(self, record: Release) -> Released:
        """Free a leftover, named by its id, on the word of its node's worker."""
        return self._book.write(lambda session: self._release(session, record))

    @staticmethod
    def _release(session: Session, record: Release) -> Released:
        row = session.execute(
            sa.select(Claim, Node)
            .join(Node, Node.id == Claim.node_id)
            .where(Claim.id == record.claim, Node.name == record.node, Node.host == record.host)
            .with_for_update(of=Node)
        ).first()
        if row is None or row[0].role != book_claims.LEFTOVER:
            return Released(released=False)
        return Released(released=True, generation=book_claims.free(session, row[0], row[1]))

    def guest(self, record: GuestRequest) -> GuestView:
        """What the book says of one server, for the worker of ``record.node``. Raises errors.NotFound, and
        errors.Conflict for an incarnation that is not the present one."""
        return self._book.read(lambda session: self._guest(session, record))

    @staticmethod
    def _guest(session: Session, record: GuestRequest) -> GuestView:
        node = _own_node(session, record.node, record.host)
        forced_down = _present(session, record.host, record.incarnation).forced_down
        found = guests(session, node, only=record.instance, forced_down=forced_down)
        return found[0] if found else GuestView(record.instance, node.name, None, forced_down=forced_down)

    def guests(self, record: GuestsRequest) -> Guests:
        """What the book says of every server with a claim on ``record.node``. Raises as ``guest``."""

        def read(session: Session) -> Guests:
            node = _own_node(session, record.node, record.host)
            service = _present(session, record.host, record.incarnation)
            return Guests(tuple(guests(session, node, forced_down=service.forced_down)))

        return self._book.read(read)

    def power_seen(self, record: PowerSeen, times: Times) -> Bell:
        """Follow what a worker's audit has seen. Raises errors.NotFound, errors.Conflict."""
        operation_id, request_id = self._runtime.new_id(), f"req-{self._runtime.new_id()}"

        def write(session: Session) -> Bell:
            _present(session, record.host, record.incarnation)
            return power.seen(session, record, times, operation_id=operation_id, request_id=request_id)

        return self._book.write(write)

    def node_view(self, node: str, host_name: str) -> NodeView:
        """The claims of a node of ``host_name``. Raises errors.NotFound."""

        return self._book.read(lambda session: hosts.node_view(session, _own_node(session, node, host_name)))


def _own_node(session: Session, name: str, host_name: str) -> Node:
    node = hosts.node_by_name(session, name)
    if node is None or node.host != host_name:
        raise errors.NotFound(f"Host {host_name} has no node {name}.")
    return node


def _present(session: Session, host_name: str, incarnation: str) -> Service:
    """The service record of the incarnation that asks. Raises errors.Conflict when another one has registered."""
    service = hosts.worker(session, host_name)
    if service is None or service.incarnation != incarnation:
        raise errors.Conflict(f"Another worker of host {host_name} has registered since.")
    return service


def guests(
    session: Session, node: Node, *, only: str | None = None, forced_down: bool = False
) -> list[GuestView]:
    """What the worker of ``node`` must know of the servers with a claim there, or of ``only`` one server."""
    where = (
        Instance.id == only
        if only
        else Instance.id.in_(sa.select(Claim.instance_id).where(Claim.node_id == node.id))
    )
    there, service = orm.aliased(Node), orm.aliased(Service)
    rows = session.execute(
        sa.select(Instance.id, Instance.vm_state, Instance.power_state, Operation, Claim, service.forced_down)
        .select_from(Instance)
        .outerjoin(Operation, Operation.open_key == Instance.id)
        .outerjoin(Claim, Claim.instance_id == Instance.id)
        .outerjoin(there, there.id == Claim.node_id)
        .outerjoin(service, sa.and_(service.binary == hosts.COMPUTE, service.host == there.host))
        .where(where)
        .order_by(Instance.id, Claim.created_at, Claim.id)
    )
    found: dict[str, GuestView] = {}
    row: Any  # an outer join has None where it found nothing, which its types do not say
    for row in rows:
        instance, vm_state, power_state, operation, claim, fenced = row
        view = found.get(instance) or GuestView(
            instance,
            node.name,
            vm_state,
            None if operation is None else operation.id,
            forced_down=forced_down,
            power_state=power_state,
        )
        found[instance] = _with_claim(view, node, claim, operation, fenced=bool(fenced))
    return list(found.values())


_STARTS_GUESTS = ("spawn", "finish_migration", "live_migrate")


def _with_claim(
    view: GuestView, node: Node, claim: Claim | None, operation: Operation | None, *, fenced: bool
) -> GuestView:
    if claim is None:
        return view
    if claim.node_id == node.id:
        return msgspec.structs.replace(view, claims=(*view.claims, hosts.claim_view(claim)))
    if _runs_nothing(claim, operation) or (fenced and claim.role == book_claims.LEFTOVER):
        return view
    return msgspec.structs.replace(view, other_claims=view.other_claims + 1)


def _runs_nothing(claim: Claim, operation: Operation | None) -> bool:
    """A claim whose operation has not let its worker start anything there."""
    if operation is None or claim.role != book_claims.INCOMING or claim.operation_id != operation.id:
        return False
    return not any(entry["step"] in _STARTS_GUESTS for entry in operation.log)
