"""What an API request writes: one function per action, each one transaction.

Each checks the state and opens the operation in the same transaction, and returns the bell to ring
once that has committed. None of them sends anything. One whose commit was not answered is run again, and finds
what it has written by its operation's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from pinfold.db import claims as book_claims
from pinfold.db import hosts, operations
from pinfold.db.models import Claim, Instance, Node, Operation
from pinfold.db.operations import Requester
from pinfold.model import errors, states
from pinfold.model.work import Bell, Times


def create(
    session: Session,
    instances: Sequence[Instance],
    requester: Requester,
    times: Times,
    *,
    operation_ids: Sequence[str],
    arguments: dict[str, Any] | None = None,
) -> Bell:
    """Write new servers, each with its open operation. ``arguments`` may name a ``host`` or ``node`` to use."""
    if operations.is_written(session, *operation_ids):
        return Bell(run=tuple(operation_ids))
    at = operations.now(session)
    for instance, operation_id in zip(instances, operation_ids, strict=True):
        instance.vm_state = states.BUILDING
        instance.created_at = instance.updated_at = at
        session.add(instance)
        session.flush()
        operations.insert(
            session,
            operation_id=operation_id,
            kind="create",
            instance=instance,
            requester=requester,
            times=times,
            at=at,
            arguments=arguments,
        )
    return Bell(run=tuple(operation_ids))


def shelve(
    session: Session,
    instance_id: str,
    requester: Requester,
    times: Times,
    *,
    operation_id: str,
    image_id: str,
    image_name: str,
    image_properties: dict[str, str],
) -> Bell:
    """Open a shelve, whose snapshot will be ``image_id``. Raises errors.NotFound, errors.Conflict."""
    if operations.is_written(session, operation_id):
        return Bell()
    instance, at = _ready(session, instance_id, "shelve")
    arguments = {
        "snapshot": image_id,
        "snapshot_name": image_name,
        "snapshot_properties": image_properties,
    }
    return _on_its_host(session, instance, "shelve", requester, times, at, operation_id, arguments)


def shelve_offload(
    session: Session, instance_id: str, requester: Requester, times: Times, *, operation_id: str
) -> Bell:
    """Open an offload. Raises errors.NotFound, errors.Conflict."""
    if operations.is_written(session, operation_id):
        return Bell()
    instance, at = _ready(session, instance_id, "shelve_offload")
    return _on_its_host(session, instance, "shelve_offload", requester, times, at, operation_id, {})


def unshelve(
    session: Session,
    instance_id: str,
    requester: Requester,
    times: Times,
    *,
    operation_id: str,
    arguments: dict[str, Any] | None = None,
) -> Bell:
    """Open an unshelve: in place while the server still has its place, else wherever it fits.

    ``arguments`` may name a ``host``. Raises errors.NotFound, errors.Conflict.
    """
    if operations.is_written(session, operation_id):
        return Bell(run=(operation_id,))
    instance, opened, at = operations.lock_for_start(session, instance_id)
    kind = "unshelve_in_place" if instance.vm_state == states.SHELVED else "unshelve"
    states.require_start(kind, instance.vm_state, opened.kind if opened else None)
    if kind == "unshelve_in_place":
        if arguments:
            raise errors.Conflict(
                "host and availability_zone cannot be given while vm_state is shelved: it still has its host.",
                code="wrong-state",
            )
        return _on_its_host(session, instance, kind, requester, times, at, operation_id, {})
    refuse_leftovers(session, instance, kind)
    operations.insert(
        session,
        operation_id=operation_id,
        kind=kind,
        instance=instance,
        requester=requester,
        times=times,
        at=at,
        arguments=arguments,
    )
    return Bell(run=(operation_id,))


def delete(
    session: Session,
    instance_id: str,
    requester: Requester,
    times: Times,
    *,
    operation_id: str,
    force: bool = False,
) -> Bell:
    """Delete a server: here and now if it holds nothing, else by the worker that has it.

    An open operation is superseded in the same transaction. Where the worker is down its claim becomes a leftover,
    and the server is deleted here. A server that is being deleted already is left to that. Raises errors.NotFound.
    """
    if operations.is_written(session, operation_id):
        return Bell()
    instance, opened, at = operations.lock_for_start(session, instance_id)
    if opened is not None:
        if opened.kind in ("delete", "force_delete"):
            return Bell()
        operations.supersede(session, opened, instance, at)
    kind = "force_delete" if force else "delete"
    held = book_claims.holding(book_claims.of_instance(session, instance_id))
    down = [
        (claim, node) for claim, node in held if not hosts.host_is_up(session, node.host, times.service_down)
    ]
    operations.to_leftovers(None, down)
    there = [pair for pair in held if pair not in down]
    operation = operations.insert(
        session,
        operation_id=operation_id,
        kind=kind,
        instance=instance,
        requester=requester,
        times=times,
        at=at,
        host=there[0][1].host if there else None,
        closed=not there,
    )
    if not there:
        operation.left_leftover = bool(down)
        operations.delete_instance(session, instance, at)
        return Bell()
    return Bell(work=_cast(operation, instance, there, at))


def _cast(
    operation: Operation, instance: Instance, there: Sequence[tuple[Claim, Node]], at: float
) -> tuple[Any, ...]:
    return tuple(operations.work_for(operation, instance, node, at, claim) for claim, node in there)


def _ready(session: Session, instance_id: str, kind: str) -> tuple[Instance, float]:
    instance, opened, at = operations.lock_for_start(session, instance_id)
    states.require_start(kind, instance.vm_state, opened.kind if opened else None)
    return instance, at


def _on_its_host(
    session: Session,
    instance: Instance,
    kind: str,
    requester: Requester,
    times: Times,
    at: float,
    operation_id: str,
    arguments: dict[str, Any],
) -> Bell:
    """Open an operation for the worker that has the instance's current claim."""
    held = book_claims.with_role(book_claims.of_instance(session, instance.id), book_claims.CURRENT)
    if held is None:
        raise errors.Conflict(f"Cannot {kind} the server: it has no host.", code="no-host")
    claim, node = held
    if not hosts.host_is_up(session, node.host, times.service_down):
        raise errors.Conflict(
            f"Cannot {kind} the server: the compute service of its host is down.", code="host-down"
        )
    operation = operations.insert(
        session,
        operation_id=operation_id,
        kind=kind,
        instance=instance,
        requester=requester,
        times=times,
        at=at,
        arguments=arguments,
        host=node.host,
    )
    return Bell(work=(operations.work_for(operation, instance, node, at, claim),))


def refuse_leftovers(session: Session, instance: Instance, kind: str) -> None:
    """No guest runs twice: while one may still run somewhere, the server is placed nowhere else."""
    for claim, node in book_claims.of_instance(session, instance.id):
        service = hosts.worker(session, node.host)
        if claim.role == book_claims.LEFTOVER and not (service and service.forced_down):
            raise errors.Conflict(
                f"Cannot {kind} the server: host {node.host} may still run its former guest. Wait until that host "
                "is back and has cleaned up, or force it down once it is fenced.",
                code="leftover",
            )
