"""Removes what is deleted for long enough: in small batches, each a transaction, so that nothing waits."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db.models import Claim, Instance, Operation
from pinfold.db.session import Book
from pinfold.db.types import epoch


def purge(book: Book, older_than: float, *, batch: int = 100) -> int:
    """Remove servers deleted more than ``older_than`` seconds ago, with their operations; how many there were.

    A server that left a claim behind (a leftover) is kept until its host has cleaned up.
    """
    removed = 0
    while True:
        count = book.write(lambda session: _batch(session, older_than, batch))
        removed += count
        if count < batch:
            return removed


def _batch(session: Session, older_than: float, batch: int) -> int:
    ids = session.scalars(
        sa.select(Instance.id)
        .outerjoin(Claim, Claim.instance_id == Instance.id)
        .where(Instance.deleted_at < epoch() - older_than, Claim.id.is_(None))
        .order_by(Instance.deleted_at)
        .limit(batch)
    ).all()
    if ids:
        session.execute(sa.delete(Operation).where(Operation.instance_id.in_(ids)))
        session.execute(sa.delete(Instance).where(Instance.id.in_(ids)))
    return len(ids)
