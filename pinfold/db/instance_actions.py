"""What was done with a server, request by request: operations as the compute API's instance actions."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db.models import Base


class ActionRow(msgspec.Struct, frozen=True):
    """An operation. ``log`` has a record for each step that was tried. Times are seconds since 1970."""

    kind: str
    result: str | None
    error: str | None
    log: list[dict[str, Any]]
    request_id: str
    project_id: str
    user_id: str
    created_at: float
    updated_at: float


class Owner(msgspec.Struct, frozen=True):
    """Whose server it is, and whether it is deleted."""

    project_id: str
    deleted: bool


_operations = Base.metadata.tables["operations"]
_instances = Base.metadata.tables["instances"]
_SELECT = sa.select(*(_operations.c[name] for name in ActionRow.__struct_fields__))


def owner(session: Session, server: str) -> Owner | None:
    """Of a server that is, or was."""
    columns = _instances.c
    row = session.execute(
        sa.select(columns.project_id, columns.deleted_at.is_not(None)).where(columns.id == server)
    ).first()
    return None if row is None else Owner(row[0], bool(row[1]))


def listed(
    session: Session,
    server: str,
    *,
    limit: int | None = None,
    after: str | None = None,
    since: float | None = None,
    before: float | None = None,
) -> list[ActionRow] | None:
    """A page of a server's actions, newest first, after that of request ``after``; None if there is none of it."""
    columns = _operations.c
    query = _SELECT.where(columns.instance_id == server)
    if after is not None:
        marker = session.execute(
            sa.select(columns.created_at, columns.id)
            .where(columns.instance_id == server, columns.request_id == after)
            .order_by(columns.created_at)
        ).first()
        if marker is None:
            return None
        at, id_ = marker
        query = query.where(
            sa.or_(columns.created_at < at, sa.and_(columns.created_at == at, columns.id < id_))
        )
    if since is not None:
        query = query.where(columns.updated_at >= since)
    if before is not None:
        query = query.where(columns.updated_at <= before)
    query = query.order_by(columns.created_at.desc(), columns.id.desc()).limit(limit)
    return [ActionRow(*row) for row in session.execute(query)]


def get(session: Session, server: str, request_id: str) -> ActionRow | None:
    """What one request did with a server."""
    query = _SELECT.where(_operations.c.instance_id == server, _operations.c.request_id == request_id)
    row = session.execute(query.order_by(_operations.c.created_at.desc())).first()
    return None if row is None else ActionRow(*row)
