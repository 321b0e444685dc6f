"""Constant statements in a transaction, the short way where the book has one (``db.direct``), else by the session.

Entities are the session's own either way, and a change of them is written when the transaction ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

if TYPE_CHECKING:
    from pinfold.db.direct import Direct

#: In a session's info: the shorter way to the driver, or None.
DIRECT = "direct"


def _direct(session: Session) -> Direct | None:
    return session.info.get(DIRECT)


def every(session: Session, statement: sa.Executable, **parameters: Any) -> Sequence[Sequence[Any]]:
    """All rows."""
    direct = _direct(session)
    if direct is not None:
        return direct.select(session, statement, parameters)
    return session.execute(statement, parameters).all()


def first(session: Session, statement: sa.Executable, **parameters: Any) -> Sequence[Any] | None:
    """The first row, or None."""
    for row in every(session, statement, **parameters):
        return row
    return None


def one(session: Session, statement: sa.Executable, **parameters: Any) -> Any:
    """The first value of the first row, or None."""
    row = first(session, statement, **parameters)
    return None if row is None else row[0]


def change(session: Session, statement: sa.Executable, **parameters: Any) -> int:
    """How many rows an INSERT, UPDATE or DELETE has changed."""
    direct = _direct(session)
    if direct is not None:
        return direct.change(session, statement, parameters)
    return session.execute(statement, parameters).rowcount  # type: ignore[attr-defined,no-any-return]


def add(session: Session, entity: Any) -> None:
    """Insert a new entity, whose key is known, at once."""
    direct = _direct(session)
    if direct is not None:
        direct.add(session, entity)
    else:
        session.add(entity)
        session.flush()
