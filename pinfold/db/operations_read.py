"""Operations as the API shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db.models import Base


class OperationRow(msgspec.Struct, frozen=True):
    """An operation; ``owner_project`` is its server's project."""

    id: str
    kind: str
    instance_id: str
    step: str | None
    task_state: str | None
    attempt: int
    owner_host: str | None
    deadline_at: float
    left_leftover: bool
    result: str | None
    error: str | None
    targets: list[str]
    refusals: list[dict[str, Any]]
    log: list[dict[str, Any]]
    request_id: str
    project_id: str
    user_id: str
    created_at: float
    updated_at: float
    ended_at: float | None
    owner_project: str


_operations = Base.metadata.tables["operations"]
_instances = Base.metadata.tables["instances"]
_SELECT = sa.select(
    *(_operations.c[name] for name in OperationRow.__struct_fields__[:-1]),
    _instances.c.project_id.label("owner_project"),
).join_from(_operations, _instances, _instances.c.id == _operations.c.instance_id)


def of_server(session: Session, server: str, limit: int) -> list[OperationRow]:
    """The operations of a server, newest first."""
    query = _SELECT.where(_operations.c.instance_id == server)
    query = query.order_by(_operations.c.created_at.desc(), _operations.c.id.desc()).limit(limit)
    return [_row(row) for row in session.execute(query)]


def get(session: Session, operation: str) -> OperationRow | None:
    """The operation of this id."""
    row = session.execute(_SELECT.where(_operations.c.id == operation)).first()
    return None if row is None else _row(row)


def _row(row: Sequence[Any]) -> OperationRow:
    return OperationRow(*row)


def counted(session: Session) -> list[tuple[str, str, int]]:
    """How many operations there are of each kind and result (``running`` while open)."""
    result = sa.func.coalesce(_operations.c.result, "running")
    rows = session.execute(
        sa.select(_operations.c.kind, result, sa.func.count()).group_by(_operations.c.kind, result)
    )
    return [(kind, state, count) for kind, state, count in rows]
