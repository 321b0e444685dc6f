"""Keypairs in the book: of a user, by name."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db.models import Base
from pinfold.db.session import may_be_done
from pinfold.db.types import epoch


class KeypairRow(msgspec.Struct, frozen=True):
    """A public key. ``created_at`` in seconds since 1970."""

    id: int
    user_id: str
    name: str
    type: str
    public_key: str
    fingerprint: str
    created_at: float


_keypairs = Base.metadata.tables["keypairs"]
_SELECT = sa.select(*(_keypairs.c[name] for name in KeypairRow.__struct_fields__))


def get(session: Session, user: str, name: str) -> KeypairRow | None:
    """The user's keypair of this name."""
    row = session.execute(_SELECT.where(_keypairs.c.user_id == user, _keypairs.c.name == name)).first()
    return None if row is None else KeypairRow(*row)


def listed(session: Session, user: str, limit: int | None, after: str | None) -> list[KeypairRow] | None:
    """A page of the user's keypairs by name, after the one named; None if there is no such one."""
    if after is not None and get(session, user, after) is None:
        return None
    query = _SELECT.where(_keypairs.c.user_id == user).order_by(_keypairs.c.name).limit(limit)
    if after is not None:
        query = query.where(_keypairs.c.name > after)
    return [KeypairRow(*row) for row in session.execute(query)]


def add(session: Session, user: str, name: str, type_: str, public_key: str, fingerprint: str) -> None:
    """Write a new keypair. The database refuses a name that the user has already (DBDuplicateEntry)."""
    session.execute(
        sa.insert(_keypairs).values(
            user_id=user,
            name=name,
            type=type_,
            public_key=public_key,
            fingerprint=fingerprint,
            created_at=epoch(),
        )
    )


def delete(session: Session, user: str, name: str) -> bool:
    """Remove it; whether it was there."""
    gone = session.execute(sa.delete(_keypairs).where(_keypairs.c.user_id == user, _keypairs.c.name == name))
    return bool(gone.rowcount) or may_be_done(session)  # type: ignore[attr-defined]
