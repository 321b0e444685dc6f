"""What an API request for a move writes: one function per action, each one transaction, as in ``starts``."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db import claims as book_claims
from pinfold.db import hosts, operations
from pinfold.db.models import Claim, Flavor, Instance, Node, Operation
from pinfold.db.operations import Requester
from pinfold.db.starts import refuse_leftovers, refuse_unfinished_move, require_fenced
from pinfold.db.types import epoch
from pinfold.model import errors, power, states
from pinfold.model.request import Demand
from pinfold.model.work import Bell, Times

Held = tuple[Claim, Node]


class Size(msgspec.Struct, frozen=True):
    """What a server is to be: the copy of a flavor, and what that asks of a node."""

    flavor: dict[str, Any]
    demand: Demand


def resize(
    session: Session,
    instance_id: str,
    requester: Requester,
    times: Times,
    *,
    operation_id: str,
    image_id: str,
    size: Size,
) -> Bell:
    """Open a resize, whose disk will travel as the image ``image_id``.

    Raises errors.NotFound, errors.Conflict, errors.InvalidRequest.
    """
    return _move(session, instance_id, "resize", requester, times, operation_id, image_id, size, None)


def migrate(
    session: Session,
    instance_id: str,
    requester: Requester,
    times: Times,
    *,
    operation_id: str,
    image_id: str,
    host: str | None = None,
) -> Bell:
    """Open a cold migration, to ``host`` if given. Raises as ``resize``."""
    return _move(session, instance_id, "migrate", requester, times, operation_id, image_id, None, host)


def _move(
    session: Session,
    instance_id: str,
    kind: str,
    requester: Requester,
    times: Times,
    operation_id: str,
    image_id: str | None,
    size: Size | None,
    host: str | None,
) -> Bell:
    if operations.is_written(session, operation_id):
        return Bell(run=(operation_id,))
    instance, opened, at = operations.lock_for_start(session, instance_id)
    states.require_start(kind, instance.vm_state, opened.kind if opened else None)
    claims = book_claims.of_instance(session, instance_id)
    _, node = _place(claims, book_claims.CURRENT, kind)
    _require_up(session, node, kind, times)
    refuse_leftovers(session, claims, kind)
    if host == node.host:
        raise errors.InvalidRequest(f"host: the server is on host {host} already.", code="own-host")
    refuse_unfinished_move(claims, kind)
    if size is not None:
        _check_size(instance, size)
    operations.insert(
        session,
        operation_id=operation_id,
        kind=kind,
        instance=instance,
        requester=requester,
        times=times,
        at=at,
        arguments={
            "leg": states.CLAIM,
            **({"snapshot": image_id, "snapshot_name": f"{instance.name[:240]}-move"} if image_id else {}),
            "flavor": size.flavor if size else instance.flavor,
            "demand": operations.as_json(size.demand if size else instance.demand),
            "flavors": [
                _number(session, instance.flavor),
                _number(session, size.flavor if size else instance.flavor),
            ],
            "runs": instance.vm_state == states.ACTIVE,
            "source": [node.host, node.name],
            **({"hypervisor": operations.as_json(node.report.hypervisor)} if kind == "live_migrate" else {}),
            **({"host": host} if host else {}),
        },
    )
    return Bell(run=(operation_id,))


def _number(session: Session, flavor: dict[str, Any]) -> int | None:
    """The number of a flavor, as lists of moves show it; None once it is deleted."""
    return session.scalar(sa.select(Flavor.id).where(Flavor.flavorid == flavor.get("flavorid")))


def _check_size(instance: Instance, size: Size) -> None:
    """A disk cannot shrink, and a resize changes something."""
    # one that was deleted and made anew under its id is another; these cannot be changed
    fixed = ("flavorid", "vcpus", "memory_mb", "root_gb", "ephemeral_gb", "swap_mb")
    if all(size.flavor.get(name) == instance.flavor.get(name) for name in fixed):
        raise errors.InvalidRequest("When resizing, instances must change flavor!", code="same-flavor")
    old, new = instance.demand.disk_gb, size.demand.disk_gb
    if new < old:
        raise errors.InvalidRequest(
            f"flavorRef: the disk of the server has {old} GB and cannot shrink to {new} GB.",
            code="smaller-disk",
        )


def live_migrate(
    session: Session,
    instance_id: str,
    requester: Requester,
    times: Times,
    *,
    operation_id: str,
    host: str | None = None,
) -> Bell:
    """Open a live migration, to ``host`` if given. Raises as ``resize``."""
    return _move(session, instance_id, "live_migrate", requester, times, operation_id, None, None, host)


def wish(session: Session, instance_id: str, number: str, aborted: bool) -> tuple[str, str]:
    """Note that a live migration is aborted (or only look it up); its id, and the host that is doing it.

    ``number`` is its id, whole or as a number. Raises errors.NotFound, errors.Conflict.
    """
    opened = session.scalar(sa.select(Operation).where(Operation.open_key == instance_id).with_for_update())
    if opened is None or opened.kind != "live_migrate":
        raise errors.Conflict(
            "The server is not being moved while it runs: its task_state must be migrating.",
            code="wrong-state",
        )
    if number not in (opened.id, str(int(opened.id[:7], 16))):
        raise errors.NotFound(
            f"In-progress live migration {number[:100]} is not found for server {instance_id}.",
            code="migration-not-found",
        )
    if not aborted and opened.arguments.get("leg") != states.HAND_OVER:
        raise errors.Conflict("The live migration is not running yet.", code="migration-not-running")
    if aborted:
        operations.set_arguments(opened, aborted=True)
    return opened.id, opened.owner_host or ""


def evacuate(
    session: Session,
    instance_id: str,
    requester: Requester,
    times: Times,
    *,
    operation_id: str,
    host: str | None = None,
    stops: bool = False,
    shared_storage: bool | None = None,
) -> Bell:
    """Open an evacuation from a host that is down, taking an open operation over. ``stops``: it is not to run then.
    ``shared_storage`` is whether its disk is thought to be within reach; None leaves that to the worker.

    Raises as ``resize``; errors.InvalidRequest where the host is up.
    """
    if operations.is_written(session, operation_id):
        return Bell(run=(operation_id,))
    instance, opened, at = operations.lock_for_start(session, instance_id)
    if opened is not None and opened.kind in ("delete", "force_delete"):
        raise errors.Conflict("Cannot evacuate the server: it is being deleted.", code="operation-open")
    states.require_start("evacuate", instance.vm_state, opened.kind if opened else None)
    claims = book_claims.of_instance(session, instance_id)
    current = _place(claims, book_claims.CURRENT, "evacuate")
    _require_dead(session, current[1], host, times)
    # the old end of a move runs nothing, and is kept until there is a new guest; the end to be may run one
    incoming = [held for held in book_claims.holding(claims) if held[0].role == book_claims.INCOMING]
    for _, node in incoming:
        require_fenced(session, node, "evacuate")
    refuse_leftovers(session, claims, "evacuate")
    if opened is not None:
        operations.supersede(session, opened, instance, at, ends_the_guest=True)
    operations.to_leftovers(opened, incoming)
    operations.insert(
        session,
        operation_id=operation_id,
        kind="evacuate",
        instance=instance,
        requester=requester,
        times=times,
        at=at,
        arguments={
            "runs": instance.vm_state != states.STOPPED and not stops,
            "source": [current[1].host, current[1].name],
            **({"host": host} if host else {}),
            **({} if shared_storage is None else {"shared_storage": shared_storage}),
        },
    )
    return Bell(run=(operation_id,))


def _require_dead(session: Session, node: Node, host: str | None, times: Times) -> None:
    if host == node.host:
        raise errors.InvalidRequest(f"host: the server is on host {host} already.", code="own-host")
    if hosts.host_is_up(session, node.host, times.service_down):
        raise errors.InvalidRequest(
            f"Compute service of host {node.host} is up. Its servers are evacuated once it is down, or forced down.",
            code="host-up",
        )


def confirm(
    session: Session, instance_id: str, requester: Requester, times: Times, *, operation_id: str
) -> Bell:
    """Open the confirmation of a move, for the worker of the old place. Raises as ``resize``."""
    if operations.is_written(session, operation_id):
        return Bell()
    instance, claims, at = _ready_to_end(session, instance_id, "confirm_resize")
    old = _place(claims, book_claims.OUTGOING, "confirm_resize")
    _require_up(session, old[1], "confirm_resize", times)
    how = _how(instance, claims)
    # shut down from inside meanwhile, as its users see
    how["runs"] = how["runs"] and instance.power_state != power.SHUTDOWN
    return _end(session, instance, "confirm_resize", requester, times, operation_id, at, old, how)


def revert(
    session: Session, instance_id: str, requester: Requester, times: Times, *, operation_id: str
) -> Bell:
    """Open the way back of a move, for the worker of the new place first.

    Where an operator has said that nothing runs there, what is there becomes a leftover, and the worker of the old
    place has the rest to do. Raises as ``resize``.
    """
    if operations.is_written(session, operation_id):
        return Bell()
    instance, claims, at = _ready_to_end(session, instance_id, "revert_resize")
    new = _place(claims, book_claims.CURRENT, "revert_resize")
    old = _place(claims, book_claims.OUTGOING, "revert_resize")
    _require_up(session, old[1], "revert_resize", times)
    how = _how(instance, claims)
    if hosts.is_forced_down(session, new[1].host):
        operations.to_leftovers(None, [new])
        turn_back(session, instance, old)
        how, held = {**how, "leg": states.RESTORE}, old
    else:
        _require_up(session, new[1], "revert_resize", times)
        how, held = {**how, "leg": states.DROP}, new
    return _end(session, instance, "revert_resize", requester, times, operation_id, at, held, how)


def turn_back(session: Session, instance: Instance, old: Held) -> None:
    """The old end of a move is the server's place again, and the old size its size. The new end has been given up."""
    moved = instance.moved_from
    if moved is None:
        raise LookupError(f"server {instance.id} has nothing to go back to")
    # before the other has the role: there is one claim of each
    session.flush()
    book_claims.set_role(*old, book_claims.CURRENT)
    instance.flavor = moved["flavor"]
    instance.demand = msgspec.convert(moved["demand"], Demand, strict=False)
    end_move(session, instance, "reverted")


def end_move(session: Session, instance: Instance, outcome: str) -> None:
    """Nothing waits to be confirmed any more; the move's own record says how it ended."""
    moved = instance.moved_from
    instance.moved_from = instance.moved_at = None
    operation = session.get(Operation, moved["operation"]) if moved else None
    if operation is not None:
        operations.set_arguments(operation, outcome=outcome)


def _ready_to_end(session: Session, instance_id: str, kind: str) -> tuple[Instance, list[Held], float]:
    instance, opened, at = operations.lock_for_start(session, instance_id)
    if opened is not None and opened.kind == "confirm_resize":
        raise errors.InvalidRequest(
            "The server has no finished move: it is being confirmed already.", code="no-finished-move"
        )
    states.require_start(kind, instance.vm_state, opened.kind if opened else None)
    return instance, book_claims.of_instance(session, instance_id), at


def _how(instance: Instance, claims: list[Held]) -> dict[str, Any]:
    """What the workers have to know to end the move."""
    moved = instance.moved_from or {}
    nodes = {node.id for _, node in book_claims.holding(claims)}
    return {"runs": moved.get("runs", True), "same_node": len(nodes) == 1}


def _end(
    session: Session,
    instance: Instance,
    kind: str,
    requester: Requester,
    times: Times,
    operation_id: str,
    at: float,
    held: Held,
    arguments: dict[str, Any],
) -> Bell:
    claim, node = held
    operation = operations.insert(
        session,
        operation_id=operation_id,
        kind=kind,
        instance=instance,
        requester=requester,
        times=times,
        at=at,
        host=node.host,
        arguments=arguments,
    )
    return Bell(work=(operations.work_for(operation, instance, node, at, claim),))


def _place(claims: list[Held], role: str, kind: str) -> Held:
    held = book_claims.with_role(claims, role)
    if held is None:
        raise errors.Conflict(f"Cannot {kind} the server: it has no host.", code="no-host")
    return held


def _require_up(session: Session, node: Node, kind: str, times: Times) -> None:
    if not hosts.host_is_up(session, node.host, times.service_down):
        raise errors.Conflict(
            f"Cannot {kind} the server: the compute service of host {node.host} is down.", code="host-down"
        )


def to_confirm(session: Session, after: float, limit: int) -> list[tuple[str, str, str]]:
    """Servers (id, project, user) that were moved more than ``after`` seconds ago, with nothing under way.

    ::

        SELECT id, project_id, user_id FROM instances LEFT JOIN operations ON open_key = instances.id
        WHERE vm_state = 'resized' AND moved_at < now - :after AND deleted_at IS NULL AND operations.id IS NULL
    """
    rows = session.execute(
        sa.select(Instance.id, Instance.project_id, Instance.user_id)
        .outerjoin(Operation, Operation.open_key == Instance.id)
        .where(
            Instance.vm_state == states.RESIZED,
            Instance.moved_at < epoch() - after,
            Instance.deleted_at.is_(None),
            Operation.id.is_(None),
        )
        .limit(limit)
    )
    return [(server, project, user) for server, project, user in rows]
