"""Flavors in the book. A server keeps a copy of its flavor, so a flavor can go at any time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db.models import Base, FlavorAccess
from pinfold.db.session import may_be_done
from pinfold.db.types import epoch


class FlavorRow(msgspec.Struct, frozen=True):
    """A flavor."""

    flavorid: str
    name: str
    vcpus: int
    memory_mb: int
    root_gb: int
    ephemeral_gb: int
    swap_mb: int
    rxtx_factor: float
    is_public: bool
    disabled: bool
    description: str | None
    extra_specs: dict[str, str]


_flavors = Base.metadata.tables["flavors"]
_SELECT = sa.select(*(_flavors.c[name] for name in FlavorRow.__struct_fields__))
_GET = _SELECT.where(_flavors.c.flavorid == sa.bindparam("flavorid"))

SORTABLE: dict[str, sa.ColumnElement[Any]] = {
    "created_at": _flavors.c.created_at,
    "description": _flavors.c.description,
    "disabled": _flavors.c.disabled,
    "ephemeral_gb": _flavors.c.ephemeral_gb,
    "flavorid": _flavors.c.flavorid,
    "id": _flavors.c.id,
    "is_public": _flavors.c.is_public,
    "memory_mb": _flavors.c.memory_mb,
    "name": _flavors.c.name,
    "root_gb": _flavors.c.root_gb,
    "rxtx_factor": _flavors.c.rxtx_factor,
    "swap": _flavors.c.swap_mb,
    "vcpus": _flavors.c.vcpus,
}


def get(session: Session, flavorid: str) -> FlavorRow | None:
    """The flavor of this id."""
    row = session.execute(_GET, {"flavorid": flavorid}).first()
    return None if row is None else FlavorRow(*row)


def listed(
    session: Session,
    *,
    public: bool | None,
    min_disk: int,
    min_ram: int,
    sort: str,
    descends: bool,
    limit: int,
    after: str | None = None,
    project: str | None = None,
) -> list[FlavorRow] | None:
    """One page, after the flavor of id ``after``; None when there is no such flavor.

    Those that ``project`` has access to count as public.
    """
    key = SORTABLE[sort]
    key = sa.func.coalesce(key, "") if isinstance(key.type, sa.String) else key
    query = _SELECT.where(_flavors.c.root_gb >= min_disk, _flavors.c.memory_mb >= min_ram)
    if public is not None:
        seen = _flavors.c.is_public.is_(public)
        query = query.where(sa.or_(seen, _given_to(project)) if public and project else seen)
    if after is not None:
        marker = session.execute(sa.select(key, _flavors.c.id).where(_flavors.c.flavorid == after)).first()
        if marker is None:
            return None
        query = query.where(_later(key, descends, marker))
    order = [key.desc(), _flavors.c.id.desc()] if descends else [key.asc(), _flavors.c.id.asc()]
    return [FlavorRow(*row) for row in session.execute(query.order_by(*order).limit(limit))]


def _later(key: sa.ColumnElement[Any], descends: bool, marker: Sequence[Any]) -> sa.ColumnElement[bool]:
    value, number = marker
    if descends:
        return sa.or_(key < value, sa.and_(key == value, _flavors.c.id < number))
    return sa.or_(key > value, sa.and_(key == value, _flavors.c.id > number))


def _given_to(project: str) -> sa.ColumnElement[bool]:
    access = sa.select(FlavorAccess.flavor_id).where(FlavorAccess.project_id == project)
    return _flavors.c.id.in_(access)


def add(session: Session, flavor: FlavorRow, project: str) -> None:
    """Write a new flavor; one that is not public is for ``project``, to begin with.

    The database refuses an id or a name that is taken (DBDuplicateEntry).
    """
    if may_be_done(session) and _is_written(session, flavor):
        return
    values = {name: getattr(flavor, name) for name in FlavorRow.__struct_fields__}
    session.execute(sa.insert(_flavors).values(**values, created_at=epoch()))
    if not flavor.is_public:
        give(session, flavor.flavorid, project)


def _is_written(session: Session, flavor: FlavorRow) -> bool:
    written = get(session, flavor.flavorid)
    return written is not None and written.name == flavor.name


def access(session: Session, flavorid: str) -> list[str]:
    """The projects that may use it although it is not public."""
    rows = session.scalars(
        sa.select(FlavorAccess.project_id)
        .join(_flavors, _flavors.c.id == FlavorAccess.flavor_id)
        .where(_flavors.c.flavorid == flavorid)
        .order_by(FlavorAccess.project_id)
    )
    return list(rows)


def give(session: Session, flavorid: str, project: str) -> bool:
    """Let a project use it; whether it is there. The database refuses what is given already (DBDuplicateEntry)."""
    number = _number(session, flavorid, lock=True)
    if may_be_done(session) and project in access(session, flavorid):
        return True
    if number is not None:
        session.execute(sa.insert(FlavorAccess).values(flavor_id=number, project_id=project))
    return number is not None


def take_back(session: Session, flavorid: str, project: str) -> bool:
    """Let a project use it no more; whether it could."""
    number = _number(session, flavorid)
    gone = session.execute(
        sa.delete(FlavorAccess).where(FlavorAccess.flavor_id == number, FlavorAccess.project_id == project)
    )
    return bool(gone.rowcount) or may_be_done(session)  # type: ignore[attr-defined]


def _number(session: Session, flavorid: str, *, lock: bool = False) -> int | None:
    query = sa.select(_flavors.c.id).where(_flavors.c.flavorid == flavorid)
    number: int | None = session.scalar(query.with_for_update() if lock else query)
    return number


def delete(session: Session, flavorid: str) -> bool:
    """Remove it; whether it was there."""
    gone = session.execute(sa.delete(_flavors).where(_flavors.c.flavorid == flavorid))
    return bool(gone.rowcount) or may_be_done(session)  # type: ignore[attr-defined]


def describe(session: Session, flavorid: str, description: str | None) -> bool:
    """Change the description; whether it was there."""
    changed = session.execute(
        sa.update(_flavors).where(_flavors.c.flavorid == flavorid).values(description=description)
    )
    return bool(changed.rowcount)  # type: ignore[attr-defined]


def locked_specs(session: Session, flavorid: str) -> dict[str, str] | None:
    """Its extra specs, locked until the transaction ends."""
    specs: dict[str, str] | None = session.scalar(
        sa.select(_flavors.c.extra_specs).where(_flavors.c.flavorid == flavorid).with_for_update()
    )
    return specs


def set_specs(session: Session, flavorid: str, specs: dict[str, str]) -> None:
    """Replace its extra specs."""
    session.execute(sa.update(_flavors).where(_flavors.c.flavorid == flavorid).values(extra_specs=specs))
