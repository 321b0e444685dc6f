"""Which servers ran in a period, for accounts: also those that are deleted, until they are purged."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db.models import Base


class Ran(msgspec.Struct, frozen=True):
    """A server that has been launched. Times are seconds since 1970."""

    id: str
    project_id: str
    name: str
    vm_state: str
    flavor: dict[str, object]
    launched_at: float
    terminated_at: float | None


_instances = Base.metadata.tables["instances"]


def ran(
    session: Session, begin: float, end: float, project: str | None, limit: int, after: str | None
) -> list[Ran] | None:
    """A page of the servers that ran between the two, by project and id; None if there is no server ``after``.

    ::

        SELECT ... FROM instances WHERE launched_at < :end AND (terminated_at IS NULL OR terminated_at > :begin)
        ORDER BY project_id, id LIMIT :limit
    """
    columns = _instances.c
    query = (
        sa.select(*(columns[name] for name in Ran.__struct_fields__))
        .where(
            columns.launched_at < end, sa.or_(columns.terminated_at.is_(None), columns.terminated_at > begin)
        )
        .order_by(columns.project_id, columns.id)
        .limit(limit)
    )
    if project is not None:
        query = query.where(columns.project_id == project)
    if after is not None:
        of = session.scalar(sa.select(columns.project_id).where(columns.id == after))
        if of is None:
            return None
        query = query.where(
            sa.or_(columns.project_id > of, sa.and_(columns.project_id == of, columns.id > after))
        )
    return [Ran(*row) for row in session.execute(query)]
