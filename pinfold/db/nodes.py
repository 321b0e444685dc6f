"""Nodes with their claims and pins, as the API shows them."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db import hosts
from pinfold.db.models import Base, Claim, Pin, Service
from pinfold.model.host import ClaimView, NodeReport


class NodeRow(msgspec.Struct, frozen=True):
    """A node, its claims, and who holds each pinned CPU (``pins``: cpu to instance id)."""

    name: str
    host: str
    generation: int
    up: bool
    report: NodeReport
    claims: tuple[ClaimView, ...]
    pins: dict[int, str]


_nodes = Base.metadata.tables["nodes"]


def listed(session: Session, service_down: float, name: str | None = None) -> list[NodeRow]:
    """All nodes in order of their names, or the one of that name: three statements, however many. In a snapshot."""
    where = sa.true() if name is None else _nodes.c.name == name
    rows = session.execute(
        sa.select(
            _nodes.c.id,
            _nodes.c.name,
            _nodes.c.host,
            _nodes.c.generation,
            _nodes.c.report,
            sa.func.coalesce(sa.cast(hosts.is_up(service_down), sa.Integer), 0),
        )
        .select_from(_nodes)
        .outerjoin(Service, sa.and_(Service.binary == hosts.COMPUTE, Service.host == _nodes.c.host))
        .where(where)
        .order_by(_nodes.c.name)
    ).all()
    claims, pins = _claims(session, where), _pins(session, where)
    return [
        NodeRow(
            name=node_name,
            host=host,
            generation=generation,
            up=bool(up),
            report=report,
            claims=tuple(claims.get(id_, ())),
            pins=pins.get(id_, {}),
        )
        for id_, node_name, host, generation, report, up in rows
    ]


def _claims(session: Session, where: sa.ColumnElement[bool]) -> dict[int, list[ClaimView]]:
    found: dict[int, list[ClaimView]] = {}
    query = sa.select(Claim).join(_nodes, _nodes.c.id == Claim.node_id).where(where)
    for claim in session.scalars(query.order_by(Claim.created_at, Claim.id)):
        found.setdefault(claim.node_id, []).append(hosts.claim_view(claim))
    return found


def _pins(session: Session, where: sa.ColumnElement[bool]) -> dict[int, dict[int, str]]:
    found: dict[int, dict[int, str]] = {}
    rows: Any = session.execute(
        sa.select(Pin.node_id, Pin.cpu, Claim.instance_id)
        .join(Claim, Claim.id == Pin.claim_id)
        .join(_nodes, _nodes.c.id == Pin.node_id)
        .where(where)
        .order_by(Pin.node_id, Pin.cpu)
    )
    for node, cpu, instance in rows:
        found.setdefault(node, {})[cpu] = instance
    return found
