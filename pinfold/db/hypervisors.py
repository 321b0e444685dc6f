"""Nodes as hypervisors: what each has, what its claims use, and which servers are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db import claims, hosts
from pinfold.db.models import Base, Claim, Operation, Pin
from pinfold.db.types import json_number
from pinfold.model.host import NodeReport


class HypervisorRow(msgspec.Struct, frozen=True):
    """A node with its worker's service, and the sums of its claims."""

    number: int
    id: str
    name: str
    host: str
    report: NodeReport
    service: str
    up: bool
    disabled: bool
    disabled_reason: str | None
    memory_mb: int
    disk_gb: int
    shared_vcpus: int
    pinned_cpus: int
    servers: int
    operations: int


class OnHost(msgspec.Struct, frozen=True):
    """A server that holds a claim on ``node``."""

    node: int
    id: str
    name: str
    project_id: str
    vcpus: int
    memory_mb: int
    disk_gb: int


_nodes = Base.metadata.tables["nodes"]
_services = Base.metadata.tables["services"]
_instances = Base.metadata.tables["instances"]

_SUMS = (
    sa.select(
        Claim.node_id,
        sa.func.sum(Claim.memory_mb).label("memory_mb"),
        sa.func.sum(Claim.disk_gb).label("disk_gb"),
        sa.func.sum(Claim.shared_vcpus).label("shared_vcpus"),
        sa.func.count(
            sa.case((Claim.role != claims.LEFTOVER, Claim.instance_id), else_=None).distinct()
        ).label("servers"),
        sa.func.count(Operation.id.distinct()).label("operations"),
    )
    .outerjoin(Operation, Operation.open_key == Claim.instance_id)
    .group_by(Claim.node_id)
    .subquery("sums")
)
_PINS = sa.select(Pin.node_id, sa.func.count().label("cpus")).group_by(Pin.node_id).subquery("pinned")


def listed(
    session: Session,
    service_down: float,
    *,
    name_part: str | None = None,
    number: int | None = None,
    id_: str | None = None,
    host: str | None = None,
    after: int = 0,
    limit: int | None = None,
) -> list[HypervisorRow]:
    """A page of the nodes that have a worker, in order of their numbers: one statement.

    ::

        SELECT nodes.*, services.*, sums.*, pinned.* FROM nodes JOIN services ON host
        LEFT JOIN (SELECT node_id, sum(...) FROM claims GROUP BY node_id) AS sums ON node_id = nodes.id
        LEFT JOIN (SELECT node_id, count(*) FROM pins GROUP BY node_id) AS pinned ON node_id = nodes.id
    """
    query = (
        sa.select(
            _nodes.c.id,
            _nodes.c.uuid,
            _nodes.c.name,
            _nodes.c.host,
            _nodes.c.report,
            _services.c.id,
            sa.cast(hosts.is_up(service_down), sa.Integer),
            _services.c.disabled,
            _services.c.disabled_reason,
            *(
                sa.func.coalesce(column, 0)
                for column in (
                    _SUMS.c.memory_mb,
                    _SUMS.c.disk_gb,
                    _SUMS.c.shared_vcpus,
                    _PINS.c.cpus,
                    _SUMS.c.servers,
                    _SUMS.c.operations,
                )
            ),
        )
        .select_from(_nodes)
        .join(_services, sa.and_(_services.c.binary == hosts.COMPUTE, _services.c.host == _nodes.c.host))
        .outerjoin(_SUMS, _SUMS.c.node_id == _nodes.c.id)
        .outerjoin(_PINS, _PINS.c.node_id == _nodes.c.id)
        .where(_nodes.c.id > after)
        .order_by(_nodes.c.id)
        .limit(limit)
    )
    if name_part is not None:
        query = query.where(_nodes.c.name.contains(name_part, autoescape=True))
    for column, value in ((_nodes.c.id, number), (_nodes.c.uuid, id_), (_nodes.c.host, host)):
        if value is not None:
            query = query.where(column == value)
    return [_row(row) for row in session.execute(query)]


def _row(row: Sequence[Any]) -> HypervisorRow:
    up, disabled, reason, *sums = row[6:]
    fields: list[Any] = [*row[:6], bool(up), bool(disabled), reason, *map(int, sums)]
    return HypervisorRow(*fields)


def number_of(session: Session, id_: str) -> int | None:
    """The number of the node of this UUID."""
    number: int | None = session.scalar(sa.select(_nodes.c.id).where(_nodes.c.uuid == id_))
    return number


def servers_on(session: Session, nodes: Iterable[int]) -> list[OnHost]:
    """The servers with claims (leftovers apart) on these nodes, each once for each node: one statement."""
    flavor = _instances.c.flavor
    rows = session.execute(
        sa.select(
            Claim.node_id,
            _instances.c.id,
            _instances.c.name,
            _instances.c.project_id,
            json_number(flavor, "vcpus"),
            json_number(flavor, "memory_mb"),
            json_number(flavor, "root_gb") + json_number(flavor, "ephemeral_gb"),
        )
        .join(_instances, _instances.c.id == Claim.instance_id)
        .where(Claim.node_id.in_(list(nodes)), Claim.role != claims.LEFTOVER)
        .order_by(_instances.c.created_at, _instances.c.id)
    )
    return list(dict.fromkeys(OnHost(*row) for row in rows))
