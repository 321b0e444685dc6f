"""Operations as the API shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db.models import Base
from pinfold.db.types import epoch


class OperationRow(msgspec.Struct, frozen=True):
    """An operation; ``owner_project`` is its server's project, ``now`` the book's clock when it was read."""

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
    now: float


_operations = Base.metadata.tables["operations"]
_instances = Base.metadata.tables["instances"]
_SELECT = sa.select(
    *(_operations.c[name] for name in OperationRow.__struct_fields__[:-2]),
    _instances.c.project_id.label("owner_project"),
    epoch().label("now"),
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


class Tally(msgspec.Struct, frozen=True):
    """How many operations of a kind there are with a result (``running`` while open), and for those that have ended,
    how long they took: ``within`` has their number for each of ``DURATIONS``, ``seconds`` is the sum."""

    kind: str
    result: str
    count: int
    seconds: float
    within: tuple[int, ...]


DURATIONS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


def tallied(session: Session) -> list[Tally]:
    """A tally for each kind and result.

    ::

        SELECT kind, coalesce(result, 'running'), count(*), sum(ended_at - created_at),
               sum(CASE WHEN ended_at - created_at <= 0.1 THEN 1 ELSE 0 END), ...
        FROM operations GROUP BY kind, coalesce(result, 'running')
    """
    result = sa.func.coalesce(_operations.c.result, sa.literal_column("'running'"))
    took = _operations.c.ended_at - _operations.c.created_at
    rows = session.execute(
        sa.select(
            _operations.c.kind,
            result,
            sa.func.count(),
            sa.func.coalesce(sa.func.sum(took), 0.0),
            *(sa.func.sum(sa.case((took <= seconds, 1), else_=0)) for seconds in DURATIONS),
        ).group_by(_operations.c.kind, result)
    )
    return [
        Tally(kind, state, count, float(seconds), tuple(map(int, within)))
        for kind, state, count, seconds, *within in rows
    ]
