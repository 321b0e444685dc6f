"""What cannot be in the book as this release writes it: claims that nothing accounts for."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db import claims
from pinfold.db.models import Claim, Instance, Operation
from pinfold.model import states


def lost_claims(session: Session) -> list[str]:
    """Claims without their operation or their server, and servers without their claim, as sentences.

    ::

        SELECT claims.id, ... FROM claims JOIN instances ON ... LEFT JOIN operations ON operations.id = operation_id
        WHERE claims.role <> 'leftover' AND (instances.deleted_at IS NOT NULL OR
            (claims.role = 'incoming' AND operations.open_key IS NULL
             AND NOT EXISTS (SELECT 1 FROM operations WHERE open_key = instance_id)))
    """
    return [*_claims(session), *_servers(session)]


def _claims(session: Session) -> list[str]:
    opened = sa.select(Operation.id).where(Operation.open_key == Claim.instance_id)
    rows = session.execute(
        sa.select(Claim.id, Claim.role, Claim.instance_id, Instance.deleted_at)
        .join(Instance, Instance.id == Claim.instance_id)
        .where(
            Claim.role != claims.LEFTOVER,
            sa.or_(
                Instance.deleted_at.is_not(None),
                sa.and_(Claim.role == claims.INCOMING, sa.not_(opened.exists())),
            ),
        )
        .order_by(Claim.id)
    )
    return [
        f"claim {claim} of server {instance} is {role}, and "
        + ("no operation is open" if deleted is None else "the server is deleted")
        for claim, role, instance, deleted in rows
    ]


#: Of these a server without an open operation has a current claim.
_AT_HOME = (
    states.ACTIVE,
    states.STOPPED,
    states.PAUSED,
    states.SUSPENDED,
    states.SHELVED,
    states.SOFT_DELETED,
    states.RESIZED,
)


def _servers(session: Session) -> list[str]:
    current = sa.select(Claim.id).where(Claim.instance_id == Instance.id, Claim.role == claims.CURRENT)
    opened = sa.select(Operation.id).where(Operation.open_key == Instance.id)
    rows = session.execute(
        sa.select(Instance.id, Instance.vm_state)
        .where(
            Instance.deleted_at.is_(None),
            Instance.vm_state.in_(_AT_HOME),
            sa.not_(current.exists()),
            sa.not_(opened.exists()),
        )
        .order_by(Instance.id)
    )
    return [f"server {instance} is {vm_state} and has no claim" for instance, vm_state in rows]
