"""Operations in the book: opening, fencing, steps, closing.

Rows are locked in the order operation, instance, nodes by id, claims. ``close`` and ``record`` are
the only places that give an instance a new state, and they ask ``model.states``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
import sqlalchemy as sa
from oslo_db import exception as db_errors
from sqlalchemy.orm import Session

from pinfold.db import claims as book_claims
from pinfold.db import quick
from pinfold.db.models import Base, Claim, Instance, Node, Operation
from pinfold.db.session import AGAIN
from pinfold.db.types import epoch
from pinfold.model import errors, power, states
from pinfold.model.host import Hypervisor
from pinfold.model.rebuild import Rebuild
from pinfold.model.request import Demand
from pinfold.model.work import Times, Work

SUCCEEDED, FAILED, SUPERSEDED = "succeeded", "failed", "superseded"
DELETE_IMAGE, DELETE_UNFINISHED_IMAGE = "delete_image", "delete_unfinished_image"

# Seconds past the deadline of an operation for which its worker may still be writing to the image store.
_WRITES_ON = 60.0

# In a session's info: the outbox has something new, so wake who does it.
POSTED = "posted"


class Place(Protocol):
    """Where a cast goes: a node's row, or a scheduler's candidate."""

    @property
    def host(self) -> str: ...

    @property
    def name(self) -> str: ...


class Requester(msgspec.Struct, frozen=True):
    """Who asked for an operation, and in which request."""

    request_id: str
    project_id: str
    user_id: str


class Fault(msgspec.Struct, frozen=True):
    """Why an operation failed: ``message`` for the user, ``details`` for an admin."""

    message: str
    details: str = ""
    code: int = 500


# Statements of every operation are made once: to make one takes longer than to run it.
_ID = sa.bindparam("id", type_=sa.String())
_NOW = sa.select(epoch())
_LOCKED = sa.select(Operation, epoch()).where(Operation.id == _ID).with_for_update(of=Operation)
_WITH_INSTANCE = (
    sa.select(Operation, Instance, epoch())
    .join(Instance, Instance.id == Operation.instance_id)
    .where(Operation.id == _ID)
    .with_for_update(of=[Operation, Instance])
)
_INSTANCE = sa.select(Instance).where(Instance.id == _ID).with_for_update()
_OPENED = sa.select(Operation).where(Operation.open_key == _ID).with_for_update()
_POST = sa.insert(Base.metadata.tables["outbox"]).values(
    {name: sa.bindparam(name) for name in ("kind", "subject", "tries", "due_at", "created_at")}
)
_OPEN_NOW = sa.select(
    sa.select(Operation.id).where(Operation.open_key == _ID).scalar_subquery().label("open"),
    epoch().label("at"),
)


def now(session: Session) -> float:
    """The database's clock."""
    return quick.one(session, _NOW) or 0.0


def locked(session: Session, operation_id: str) -> tuple[Operation, float] | None:
    """The operation, locked, and the database's clock.

    ::

        SELECT operations.*, <clock> FROM operations WHERE id = :id FOR UPDATE
    """
    row = quick.first(session, _LOCKED, id=operation_id)
    return None if row is None else (row[0], row[1])


def locked_with_instance(session: Session, operation_id: str) -> tuple[Operation, Instance, float] | None:
    """The operation and its instance, locked in this order, and the database's clock.

    ::

        SELECT operations.*, instances.*, <clock> FROM operations JOIN instances ON instances.id = instance_id
        WHERE operations.id = :id FOR UPDATE
    """
    row = quick.first(session, _WITH_INSTANCE, id=operation_id)
    return None if row is None else (row[0], row[1], row[2])


def locked_instance(session: Session, instance_id: str) -> Instance | None:
    """The instance, locked."""
    instance: Instance | None = quick.one(session, _INSTANCE, id=instance_id)
    return instance


def lock_for_start(session: Session, instance_id: str) -> tuple[Instance, Operation | None, float]:
    """The instance and its open operation, both locked in order, and the database's clock.

    Raises errors.NotFound for an instance that is not there or deleted; asks for the transaction to be run again
    when another operation was opened between the two locks.
    """
    opened: Operation | None = quick.one(session, _OPENED, id=instance_id)
    instance = locked_instance(session, instance_id)
    if instance is None or instance.deleted_at is not None:
        raise errors.NotFound(f"Instance {instance_id} could not be found.", code="server-not-found")
    ((again, at),) = quick.every(session, _OPEN_NOW, id=instance_id)
    if again != (opened.id if opened else None):
        raise db_errors.RetryRequest(errors.Conflict("Another operation was opened at the same time."))
    return instance, opened, at


def is_written(session: Session, *operation_ids: str) -> bool:
    """Whether an earlier run of this transaction has committed, so that these operations are in the book."""
    if not session.info.get(AGAIN):
        return False
    written = session.scalar(
        sa.select(sa.func.count()).select_from(Operation).where(Operation.id.in_(operation_ids))
    )
    return written == len(operation_ids)


def insert(
    session: Session,
    *,
    operation_id: str,
    kind: str,
    instance: Instance,
    requester: Requester,
    times: Times,
    at: float,
    arguments: dict[str, Any] | None = None,
    host: str | None = None,
    closed: bool = False,
) -> Operation:
    """Write a new operation; with ``host``, its first attempt is cast to that worker by the caller."""
    declared = states.KINDS[kind]
    operation = Operation(
        id=operation_id,
        kind=kind,
        instance_id=instance.id,
        open_key=None if closed else instance.id,
        step=None,
        task_state=None if closed else declared.first_shows,
        attempt=1 if host else 0,
        owner_host=host,
        owner_incarnation=None,
        lease_until=at + times.sweep_after,
        deadline_at=at + times.deadlines.get(kind, declared.deadline),
        result=SUCCEEDED if closed else None,
        finishes={},
        left_leftover=False,
        arguments=arguments or {},
        targets=[],
        refusals=[],
        log=[],
        request_id=requester.request_id,
        project_id=requester.project_id,
        user_id=requester.user_id,
        created_at=at,
        updated_at=at,
        ended_at=at if closed else None,
    )
    quick.add(session, operation)
    return operation


def enter(
    operation: Operation, step: str, host: str | None, at: float, waits: dict[str, float] | None = None
) -> None:
    """Note that ``step`` is begun now, after ``waits``, and with it that the one before has ended."""
    entries = _ended(operation.log, at)
    last = entries[-1] if entries else None
    if not (last and last["step"] == step and last["attempt"] == operation.attempt):
        entries.append(
            {
                "step": step,
                "attempt": operation.attempt,
                "host": host,
                "start": at,
                "end": None,
                "error": None,
                **({"waits": waits} if waits else {}),
            }
        )
    else:
        last["end"] = None
    operation.log = entries
    operation.step = step
    operation.task_state = states.KINDS[operation.kind].step(step).shows
    operation.updated_at = at


def _ended(entries: list[dict[str, Any]], at: float, error: str | None = None) -> list[dict[str, Any]]:
    entries = [dict(entry) for entry in entries]
    if entries and entries[-1]["end"] is None:
        entries[-1]["end"] = at
        entries[-1]["error"] = error
    return entries


def note_error(operation: Operation, error: str, at: float) -> None:
    """Note that the step under way ended with ``error``."""
    operation.log = _ended(operation.log, at, error)
    operation.error = error
    operation.updated_at = at


def close(
    operation: Operation,
    instance: Instance,
    outcome: str,
    at: float,
    fault: Fault | None = None,
) -> None:
    """End the operation: the instance's state by the table, its fault set or cleared."""
    operation.log = _ended(operation.log, at, fault.message if fault else None)
    operation.open_key = None
    operation.task_state = None
    operation.result = FAILED if fault else SUCCEEDED
    operation.error = fault.message if fault else None
    operation.ended_at = operation.updated_at = at
    _assign(instance, states.after(operation.kind, instance.vm_state, outcome), at)
    instance.fault = (
        None
        if fault is None
        else {"code": fault.code, "message": fault.message, "details": fault.details, "created": at}
    )


def record(session: Session, operation: Operation, instance: Instance, at: float) -> None:
    """The point from which a shelve only goes forward: its image is the instance's from now on.

    One that it has from before, because its state was reset, has no more to say.
    """
    forget_shelved_image(session, instance, at)
    _assign(instance, states.after(operation.kind, instance.vm_state, states.RECORDED), at)
    instance.shelved_image = operation.arguments["snapshot"]
    instance.shelved_at = at


def is_recorded(operation: Operation) -> bool:
    """Whether the operation is past the point of no return."""
    forward = {step.name for step in states.KINDS[operation.kind].steps if step.forward}
    return any(entry["step"] in forward for entry in operation.log)


def supersede(
    session: Session, operation: Operation, instance: Instance, at: float, *, ends_the_guest: bool = False
) -> None:
    """End the operation because another takes over; what it had not recorded is cleaned up.

    Raises errors.Conflict for a guest that is being handed over to another host right now, and with it its only disk,
    unless what takes over ``ends_the_guest``.
    """
    if not ends_the_guest and any(entry["step"] == "live_migrate" for entry in operation.log):
        raise errors.Conflict(
            "The server is being moved to another host while it runs (task_state is set): wait for the end of that.",
            code="operation-open",
        )
    if not is_recorded(operation):
        take_back_refit(session, operation)
    operation.log = _ended(operation.log, at, "superseded")
    operation.open_key = None
    operation.task_state = None
    operation.result = SUPERSEDED
    operation.ended_at = operation.updated_at = at
    drop_unrecorded_image(session, operation, instance, at)
    # before the next one is inserted under the same open key
    session.flush()


def drop_unrecorded_image(session: Session, operation: Operation, instance: Instance, at: float) -> None:
    """Ask for the deletion of an image that the operation may have made and that nothing refers to.

    What a user has asked for is kept once it is complete, whatever becomes of the operation.
    """
    image = operation.arguments.get("snapshot")
    if image is not None and instance.shelved_image != image:
        deed = DELETE_UNFINISHED_IMAGE if operation.kind == "create_image" else DELETE_IMAGE
        post(session, deed, image, at)
        # A worker that is still writing it removes it itself, unless it dies: look once more when it has stopped.
        post(session, deed, image, at, due_at=max(at, operation.deadline_at) + _WRITES_ON)


def rebuild_of(operation: Operation) -> Rebuild | None:
    """What the operation is about, if it is a rebuild."""
    told = operation.arguments.get("rebuild")
    return None if told is None else msgspec.convert(told, Rebuild, strict=False)


def save_rebuild(operation: Operation, rebuild: Rebuild) -> None:
    """Write down how far a rebuild is."""
    told = msgspec.to_builtins(rebuild, str_keys=True)
    operation.arguments = {**operation.arguments, "rebuild": told}


def take_back_refit(session: Session, operation: Operation) -> None:
    """Give up the place that a rebuild was to have; its old one is held all the time."""
    rebuild = rebuild_of(operation)
    if rebuild is None or rebuild.before is None:
        return
    held = book_claims.with_role(book_claims.of_instance(session, operation.instance_id), book_claims.CURRENT)
    if held is not None:
        book_claims.change(session, *held, rebuild.before)
    save_rebuild(operation, msgspec.structs.replace(rebuild, before=None, after=None))


def delete_instance(session: Session, instance: Instance, at: float) -> None:
    """Mark the instance deleted and ask for the deletion of its shelved image."""
    _assign(instance, states.DELETED, at)
    instance.deleted_at = instance.terminated_at = at
    forget_shelved_image(session, instance, at)


def forget_shelved_image(session: Session, instance: Instance, at: float) -> None:
    """The instance needs its shelved image no more: that id, and only that, is to be deleted."""
    if instance.shelved_image is not None:
        post(session, DELETE_IMAGE, instance.shelved_image, at)
    instance.shelved_image = None
    instance.shelved_at = None


def post(session: Session, kind: str, subject: str, at: float, due_at: float | None = None) -> None:
    """Put a deed into the outbox: swept after this transaction (or from ``due_at`` on), until it is done."""
    session.info[POSTED] = True
    due_at = at if due_at is None else due_at
    quick.change(session, _POST, kind=kind, subject=subject, tries=0, due_at=due_at, created_at=at)


def _assign(instance: Instance, vm_state: str, at: float) -> None:
    instance.vm_state = vm_state
    instance.power_state = power.OF_STATE.get(vm_state, instance.power_state)
    if vm_state == states.ACTIVE and instance.launched_at is None:
        instance.launched_at = at
    instance.updated_at = at


def to_leftovers(operation: Operation | None, held: Iterable[tuple[Claim, Node]]) -> None:
    """The word of the nodes' workers is not to be had: their CPUs stay taken until they have looked."""
    for claim, node in held:
        book_claims.set_role(claim, node, book_claims.LEFTOVER)
        if operation is not None:
            operation.left_leftover = True


def lease(session: Session, operation: Operation, host: str, incarnation: str | None, until: float) -> None:
    """Make the worker (of this incarnation, once known) the owner until then."""
    operation.owner_host = host
    operation.owner_incarnation = incarnation
    operation.lease_until = until


def as_json(value: Any) -> Any:
    """A record as it stands in a column of JSON."""
    return msgspec.to_builtins(value, str_keys=True)


def set_arguments(operation: Operation, **values: Any) -> None:
    """Note more about the operation, or otherwise."""
    operation.arguments = {**operation.arguments, **values}


def demand_of(operation: Operation, instance: Instance) -> Demand:
    """What the operation is to place: the size that it brings, or else the server's own."""
    demand = operation.arguments.get("demand")
    return instance.demand if demand is None else msgspec.convert(demand, Demand, strict=False)


def work_for(
    operation: Operation,
    instance: Instance,
    node: Place,
    at: float,
    claim: Claim | None = None,
) -> Work:
    """What to cast to the worker of ``node`` for the operation's present attempt."""
    arguments, rebuild = operation.arguments, rebuild_of(operation)
    work = Work(
        operation=operation.id,
        attempt=operation.attempt,
        kind=operation.kind,
        instance=instance.id,
        name=instance.name,
        project_id=instance.project_id,
        user_id=instance.user_id,
        host=node.host,
        node=node.name,
        demand=demand_of(operation, instance),
        vm_state=instance.vm_state,
        step=operation.step,
        image={
            "create": instance.image_ref,
            "evacuate": instance.image_ref,
            "unshelve": instance.shelved_image,
        }.get(operation.kind),
        snapshot=arguments.get("snapshot"),
        snapshot_name=arguments.get("snapshot_name"),
        snapshot_properties=arguments.get("snapshot_properties", {}),
        snapshot_owner=arguments.get("snapshot_owner"),
        snapshot_min_disk=arguments.get("snapshot_min_disk"),
        claim=claim.id if claim else None,
        placement=claim.placement if claim else None,
        seconds_left=max(1.0, operation.deadline_at - at),
        leg=arguments.get("leg", ""),
        runs=arguments.get("runs", True),
        same_node=arguments.get("same_node", False),
        aborted=arguments.get("aborted", False),
        source=tuple(arguments["source"]) if operation.kind == "evacuate" else None,
        shared_storage=arguments.get("shared_storage"),
        hypervisor=msgspec.convert(arguments["hypervisor"], Hypervisor)
        if "hypervisor" in arguments
        else None,
    )
    return work if rebuild is None else _rebuilding(work, rebuild)


def _rebuilding(work: Work, rebuild: Rebuild) -> Work:
    """The work of a rebuild: what the server is to be made of, and where it is to be, as far as that is known."""
    return msgspec.structs.replace(
        work,
        name=rebuild.fields.get("name", work.name),
        demand=rebuild.demand,
        image=rebuild.image,
        refit=rebuild.refit,
        placement=rebuild.after.placement if rebuild.after else work.placement,
    )
