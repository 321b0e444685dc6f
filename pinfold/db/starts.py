"""What an API request writes: one function per action, each one transaction.

Each checks the state and opens the operation in the same transaction, and returns the bell to ring
once that has committed. None of them sends anything. One whose commit was not answered is run again, and finds
what it has written by its operation's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy.orm import Session

from pinfold.db import claims as book_claims
from pinfold.db import hosts, operations, quick
from pinfold.db.models import Claim, Instance, Node, Operation
from pinfold.db.operations import Requester
from pinfold.model import errors, states
from pinfold.model.rebuild import Rebuild, holds_both
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
        quick.add(session, instance)
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


def in_place(
    session: Session,
    instance_id: str,
    kind: str,
    requester: Requester,
    times: Times,
    *,
    operation_id: str,
    arguments: dict[str, Any] | None = None,
) -> Bell:
    """Open an operation of ``kind`` for the worker that has the server's place.

    One that is open is superseded where the kind may do that. Raises errors.NotFound, errors.Conflict.
    """
    if operations.is_written(session, operation_id):
        return Bell()
    instance, opened, at = operations.lock_for_start(session, instance_id)
    if kind in ("start", "stop"):
        _current(session, instance, kind)
    require_start(instance, kind, opened)
    if opened is not None:
        _refuse_moving(session, instance, kind)
        operations.supersede(session, opened, instance, at)
    return _on_its_host(session, instance, kind, requester, times, at, operation_id, arguments or {})


def _refuse_moving(session: Session, instance: Instance, kind: str) -> None:
    """A move has a place elsewhere, where its guest may be about to run."""
    if book_claims.with_role(book_claims.of_instance(session, instance.id), book_claims.INCOMING):
        raise errors.Conflict(
            f"Cannot {kind} the server while it is being moved (task_state is set).", code="operation-open"
        )


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
    arguments = {
        "snapshot": image_id,
        "snapshot_name": image_name,
        "snapshot_properties": image_properties,
    }
    return in_place(
        session, instance_id, "shelve", requester, times, operation_id=operation_id, arguments=arguments
    )


def shelve_offload(
    session: Session, instance_id: str, requester: Requester, times: Times, *, operation_id: str
) -> Bell:
    """Open an offload. Raises errors.NotFound, errors.Conflict."""
    return in_place(session, instance_id, "shelve_offload", requester, times, operation_id=operation_id)


def rebuild(
    session: Session,
    instance_id: str,
    requester: Requester,
    times: Times,
    *,
    operation_id: str,
    wanted: Rebuild,
) -> Bell:
    """Open a rebuild. Raises errors.NotFound, errors.Conflict.

    The claim stays as it is where the new image asks for what the old one asked for. Otherwise, and after a rebuild
    that failed in the middle, the server's place is planned anew on its node.
    """
    if operations.is_written(session, operation_id):
        return Bell()
    instance, opened, at = operations.lock_for_start(session, instance_id)
    require_start(instance, "rebuild", opened)
    claim, _ = _current(session, instance, "rebuild")
    refit = wanted.demand != instance.demand or holds_both(claim.placement)
    told = msgspec.to_builtins(msgspec.structs.replace(wanted, refit=refit), str_keys=True)
    arguments = {"rebuild": told}
    return _on_its_host(session, instance, "rebuild", requester, times, at, operation_id, arguments)


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
    require_start(instance, kind, opened)
    if kind == "unshelve_in_place":
        if arguments:
            raise errors.Conflict(
                "host and availability_zone cannot be given while vm_state is shelved: it still has its host.",
                code="wrong-state",
            )
        return _on_its_host(session, instance, kind, requester, times, at, operation_id, {})
    refuse_leftovers(session, book_claims.of_instance(session, instance_id), kind)
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
    soft: bool = False,
) -> Bell:
    """Delete a server: here and now if it holds nothing, else by the worker that has it.

    An open operation is superseded in the same transaction. Where the worker is down its claim becomes a leftover,
    and the server is deleted here. A server that is being deleted already is left to that. ``soft``: one that can
    be kept is only stopped, to be restored or reclaimed later. Raises errors.NotFound.
    """
    if operations.is_written(session, operation_id):
        return Bell()
    instance, opened, at = operations.lock_for_start(session, instance_id)
    if opened is not None and (
        opened.kind in ("delete", "force_delete") or (soft and opened.kind == "soft_delete")
    ):
        return Bell()
    held = book_claims.holding(book_claims.of_instance(session, instance_id))
    soft = soft and _can_be_kept(session, instance, opened, held, times)
    if opened is not None:
        operations.supersede(session, opened, instance, at, ends_the_guest=True)
    if soft:
        return _on_its_host(session, instance, "soft_delete", requester, times, at, operation_id, {})
    kind = "force_delete" if force else "delete"
    down = [
        (claim, node) for claim, node in held if not hosts.host_is_up(session, node.host, times.service_down)
    ]
    operations.to_leftovers(None, down)
    there = [pair for pair in held if pair not in down]
    if opened is not None and opened.kind == "live_migrate":
        # the one that may be handing the guest over first; the other once that has ended
        there.sort(key=lambda pair: pair[0].role != book_claims.CURRENT)
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
        arguments={"in_turn": True} if opened is not None and opened.kind == "live_migrate" else {},
    )
    if not there:
        operation.left_leftover = bool(down)
        operations.delete_instance(session, instance, at)
        return Bell()
    first = there[:1] if operation.arguments.get("in_turn") else there
    return Bell(work=_cast(operation, instance, first, at))


def _cast(
    operation: Operation, instance: Instance, there: Sequence[tuple[Claim, Node]], at: float
) -> tuple[Any, ...]:
    return tuple(operations.work_for(operation, instance, node, at, claim) for claim, node in there)


def reclaim(
    session: Session, instance_id: str, requester: Requester, times: Times, *, operation_id: str
) -> Bell:
    """Delete a soft-deleted server for good, unless somebody is restoring it or has. Raises errors.NotFound."""
    instance, opened, _at = operations.lock_for_start(session, instance_id)
    if opened is not None or instance.vm_state != states.SOFT_DELETED:
        return Bell()
    return delete(session, instance_id, requester, times, operation_id=operation_id)


def _can_be_kept(
    session: Session,
    instance: Instance,
    opened: Operation | None,
    held: Sequence[tuple[Claim, Node]],
    times: Times,
) -> bool:
    """Whether a soft delete leaves something that can be restored: a guest that has run and whose disk is there."""
    if not states.may_start("soft_delete", instance.vm_state) or instance.launched_at is None:
        return False
    if opened is not None and operations.is_recorded(opened):
        return False
    return [claim.role for claim, _ in held] == [book_claims.CURRENT] and hosts.host_is_up(
        session, held[0][1].host, times.service_down
    )


def ready(session: Session, instance_id: str, kind: str) -> Instance:
    """The instance, locked, which may start ``kind`` in its place now. Raises errors.NotFound, errors.Conflict."""
    instance, opened, _at = operations.lock_for_start(session, instance_id)
    require_start(instance, kind, opened)
    _current(session, instance, kind)
    return instance


def require_start(instance: Instance, kind: str, opened: Operation | None) -> None:
    """Raise errors.Conflict, naming the field, if the server may not start ``kind`` now."""
    states.require_start(kind, instance.vm_state, opened.kind if opened else None)
    if instance.launched_at is None:
        raise errors.Conflict(
            f"Cannot {kind} the server: it has never run (launched_at is not set).", code="never-launched"
        )


def _current(session: Session, instance: Instance, kind: str) -> tuple[Claim, Node]:
    """The claim that the server runs on, and its node. Raises errors.Conflict."""
    return _the_current(book_claims.of_instance(session, instance.id), kind)


def _the_current(claims: Sequence[tuple[Claim, Node]], kind: str) -> tuple[Claim, Node]:
    held = book_claims.with_role(claims, book_claims.CURRENT)
    if held is None:
        raise errors.Conflict(f"Cannot {kind} the server: it has no host.", code="no-host")
    return held


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
    claims = book_claims.of_instance(session, instance.id)
    claim, node = _the_current(claims, kind)
    refuse_unfinished_move(claims, kind)
    if states.KINDS[kind].starts_a_guest:
        _refuse_second_guest(session, claims, claim, kind)
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


def refuse_unfinished_move(claims: Sequence[tuple[Claim, Node]], kind: str) -> None:
    """A server with two places, whose state an admin has reset since, has to give one of them up first."""
    if len(book_claims.holding(claims)) > 1:
        raise errors.Conflict(
            f"Cannot {kind} the server: it still holds the place of an earlier move. Reset its state to active, and "
            "confirm or revert that first.",
            code="unfinished-move",
        )


def refuse_leftovers(session: Session, claims: Sequence[tuple[Claim, Node]], kind: str) -> None:
    """No guest runs twice: while one may still run somewhere, the server is placed nowhere else."""
    for claim, node in claims:
        if claim.role == book_claims.LEFTOVER:
            require_fenced(session, node, kind)


def _refuse_second_guest(
    session: Session, claims: Sequence[tuple[Claim, Node]], current: Claim, kind: str
) -> None:
    """The same for its guest here, which a move that was given up may have left off because of that one.

    Whoever evacuated it has accepted that the host that was dead then may still run one.
    """
    if len(claims) == 1:
        return
    placed = session.get(Operation, current.operation_id)
    if placed is not None and placed.kind == "evacuate":
        claims = [pair for pair in claims if pair[0].created_at > current.created_at]
    refuse_leftovers(session, claims, kind)


def require_fenced(session: Session, node: Node, kind: str) -> None:
    """Raise errors.Conflict unless an operator has said that nothing runs on the node's host."""
    if not hosts.is_forced_down(session, node.host):
        raise errors.Conflict(
            f"Cannot {kind} the server: host {node.host} may still run its former guest. Wait until that host "
            "is back and has cleaned up, or force it down once it is fenced.",
            code="leftover",
        )
