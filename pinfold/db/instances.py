"""Servers as the API reads them: one statement for one server or for a list, however long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from pinfold.db import claims, hosts, quick
from pinfold.db.aggregates import zones
from pinfold.db.models import Base
from pinfold.db.session import Book, may_be_done
from pinfold.db.types import epoch
from pinfold.model import states


class Server(msgspec.Struct, frozen=True):
    """A server with what stands elsewhere in the book: where it is, and what is being done with it.

    Times are seconds since 1970. The host is that of its current claim, or else of the incoming one; ``zone`` is the
    zone of that host, where it is not the default zone.
    """

    id: str
    project_id: str
    user_id: str
    name: str
    hostname: str
    reservation_id: str
    launch_index: int
    vm_state: str
    power_state: int
    created_at: float
    updated_at: float
    launched_at: float | None
    terminated_at: float | None
    deleted_at: float | None
    image_ref: str
    image_properties: dict[str, str]
    flavor: dict[str, Any]
    meta: dict[str, str]
    tags: list[str]
    hints: dict[str, Any]
    description: str | None
    key_name: str | None
    availability_zone: str | None
    config_drive: str
    user_data: str | None
    disk_config: str
    access_ip_v4: str
    access_ip_v6: str
    locked_by: str | None
    locked_reason: str | None
    fault: dict[str, Any] | None
    task_state: str | None
    host: str | None
    node: str | None
    host_disabled: bool | None
    host_forced_down: bool | None
    host_seen_at: float | None
    zone: str | None
    group_id: str | None
    now: float


class Brief(msgspec.Struct, frozen=True):
    """A server in a list without details."""

    id: str
    name: str


class Owned(msgspec.Struct, frozen=True):
    """What must be known of a server before an action on it is allowed."""

    id: str
    project_id: str
    user_id: str
    name: str
    vm_state: str
    image_ref: str
    locked_by: str | None
    availability_zone: str | None


_tables = Base.metadata.tables
_instances = _tables["instances"]
_nodes = _tables["nodes"]
_services = _tables["services"]
_operations = _tables["operations"]
_members = _tables["server_group_members"]
_current = _tables["claims"].alias("current_claim")
_incoming = _tables["claims"].alias("incoming_claim")

_OF_INSTANCE = [name for name in Server.__struct_fields__ if name in _instances.c]
_COLUMNS: dict[str, sa.ColumnElement[Any]] = {
    **{name: _instances.c[name] for name in _OF_INSTANCE},
    "task_state": _operations.c.task_state,
    "host": _nodes.c.host,
    "node": _nodes.c.name.label("node"),
    "host_disabled": _services.c.disabled,
    "host_forced_down": _services.c.forced_down,
    "host_seen_at": _services.c.last_seen_at,
    "zone": zones.c.zone,
    "group_id": _members.c.group_id,
    "now": epoch().label("now"),
}
_FROM = (
    _instances.outerjoin(
        _current,
        sa.and_(_current.c.instance_id == _instances.c.id, _current.c.slot == claims.CURRENT),
    )
    .outerjoin(
        _incoming,
        sa.and_(_incoming.c.instance_id == _instances.c.id, _incoming.c.slot == claims.INCOMING),
    )
    .outerjoin(_nodes, _nodes.c.id == sa.func.coalesce(_current.c.node_id, _incoming.c.node_id))
    .outerjoin(_services, sa.and_(_services.c.binary == hosts.COMPUTE, _services.c.host == _nodes.c.host))
    .outerjoin(_operations, _operations.c.open_key == _instances.c.id)
    .outerjoin(zones, zones.c.host == _nodes.c.host)
    .outerjoin(_members, _members.c.instance_id == _instances.c.id)
)
_SERVER = sa.select(*(_COLUMNS[name] for name in Server.__struct_fields__)).select_from(_FROM)
_BRIEF = sa.select(_instances.c.id, _instances.c.name).select_from(_FROM)

_ALIVE = _instances.c.deleted_at.is_(None)
_SHOW = _SERVER.where(_instances.c.id == sa.bindparam("server"), _ALIVE)
_OWNED_EVER = sa.select(*(_instances.c[name] for name in Owned.__struct_fields__)).where(
    _instances.c.id == sa.bindparam("server")
)
_OWNED = _OWNED_EVER.where(_ALIVE)
_OWNER_EVER = sa.select(_instances.c.project_id).where(_instances.c.id == sa.bindparam("server"))


class position(FunctionElement[int]):
    """Where the second text begins in the first, from 1; 0 when it is not in it. Case counts, unlike with LIKE."""

    type = sa.Integer()
    inherit_cache = True


@compiles(position, "postgresql")
def _strpos(element: position, compiler: SQLCompiler, **kw: Any) -> str:
    return f"strpos({compiler.process(element.clauses, **kw)})"


@compiles(position)
def _instr(element: position, compiler: SQLCompiler, **kw: Any) -> str:
    return f"instr({compiler.process(element.clauses, **kw)})"


def show(session: Session, server: str) -> Server | None:
    """A server that is not deleted.

    ::

        SELECT instances.*, operations.task_state, nodes.host, nodes.name, services..., zone, group_id, <clock>
        FROM instances
        LEFT JOIN claims AS current_claim ON current_claim.instance_id = instances.id AND slot = 'current'
        LEFT JOIN claims AS incoming_claim ON incoming_claim.instance_id = instances.id AND slot = 'incoming'
        LEFT JOIN nodes ON nodes.id = coalesce(current_claim.node_id, incoming_claim.node_id)
        LEFT JOIN services ON services.binary = 'pinfold-compute' AND services.host = nodes.host
        LEFT JOIN operations ON operations.open_key = instances.id
        LEFT JOIN (<zones>) AS zones ON zones.host = nodes.host
        LEFT JOIN server_group_members ON server_group_members.instance_id = instances.id
        WHERE instances.id = :server AND deleted_at IS NULL
    """
    row = quick.first(session, _SHOW, server=server)
    return None if row is None else Server(*row)


def show_now(book: Book, server: str) -> Server | None:
    """As ``show``, by itself: the most frequent question of all."""
    for row in book.rows(_SHOW, server=server):
        return Server(*row)
    return None


def owned(session: Session, server: str) -> Owned | None:
    """What must be known before an action; None for one that is deleted or never was.

    One that is deleted is there for a transaction that may have deleted it.
    """
    query = _OWNED_EVER if may_be_done(session) else _OWNED
    row = quick.first(session, query, server=server)
    return None if row is None else Owned(*row)


def project_ever(session: Session, server: str) -> str | None:
    """The project of a server, which may be deleted."""
    project: str | None = session.execute(_OWNER_EVER, {"server": server}).scalar()
    return project


class Filters(msgspec.Struct, frozen=True):
    """Which servers to list. ``states`` are (vm_state, task states or None for any); ``equal`` maps names of
    SORTABLE or FILTERABLE columns to the values allowed; ``zones`` are those of hosts, None for the default zone;
    ``deleted`` None means both, and ``soft_deleted`` None that soft-deleted ones count as deleted."""

    project: str | None = None
    deleted: bool | None = False
    soft_deleted: bool | None = None
    changed_since: float | None = None
    changed_before: float | None = None
    name_part: str | None = None
    name_regex: str | None = None
    states: tuple[tuple[str, tuple[str | None, ...] | None], ...] | None = None
    equal: dict[str, tuple[Any, ...]] = {}
    zones: tuple[str | None, ...] = ()
    flavor: str | None = None
    locked: bool | None = None
    tags_all: tuple[str, ...] = ()
    tags_any: tuple[str, ...] = ()
    tags_not_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()
    nothing: bool = False


# What clients may sort by, and filter by: the API's name, and its column.
SORTABLE: dict[str, sa.ColumnElement[Any]] = {
    "access_ip_v4": _instances.c.access_ip_v4,
    "access_ip_v6": _instances.c.access_ip_v6,
    "auto_disk_config": _instances.c.disk_config,
    "availability_zone": zones.c.zone,
    "config_drive": _instances.c.config_drive,
    "created_at": _instances.c.created_at,
    "display_description": _instances.c.description,
    "display_name": _instances.c.name,
    "host": _nodes.c.host,
    "hostname": _instances.c.hostname,
    "image_ref": _instances.c.image_ref,
    "key_name": _instances.c.key_name,
    "launch_index": _instances.c.launch_index,
    "launched_at": _instances.c.launched_at,
    "locked_by": _instances.c.locked_by,
    "node": _nodes.c.name,
    "power_state": _instances.c.power_state,
    "project_id": _instances.c.project_id,
    "task_state": _operations.c.task_state,
    "terminated_at": _instances.c.terminated_at,
    "updated_at": _instances.c.updated_at,
    "user_id": _instances.c.user_id,
    "uuid": _instances.c.id,
    "vm_state": _instances.c.vm_state,
}
FILTERABLE: dict[str, sa.ColumnElement[Any]] = {**SORTABLE, "reservation_id": _instances.c.reservation_id}

Sort = Sequence[tuple[str, bool]]
"""Names of SORTABLE with whether they descend; the id is always the last."""


def listed(
    session: Session, filters: Filters, sort: Sort, limit: int, after: Sequence[Any] | None = None
) -> list[Server]:
    """One page of servers, after the one whose ``sort_values`` are given."""
    rows = session.execute(_page(_SERVER, filters, sort, limit, after))
    return [Server(*row) for row in rows]


def listed_briefly(
    session: Session, filters: Filters, sort: Sort, limit: int, after: Sequence[Any] | None = None
) -> list[Brief]:
    """As ``listed``, with ids and names only."""
    rows = session.execute(_page(_BRIEF, filters, sort, limit, after))
    return [Brief(*row) for row in rows]


def sort_values(session: Session, server: str, project: str | None, sort: Sort) -> Sequence[Any] | None:
    """Where a server (deleted ones too) stands in the order; None when the project has no such server."""
    query = sa.select(*_keys(sort)).select_from(_FROM).where(_instances.c.id == server)
    if project is not None:
        query = query.where(_instances.c.project_id == project)
    row = session.execute(query).first()
    return None if row is None else tuple(row)


def _keys(sort: Sort) -> list[sa.ColumnElement[Any]]:
    keys = []
    for name, _ in sort:
        column = SORTABLE[name]
        # one that is never null has an index in its order
        if not (isinstance(column, sa.Column) and column.table is _instances and not column.nullable):
            # nulls sort first and compare as any other value, on every database
            empty = "" if isinstance(column.type, sa.String) else 0
            column = sa.func.coalesce(column, empty)
        keys.append(column)
    return [*keys, _instances.c.id]


def _page(
    query: sa.Select[Any], filters: Filters, sort: Sort, limit: int, after: Sequence[Any] | None
) -> sa.Select[Any]:
    keys = _keys(sort)
    descends = [down for _, down in sort]
    directions = [*descends, descends[-1] if descends else True]
    query = query.where(*_conditions(filters))
    if after is not None:
        query = query.where(_later(keys, directions, after))
    order = [key.desc() if down else key.asc() for key, down in zip(keys, directions, strict=True)]
    return query.order_by(*order).limit(limit)


def _later(
    keys: Sequence[sa.ColumnElement[Any]], directions: Sequence[bool], values: Sequence[Any]
) -> sa.ColumnElement[bool]:
    """``(a, b, c)`` stands after ``values``: a beyond, or a equal and b beyond, or ..."""
    beyond = [
        key < value if down else key > value
        for key, down, value in zip(keys, directions, values, strict=True)
    ]
    return sa.or_(
        *(
            sa.and_(*(key == value for key, value in zip(keys[:n], values[:n], strict=True)), beyond[n])
            for n in range(len(keys))
        )
    )


def _conditions(filters: Filters) -> list[sa.ColumnElement[bool]]:
    columns = _instances.c
    found: list[sa.ColumnElement[bool]] = []
    if filters.nothing:
        found.append(sa.false())
    if filters.project is not None:
        found.append(columns.project_id == filters.project)
    if filters.deleted is not None:
        found.append(_deleted(filters))
    if filters.changed_since is not None:
        found.append(columns.updated_at >= filters.changed_since)
    if filters.changed_before is not None:
        found.append(columns.updated_at <= filters.changed_before)
    if filters.name_part is not None:
        found.append(position(columns.name, filters.name_part) > 0)
    if filters.name_regex is not None:
        found.append(columns.name.regexp_match(filters.name_regex))
    if filters.states is not None:
        found.append(sa.or_(sa.false(), *(_state(vm, tasks) for vm, tasks in filters.states)))
    for name, values in filters.equal.items():
        found.append(FILTERABLE[name].in_(values))
    if filters.flavor is not None:
        found.append(position(_text(columns.flavor), f'{{"flavorid":{_json(filters.flavor)}') == 1)
    if filters.locked is not None:
        found.append(columns.locked_by.is_not(None) if filters.locked else columns.locked_by.is_(None))
    found += _zone_conditions(filters) + _tag_conditions(filters)
    return found + [_has_meta(key, value) for key, value in filters.metadata]


def _deleted(filters: Filters) -> sa.ColumnElement[bool]:
    """Soft-deleted servers are deleted as their users see it, unless they are asked for."""
    gone = _instances.c.deleted_at.is_not(None)
    soft = _instances.c.vm_state == states.SOFT_DELETED
    if filters.deleted:
        return gone if filters.soft_deleted is False else sa.or_(gone, soft)
    asked_for = any(vm_state == states.SOFT_DELETED for vm_state, _ in filters.states or ())
    return _ALIVE if filters.soft_deleted or asked_for else sa.and_(_ALIVE, sa.not_(soft))


def _zone_conditions(filters: Filters) -> list[sa.ColumnElement[bool]]:
    if not filters.zones:
        return []
    named = zones.c.zone.in_([zone for zone in filters.zones if zone is not None])
    default = sa.and_(_nodes.c.host.is_not(None), zones.c.zone.is_(None))
    return [sa.or_(named, default) if None in filters.zones else named]


def _state(vm_state: str, tasks: tuple[str | None, ...] | None) -> sa.ColumnElement[bool]:
    vm = _instances.c.vm_state == vm_state
    if tasks is None:
        return vm
    task = _operations.c.task_state
    named = [name for name in tasks if name is not None]
    allowed = task.in_(named)
    return sa.and_(vm, sa.or_(allowed, task.is_(None)) if None in tasks else allowed)


def _tag_conditions(filters: Filters) -> list[sa.ColumnElement[bool]]:
    found = [_has_tag(tag) for tag in filters.tags_all]
    if filters.tags_any:
        found.append(sa.or_(*map(_has_tag, filters.tags_any)))
    if filters.tags_not_all:
        found.append(sa.not_(sa.and_(*map(_has_tag, filters.tags_not_all))))
    if filters.tags_none:
        found.append(sa.not_(sa.or_(*map(_has_tag, filters.tags_none))))
    return found


def _has_tag(tag: str) -> sa.ColumnElement[bool]:
    """Tags are a JSON list of texts without commas, so each stands after ``[`` or ``,``."""
    tags, text = _text(_instances.c.tags), _json(tag)
    return sa.or_(position(tags, f"[{text}") == 1, position(tags, f",{text}") > 0)


def _has_meta(key: str, value: str) -> sa.ColumnElement[bool]:
    """Quotes inside a JSON text are escaped, so ``,"key":"value"`` is no part of another item."""
    meta, text = _text(_instances.c.meta), f"{_json(key)}:{_json(value)}"
    return sa.or_(position(meta, f"{{{text}") == 1, position(meta, f",{text}") > 0)


def _text(column: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
    """A JSON column as the text that it is."""
    return sa.type_coerce(column, sa.Text)


def _json(value: str) -> str:
    return msgspec.json.encode(value).decode()


def update(session: Session, server: str, values: dict[str, Any]) -> bool:
    """Set plain fields (name, description, hostname, addresses, zone); whether it is there."""
    changed = session.execute(
        sa.update(_instances).where(_instances.c.id == server, _ALIVE).values(**values, updated_at=epoch())
    )
    return bool(changed.rowcount)  # type: ignore[attr-defined]


def locked_meta(session: Session, server: str) -> dict[str, str]:
    """The metadata of a server, locked until the transaction ends."""
    meta: dict[str, str] | None = session.scalar(
        sa.select(_instances.c.meta).where(_instances.c.id == server, _ALIVE).with_for_update()
    )
    return meta or {}


def locked_tags(session: Session, server: str) -> list[str]:
    """The tags of a server, locked until the transaction ends."""
    tags: list[str] | None = session.scalar(
        sa.select(_instances.c.tags).where(_instances.c.id == server, _ALIVE).with_for_update()
    )
    return tags or []


def knows_host(session: Session, host: str) -> bool:
    """Whether a worker of this host, with a node, has ever registered."""
    return session.scalar(sa.select(_nodes.c.id).where(_nodes.c.host == host).limit(1)) is not None


def host_of_node(session: Session, node: str) -> str | None:
    """The host of a node."""
    host: str | None = session.scalar(sa.select(_nodes.c.host).where(_nodes.c.name == node))
    return host
