"""Locks that users put on servers: no operation, but noted as one that is done."""

from __future__ import annotations

from sqlalchemy.orm import Session

from pinfold.db import operations
from pinfold.db.models import Instance
from pinfold.db.operations import Requester
from pinfold.model import errors
from pinfold.model.work import Times

OWNER, ADMIN = "owner", "admin"


def lock(
    session: Session,
    instance_id: str,
    by: str,
    reason: str | None,
    requester: Requester,
    times: Times,
    *,
    operation_id: str,
) -> None:
    """Lock the server, in whatever state it is. Its owner's second lock changes nothing. Raises errors.NotFound."""
    instance = _locked(session, instance_id)
    if operations.is_written(session, operation_id) or (instance.locked_by is not None and by == OWNER):
        return
    _note(session, instance, "lock", requester, times, operation_id)
    instance.locked_by, instance.locked_reason = by, reason


def unlock(
    session: Session, instance_id: str, requester: Requester, times: Times, *, operation_id: str
) -> None:
    """Unlock the server. Raises errors.NotFound."""
    instance = _locked(session, instance_id)
    if operations.is_written(session, operation_id) or instance.locked_by is None:
        return
    _note(session, instance, "unlock", requester, times, operation_id)
    instance.locked_by = instance.locked_reason = None


def _locked(session: Session, instance_id: str) -> Instance:
    instance = operations.locked_instance(session, instance_id)
    if instance is None or instance.deleted_at is not None:
        raise errors.NotFound(f"Instance {instance_id} could not be found.", code="server-not-found")
    return instance


def _note(
    session: Session, instance: Instance, kind: str, requester: Requester, times: Times, operation_id: str
) -> None:
    at = operations.now(session)
    operation = operations.insert(
        session,
        operation_id=operation_id,
        kind=kind,
        instance=instance,
        requester=requester,
        times=times,
        at=at,
        closed=True,
    )
    operation.log = [
        {"step": kind, "attempt": 0, "host": None, "start": at, "end": at, "error": None},
    ]
    instance.updated_at = at
