"""Claims and pins: the only place where what a node has used changes.

Each change raises the node's generation in the same transaction: a claim by compare-and-swap, anything else by
plain increment, with the node locked. What is compared is the generation at which something was last taken: a plan
still holds when others have only given back since.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db import quick
from pinfold.db.models import Base, Claim, Node, Pin
from pinfold.db.types import epoch
from pinfold.model import errors, numa
from pinfold.model.host import ClaimView
from pinfold.model.numa import Placement
from pinfold.model.rebuild import Sizes

INCOMING, CURRENT, OUTGOING, LEFTOVER = "incoming", "current", "outgoing", "leftover"


_OF_INSTANCE = (
    sa.select(Claim, Node)
    .join(Node, Node.id == Claim.node_id)
    .where(Claim.instance_id == sa.bindparam("instance", type_=sa.String()))
    .order_by(Node.id)
    .with_for_update(of=Node)
)
_claims = Base.metadata.tables["claims"]
_pins = Base.metadata.tables["pins"]
# Made now by the database's clock, but later than all others of its instance.
_NEWEST: sa.BindParameter[float] = sa.bindparam("newest", type_=sa.Double())
_INSERT = sa.insert(_claims).values(
    {column.name: sa.bindparam(column.name, type_=column.type) for column in _claims.c}
    | {"created_at": sa.case((epoch() > _NEWEST, epoch()), else_=_NEWEST + 0.001)}
)
_DELETE = sa.delete(_claims).where(_claims.c.id == sa.bindparam("claim", type_=sa.String()))


class StaleGeneration(errors.Conflict):
    """The node's claims have changed since this claim was planned: plan again."""

    code = "stale-generation"


def of_instance(session: Session, instance_id: str) -> list[tuple[Claim, Node]]:
    """The instance's claims, leftovers included, with their nodes locked, in order of the nodes' ids."""
    return [(claim, node) for claim, node in quick.every(session, _OF_INSTANCE, instance=instance_id)]


def placement_of(session: Session, instance_id: str) -> Placement | None:
    """Where on its node the instance is: by its current claim, or else the incoming one."""
    found = session.execute(
        sa.select(Claim.role, Claim.placement).where(
            Claim.instance_id == instance_id, Claim.slot.in_((CURRENT, INCOMING))
        )
    )
    places: dict[str, Placement | None] = {row[0]: row[1] for row in found}
    return places.get(CURRENT, places.get(INCOMING))


def holding(claims: Sequence[tuple[Claim, Node]]) -> list[tuple[Claim, Node]]:
    """Those that are no leftovers: what a delete means by "has a claim"."""
    return [(claim, node) for claim, node in claims if claim.role != LEFTOVER]


def with_role(claims: Sequence[tuple[Claim, Node]], role: str) -> tuple[Claim, Node] | None:
    """The claim of this role, if there is one."""
    for claim, node in claims:
        if claim.role == role:
            return claim, node
    return None


def take(
    session: Session, node: Node, generation: int, view: ClaimView, others: Sequence[tuple[Claim, Node]] = ()
) -> int:
    """Write a claim and its pins, planned on ``generation``; the new generation of its node, which is locked.

    It is younger than all ``others`` of its instance, also when the clock was set back: of two on one node, their
    order says which of two guests stays.

    Raises StaleGeneration, having changed nothing. The primary key of the pins is the last guard: should two
    claims ever get this far with one CPU, the database refuses the second.
    """
    if node.taken_at > generation:
        raise StaleGeneration(f"Node {node.name} is past generation {generation}.")
    node.generation += 1
    node.taken_at = node.generation
    quick.change(
        session,
        _INSERT,
        id=view.id,
        instance_id=view.instance,
        node_id=node.id,
        role=view.role,
        slot=view.role,
        operation_id=view.operation,
        memory_mb=view.memory_mb,
        disk_gb=view.disk_gb,
        shared_vcpus=view.shared_vcpus,
        placement=view.placement,
        newest=max((claim.created_at for claim, _ in others), default=0.0),
    )
    _pin(session, node.id, view.id, view.placement)
    return node.generation


def _pin(session: Session, node: int, claim: str, placement: Placement | None) -> None:
    cpus = [cpu for cell in (placement.cells if placement else ()) for cpu in sorted(numa.held_cpus(cell))]
    if cpus:
        values = {f"cpu_{number}": cpu for number, cpu in enumerate(cpus)}
        quick.change(session, _insert_pins(len(cpus)), node=node, claim=claim, **values)


@cache
def _insert_pins(count: int) -> sa.Insert:
    node, claim = sa.bindparam("node", type_=sa.BigInteger()), sa.bindparam("claim", type_=sa.String())
    cpus = [sa.bindparam(f"cpu_{number}", type_=sa.Integer()) for number in range(count)]
    return sa.insert(_pins).values([{"node_id": node, "cpu": cpu, "claim_id": claim} for cpu in cpus])


def free(session: Session, claim: Claim, node: Node) -> int:
    """Delete the claim and, with it, its pins; the new generation of its node, which is locked.

    Only on the word of the node's own worker, after it looked at the hypervisor. Raises errors.AccountingError,
    and with that undoes the transaction, when the claim is not there any more.
    """
    node.generation += 1
    gone = quick.change(session, _DELETE, claim=claim.id)
    session.expunge(claim)
    if gone != 1:
        raise errors.AccountingError(f"Claim {claim.id} was freed twice.")
    return node.generation


def change(session: Session, claim: Claim, node: Node, sizes: Sizes, generation: int | None = None) -> int:
    """Make the claim hold ``sizes`` instead; the new generation of its node, which is locked.

    ``generation`` is what this was planned on, if it was. Raises StaleGeneration, having changed nothing.
    """
    if generation is not None and node.generation != generation:
        raise StaleGeneration(f"Node {node.name} is past generation {generation}.")
    node.generation += 1
    node.taken_at = node.generation
    claim.memory_mb, claim.disk_gb = sizes.memory_mb, sizes.disk_gb
    claim.shared_vcpus, claim.placement = sizes.shared_vcpus, sizes.placement
    session.execute(
        sa.delete(Pin).where(Pin.claim_id == claim.id).execution_options(synchronize_session=False)
    )
    _pin(session, node.id, claim.id, sizes.placement)
    return node.generation


def sizes_of(claim: Claim) -> Sizes:
    """What a claim holds."""
    return Sizes(claim.memory_mb, claim.disk_gb, claim.shared_vcpus, claim.placement)


def set_role(claim: Claim, node: Node, role: str) -> int:
    """Give the claim another role; the new generation of its node, which is locked."""
    node.generation += 1
    claim.role = role
    claim.slot = None if role == LEFTOVER else role
    return node.generation
