"""A worker's audit has found a guest that does not do what the book says of its server."""

from __future__ import annotations

from sqlalchemy.orm import Session

from pinfold.db import claims as book_claims
from pinfold.db import hosts, operations
from pinfold.db.models import Claim, Node
from pinfold.db.operations import Requester
from pinfold.model import power
from pinfold.model.work import Bell, Times
from pinfold.rpcapi.messages import PowerSeen


def seen(session: Session, record: PowerSeen, times: Times, *, operation_id: str, request_id: str) -> Bell:
    """Follow it by an operation, where that is what is to be done, or only note what was seen.

    Nothing is done while an operation is open, when the server has moved on since the worker looked, or when its
    guest may run somewhere else. Raises errors.NotFound.
    """
    instance, opened, at = operations.lock_for_start(session, record.instance)
    if opened is not None or instance.vm_state != record.vm_state:
        return Bell()
    place = _only_place(book_claims.of_instance(session, instance.id), record)
    if place is None or not hosts.host_is_up(session, record.host, times.service_down):
        return Bell()
    follow = power.follow(instance.vm_state, record.power_state, failed=instance.fault is not None)
    if follow not in ("stop", "run"):
        instance.power_state = record.power_state
        return Bell()
    claim, node = place
    operation = operations.insert(
        session,
        operation_id=operation_id,
        kind="power_restore" if follow == "run" else "power_sync",
        instance=instance,
        requester=Requester(request_id, instance.project_id, instance.user_id),
        times=times,
        at=at,
        arguments={"power_state": record.power_state},
        host=node.host,
    )
    return Bell(work=(operations.work_for(operation, instance, node, at, claim),))


def _only_place(held: list[tuple[Claim, Node]], record: PowerSeen) -> tuple[Claim, Node] | None:
    """The server's one claim, if it is current on the node of the worker that asks; the old end of a move runs
    nothing."""
    running = [pair for pair in held if pair[0].role != book_claims.OUTGOING]
    if len(running) != 1:
        return None
    claim, node = running[0]
    here = claim.role == book_claims.CURRENT and (node.name, node.host) == (record.node, record.host)
    return (claim, node) if here else None
