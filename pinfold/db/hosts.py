"""Services and nodes: who is there, who is up, and what a node has."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db import quick
from pinfold.db.models import Base, Claim, Node, Operation, Pin, Service
from pinfold.db.types import epoch
from pinfold.model import numa
from pinfold.model.host import ClaimView, NodeReport, NodeView

COMPUTE = "pinfold-compute"
_nodes, _services = (Base.metadata.tables[name] for name in ("nodes", "services"))


def is_up(service_down: float | sa.BindParameter[float]) -> sa.ColumnElement[bool]:
    """Of a Service row: heard of within ``service_down`` seconds, and not forced down."""
    return sa.and_(_services.c.last_seen_at > epoch() - service_down, sa.not_(_services.c.forced_down))


_IS_UP = sa.select(is_up(sa.bindparam("service_down", type_=sa.Double()))).where(
    _services.c.binary == COMPUTE, _services.c.host == sa.bindparam("host", type_=sa.String())
)
_NODE_BY_NAME = sa.select(Node).where(Node.name == sa.bindparam("name", type_=sa.String()))
_LOCKED_NODE = _NODE_BY_NAME.with_for_update()


def host_is_up(session: Session, host: str, service_down: float) -> bool:
    """Whether the worker of ``host`` is up. A host that never registered is not.

    ::

        SELECT (last_seen_at > now - :service_down AND NOT forced_down) FROM services
        WHERE binary = 'pinfold-compute' AND host = :host
    """
    return bool(quick.one(session, _IS_UP, host=host, service_down=service_down))


def of_machine(session: Session, host_id: str) -> str | None:
    """The host whose worker has registered with this machine's id."""
    query = sa.select(Service.host).where(Service.binary == COMPUTE, Service.host_id == host_id)
    return session.scalar(query.limit(1))


def worker(session: Session, host: str, *, lock: bool = False) -> Service | None:
    """The service record of the worker of ``host``."""
    query = sa.select(Service).where(Service.binary == COMPUTE, Service.host == host)
    return session.scalar(query.with_for_update() if lock else query)


def is_forced_down(session: Session, host: str) -> bool:
    """Whether an operator has said that nothing runs on ``host``."""
    service = worker(session, host)
    return service is not None and service.forced_down


def seen(session: Session, binary: str, host: str, incarnation: str, *, new_id: str) -> None:
    """Note that a conductor or an API lives."""
    changed = session.execute(
        sa.update(Service)
        .where(Service.binary == binary, Service.host == host)
        .values(last_seen_at=epoch(), incarnation=incarnation, ready=True)
    )
    if changed.rowcount == 0:  # type: ignore[attr-defined]
        session.execute(
            sa.insert(Service).values(
                id=new_id,
                binary=binary,
                host=host,
                incarnation=incarnation,
                ready=True,
                last_seen_at=epoch(),
                created_at=epoch(),
                disabled=False,
                forced_down=False,
            )
        )


def node_by_name(session: Session, name: str, *, lock: bool = False) -> Node | None:
    """The node, locked for this transaction if asked for. Its report is read when it is looked at."""
    node: Node | None = quick.one(session, _LOCKED_NODE if lock else _NODE_BY_NAME, name=name)
    return node


def save_node(session: Session, host: str, report: NodeReport, *, new_id: str) -> Node:
    """Write what a worker reports of a node; a new node starts at generation 0."""
    node = node_by_name(session, report.name, lock=True)
    if node is None:
        now = session.scalar(sa.select(epoch())) or 0.0
        node = Node(
            uuid=new_id,
            name=report.name,
            host=host,
            generation=0,
            taken_at=0,
            report=report,
            created_at=now,
            updated_at=now,
        )
        session.add(node)
    elif node.report != report or node.host != host:
        session.execute(
            sa.update(Node)
            .where(Node.id == node.id)
            .values(
                host=host,
                report=report,
                updated_at=epoch(),
                generation=node.generation + 1,
                taken_at=node.generation + 1,
            )
        )
        session.refresh(node)
    session.flush()
    return node


def touch(session: Session, hosts: Sequence[str]) -> None:
    """Something about these hosts has changed that is not in the rows of their nodes: news for the schedulers."""
    session.execute(sa.update(_nodes).where(_nodes.c.host.in_(hosts)).values(changed_at=epoch()))


def claim_view(claim: Claim) -> ClaimView:
    """A claim as workers and schedulers see it."""
    return ClaimView(
        id=claim.id,
        instance=claim.instance_id,
        role=claim.role,
        memory_mb=claim.memory_mb,
        disk_gb=claim.disk_gb,
        shared_vcpus=claim.shared_vcpus,
        placement=claim.placement,
        operation=claim.operation_id,
    )


def node_view(session: Session, node: Node) -> NodeView:
    """All claims of the node, at its generation."""
    claims = session.scalars(sa.select(Claim).where(Claim.node_id == node.id).order_by(Claim.id))
    return NodeView(node.name, node.generation, tuple(claim_view(claim) for claim in claims))


def lost_cpus(session: Session, node: Node, report: NodeReport) -> list[tuple[int, str]]:
    """CPUs that claims hold and that ``report`` no longer has as dedicated: (cpu, instance)."""
    dedicated = {cpu for cell in report.topology.cells for cpu in cell.dedicated}
    rows = session.execute(
        sa.select(Pin.cpu, Claim.instance_id)
        .join(Claim, Claim.id == Pin.claim_id)
        .where(Pin.node_id == node.id)
        .order_by(Pin.cpu)
    )
    return [(cpu, instance) for cpu, instance in rows if cpu not in dedicated]


def torn_claims(session: Session) -> list[str]:
    """Claims whose pins are not exactly the CPUs of their placement, as sentences: the audit's first look."""
    pins: dict[str, set[int]] = {}
    for claim_id, cpu in session.execute(sa.select(Pin.claim_id, Pin.cpu)):
        pins.setdefault(claim_id, set()).add(cpu)
    found = []
    for claim in session.scalars(sa.select(Claim)):
        cells = claim.placement.cells if claim.placement else ()
        wanted = {cpu for cell in cells for cpu in numa.held_cpus(cell)}
        if wanted != pins.get(claim.id, set()):
            found.append(
                f"claim {claim.id} of server {claim.instance_id}: its placement holds CPUs {sorted(wanted)}, "
                f"its pins are {sorted(pins.get(claim.id, set()))}"
            )
    return found


def owned_open(session: Session, host: str) -> list[Operation]:
    """Open operations that the worker of ``host`` has, or had in a former incarnation."""
    return list(
        session.scalars(
            sa.select(Operation).where(Operation.open_key.is_not(None), Operation.owner_host == host)
        )
    )
