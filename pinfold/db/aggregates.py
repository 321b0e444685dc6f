"""Aggregates of hosts, and the zones that some of them are."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db import hosts
from pinfold.db.models import Aggregate, AggregateHost, Base, Claim, Node
from pinfold.db.session import may_be_done
from pinfold.db.types import epoch


class AggregateRow(msgspec.Struct, frozen=True):
    """An aggregate with its hosts by name. Times are seconds since 1970."""

    id: int
    uuid: str
    name: str
    availability_zone: str | None
    meta: dict[str, str]
    created_at: float
    updated_at: float | None
    hosts: tuple[str, ...] = ()


_aggregates = Base.metadata.tables["aggregates"]
_hosts = Base.metadata.tables["aggregate_hosts"]

# host, zone: of hosts that are in an aggregate with a zone; all such aggregates of a host name the same one
zones = (
    sa.select(_hosts.c.host, sa.func.min(_aggregates.c.availability_zone).label("zone"))
    .select_from(_hosts.join(_aggregates, _aggregates.c.id == _hosts.c.aggregate_id))
    .where(_aggregates.c.availability_zone.is_not(None))
    .group_by(_hosts.c.host)
    .subquery("zones")
)


def zone_of_node(host: sa.ColumnElement[str]) -> sa.ScalarSelect[str | None]:
    """The same for the host of one row, where few rows are looked at."""
    return (
        sa.select(sa.func.min(_aggregates.c.availability_zone))
        .select_from(_hosts.join(_aggregates, _aggregates.c.id == _hosts.c.aggregate_id))
        .where(_hosts.c.host == host)
        .scalar_subquery()
    )


_COLUMNS = [_aggregates.c[name] for name in AggregateRow.__struct_fields__ if name != "hosts"]


def zone_of(session: Session, host: str) -> str | None:
    """The zone of a host; None for one that is in the default zone."""
    zone: str | None = session.scalar(sa.select(zones.c.zone).where(zones.c.host == host))
    return zone


def listed(session: Session, aggregate: int | None = None) -> list[AggregateRow]:
    """All aggregates, or the one of this id, with their hosts: one statement."""
    where = sa.true() if aggregate is None else _aggregates.c.id == aggregate
    rows = session.execute(
        sa.select(*_COLUMNS, AggregateHost.host)
        .select_from(_aggregates)
        .outerjoin(AggregateHost, AggregateHost.aggregate_id == _aggregates.c.id)
        .where(where)
        .order_by(_aggregates.c.id, AggregateHost.host)
    )
    found: dict[int, AggregateRow] = {}
    for *fields, host in rows:
        row = found.get(fields[0]) or AggregateRow(*fields)
        hosts = (*row.hosts, host) if host is not None else row.hosts
        found[row.id] = msgspec.structs.replace(row, hosts=hosts)
    return list(found.values())


def add(session: Session, uuid: str, name: str, zone: str | None) -> AggregateRow:
    """A new aggregate. The database refuses a name that is taken (DBDuplicateEntry)."""
    if may_be_done(session):
        written = session.scalar(sa.select(Aggregate).where(Aggregate.uuid == uuid))
        if written is not None:
            return AggregateRow(written.id, uuid, name, zone, {}, written.created_at, None)
    now = session.scalar(sa.select(epoch())) or 0.0
    row = Aggregate(uuid=uuid, name=name, availability_zone=zone, meta={}, created_at=now)
    session.add(row)
    session.flush()
    return AggregateRow(row.id, uuid, name, zone, {}, now, None)


def locked(session: Session, aggregate: int) -> Aggregate | None:
    """The aggregate, after a lock on all of them: zones are compared across aggregates, and change seldom.

    ::

        SELECT id FROM aggregates ORDER BY id FOR UPDATE
    """
    rows = session.scalars(sa.select(Aggregate).order_by(Aggregate.id).with_for_update()).all()
    return next((row for row in rows if row.id == aggregate), None)


def hosts_of(session: Session, aggregate: int) -> list[str]:
    """The hosts in an aggregate."""
    return list(session.scalars(sa.select(AggregateHost.host).where(AggregateHost.aggregate_id == aggregate)))


def other_zones(session: Session, hosts: list[str], aggregate: int) -> dict[str, str]:
    """The zone of each of the hosts by other aggregates than this one."""
    rows = session.execute(
        sa.select(AggregateHost.host, Aggregate.availability_zone)
        .join(Aggregate, Aggregate.id == AggregateHost.aggregate_id)
        .where(
            AggregateHost.host.in_(hosts),
            Aggregate.availability_zone.is_not(None),
            Aggregate.id != aggregate,
        )
    )
    return {host: zone for host, zone in rows if zone is not None}


def servers_on(session: Session, hosts: list[str]) -> int:
    """How many servers hold a claim on these hosts, whose nodes are locked: none is placed there meanwhile."""
    nodes = session.scalars(
        sa.select(Node.id).where(Node.host.in_(hosts)).order_by(Node.id).with_for_update()
    ).all()
    query = sa.select(sa.func.count(Claim.instance_id.distinct())).where(Claim.node_id.in_(nodes))
    return session.scalar(query) or 0


def update(session: Session, aggregate: int, values: dict[str, Any]) -> None:
    """Change name, zone or metadata. The database refuses a name that is taken (DBDuplicateEntry)."""
    session.execute(
        sa.update(_aggregates).where(_aggregates.c.id == aggregate).values(**values, updated_at=epoch())
    )
    if "availability_zone" in values:
        hosts.touch(session, hosts_of(session, aggregate))


def add_host(session: Session, aggregate: int, host: str) -> None:
    """Put a host into it. The database refuses one that is there already (DBDuplicateEntry)."""
    session.execute(sa.insert(AggregateHost).values(aggregate_id=aggregate, host=host))
    hosts.touch(session, [host])


def remove_host(session: Session, aggregate: int, host: str) -> bool:
    """Take a host out of it; whether it was there."""
    gone = session.execute(
        sa.delete(AggregateHost).where(AggregateHost.aggregate_id == aggregate, AggregateHost.host == host)
    )
    hosts.touch(session, [host])
    return bool(gone.rowcount)  # type: ignore[attr-defined]


def forget_host(session: Session, host: str) -> None:
    """Take a host out of all aggregates."""
    session.execute(sa.delete(AggregateHost).where(AggregateHost.host == host))


def delete(session: Session, aggregate: int) -> bool:
    """Remove it; whether it was there."""
    gone = session.execute(sa.delete(_aggregates).where(_aggregates.c.id == aggregate))
    return bool(gone.rowcount)  # type: ignore[attr-defined]
