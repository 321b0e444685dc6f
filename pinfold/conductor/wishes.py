"""What one placement of a server asks for beside its demand: put together anew each time, and stored nowhere.

What lasts is the server's: the zone that it is pinned to, its group, and its hints. What an operation was asked for
(a host, a node) or has learnt (nodes that failed) is the operation's, and ends with it.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db import claims, server_groups
from pinfold.db.models import Base, Claim, Instance, Node, Operation
from pinfold.model.placement import Wish

_instances = Base.metadata.tables["instances"]


def wish_for(session: Session, operation: Operation, server: Instance, *, same_host: bool = False) -> Wish:
    """What the next placement of ``server`` asks for. ``same_host``: a resize may leave it where it is."""
    same, different = _named(server, "same_host"), _named(server, "different_host")
    where = _whereabouts(session, server, same | different) if same or different else {}
    asked = operation.arguments
    return Wish(
        host=asked.get("host"),
        node=asked.get("node"),
        failed=tuple(asked.get("failed_nodes", ())),
        zone=server.availability_zone,
        same=_hosts(where, same) if _binds(operation, where, same) else None,
        different=_hosts(where, different),
        group=server_groups.rule_for(session, server.id) if "group" in server.hints else None,
        leaves=_present_nodes(session, server) if _leaves(operation, same_host) else frozenset(),
    )


def _leaves(operation: Operation, same_host: bool) -> bool:
    """Whether it has a place that it is not to have again; a server to be created or unshelved has none."""
    if operation.kind in ("create", "unshelve"):
        return False
    return not (same_host and operation.kind == "resize")


def _present_nodes(session: Session, server: Instance) -> frozenset[str]:
    """Where it has a guest, of a move that is not ended too: a server that has one is placed to be moved."""
    query = sa.select(Node.name).join(Claim, Claim.node_id == Node.id)
    there = Claim.slot.in_((claims.CURRENT, claims.OUTGOING))
    return frozenset(session.scalars(query.where(Claim.instance_id == server.id, there)))


def _named(server: Instance, hint: str) -> frozenset[str]:
    """The servers that a hint names: one id, or a list."""
    value: Any = server.hints.get(hint, ())
    return frozenset([value] if isinstance(value, str) else value)


def _binds(operation: Operation, where: dict[str, frozenset[str]], same: frozenset[str]) -> bool:
    """Once it runs, a server that was to be with others that are all gone may be anywhere."""
    return bool(same) and (operation.kind == "create" or not same.isdisjoint(where))


def _hosts(where: dict[str, frozenset[str]], servers: frozenset[str]) -> frozenset[str]:
    return frozenset().union(*(where.get(server, frozenset()) for server in servers))


def _whereabouts(session: Session, server: Instance, others: frozenset[str]) -> dict[str, frozenset[str]]:
    """The hosts of those of the servers that are not deleted and of the same project: others' are nobody's business.

    ::

        SELECT instances.id, nodes.host FROM instances LEFT JOIN claims ON ... AND role <> 'leftover'
        LEFT JOIN nodes ON ... WHERE instances.id IN (:others) AND deleted_at IS NULL AND project_id = :project
    """
    holds = sa.and_(Claim.instance_id == _instances.c.id, Claim.role != claims.LEFTOVER)
    rows = session.execute(
        sa.select(_instances.c.id, Node.host)
        .select_from(_instances)
        .outerjoin(Claim, holds)
        .outerjoin(Node, Node.id == Claim.node_id)
        .where(
            _instances.c.id.in_(others),
            _instances.c.deleted_at.is_(None),
            _instances.c.project_id == server.project_id,
        )
    )
    found: dict[str, frozenset[str]] = {}
    for other, host in rows:
        found[other] = found.get(other, frozenset()) | ({host} if host else frozenset())
    return found
