"""An admin says what state a server is in: done when it is accepted, without a worker."""

from __future__ import annotations

from collections.abc import Set

from sqlalchemy.orm import Session

from pinfold.db import claims as book_claims
from pinfold.db import operations
from pinfold.db.models import Instance, Operation
from pinfold.db.operations import Requester
from pinfold.model import errors, states
from pinfold.model.work import Times


def reset_state(
    session: Session,
    instance_id: str,
    wanted: str,
    requester: Requester,
    times: Times,
    *,
    operation_id: str,
) -> None:
    """Make the server ``active`` or ``error``, and end what is under way. Raises errors.NotFound, errors.Conflict.

    Nothing is released: a current claim stays, and so does an image. A claim that the superseded operation was
    about to use becomes a leftover, which its worker gives back once it has looked.
    """
    if operations.is_written(session, operation_id):
        return
    instance, opened, at = operations.lock_for_start(session, instance_id)
    if opened is not None and opened.kind in ("delete", "force_delete"):
        raise errors.Conflict(
            f"Cannot reset the state of the server while its operation {opened.kind} is under way: a delete is never "
            "undone (task_state is set).",
            code="operation-open",
        )
    held = book_claims.of_instance(session, instance_id)
    roles = {claim.role for claim, _ in held}
    if opened is not None and book_claims.OUTGOING in roles:
        _refuse_ending_move(opened)
    outcome = states.ERROR if wanted == states.ERROR else _good(instance, opened, roles)
    if opened is not None:
        operations.supersede(session, opened, instance, at)
    operations.to_leftovers(opened, [pair for pair in held if pair[0].role == book_claims.INCOMING])
    reset = operations.insert(
        session,
        operation_id=operation_id,
        kind="reset_state",
        instance=instance,
        requester=requester,
        times=times,
        at=at,
        arguments={"state": wanted},
        closed=True,
    )
    fault = instance.fault if outcome == states.ERROR else None
    operations.close(reset, instance, outcome, at)
    instance.fault, instance.soft_deleted_at = fault, None


def _refuse_ending_move(opened: Operation) -> None:
    """One of the two guests may be gone already: what would look as if it could still be confirmed or reverted would
    lose the other one, too."""
    if opened.kind in ("confirm_resize", "revert_resize") and operations.is_recorded(opened):
        raise errors.Conflict(
            f"Cannot reset the state of the server while its operation {opened.kind} removes a guest (task_state is "
            "set): wait for its end.",
            code="operation-open",
        )


def _good(instance: Instance, opened: Operation | None, roles: Set[str]) -> str:
    """What a server is that an admin calls active: what the book has of it says so.

    A recorded image is a shelved server's, and perhaps the only copy of its disk. Without an image a server needs a
    claim, because nothing may run without one. Where it has its old place too, it has moved.
    """
    has_place = book_claims.CURRENT in roles
    if instance.shelved_image is not None:
        return states.SHELVED if has_place else states.SHELVED_OFFLOADED
    if not has_place:
        raise errors.Conflict(
            "Cannot reset the state of the server to active: it has no host, and no shelved image to start from. "
            "Delete it, or leave it in error.",
            code="no-host",
        )
    if opened is not None and opened.kind == "rebuild" and operations.is_recorded(opened):
        raise errors.Conflict(
            "Cannot reset the state of the server to active while its disk is being replaced (task_state is set). "
            "Wait until that ends, or reset it to error.",
            code="operation-open",
        )
    return states.RESIZED if book_claims.OUTGOING in roles else states.ACTIVE
