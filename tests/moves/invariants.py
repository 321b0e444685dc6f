"""What must hold in a town after every step, whatever has just failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from pinfold.db import hosts
from pinfold.db.models import Instance, Operation
from pinfold.model.numa import Placement, held_cpus
from pinfold.virt.driver import RUNNING
from pinfold.virt.guests import Record

if TYPE_CHECKING:
    from tests.moves.town import Town

HELD = {
    "active": ["current"],
    "stopped": ["current"],
    "paused": ["current"],
    "suspended": ["current"],
    "shelved": ["current"],
    "resized": ["current", "outgoing"],
    "shelved_offloaded": [],
    "building": [],
}


def cpus_of(placement: Placement | None) -> frozenset[int]:
    """The host CPUs that a placement holds."""
    return frozenset().union(*(held_cpus(cell) for cell in placement.cells)) if placement else frozenset()


def check(town: Town) -> None:
    """Raises AssertionError. Leftovers are allowed beside everything else."""
    assert town.book.read(hosts.torn_claims) == []
    assert town.refused == [], "a hypervisor was asked for the impossible"
    _check_guests(town)
    _check_states(town)
    _check_trackers(town)


def records(town: Town) -> list[Record]:
    """All guests of all hypervisors, with their pins."""
    return [
        record
        for worker in town.workers.values()
        for folder in worker.hypervisor._folders.values()
        for record in folder.all()
    ]


def _check_guests(town: Town) -> None:
    claims = town.claims()
    names = {number: name for name, number in _nodes(town).items()}
    running: set[str] = set()
    used: set[tuple[str, int]] = set()
    for guest in records(town):
        there = [
            claim
            for claim in claims
            if claim.instance_id == guest.instance and names[claim.node_id] == guest.node
        ]
        assert there, f"{guest.node} has a guest of {guest.instance}, which has no claim there"
        if guest.power_state != RUNNING:
            continue
        assert guest.instance not in running, f"{guest.instance} runs twice"
        running.add(guest.instance)
        cpus = cpus_of(guest.placement)
        assert any(cpus_of(claim.placement) == cpus for claim in there), f"{guest} runs on CPUs of no claim"
        taken = {(guest.node, cpu) for cpu in cpus}
        assert not taken & used, f"{guest} runs on a CPU of another"
        used |= taken


def _nodes(town: Town) -> dict[str, int]:
    from pinfold.db.models import Node

    return dict(town.book.read(lambda session: session.execute(sa.select(Node.name, Node.id)).all()))


def _check_states(town: Town) -> None:
    """A server without an open operation holds what its state says."""
    held: dict[str, list[str]] = {}
    for claim in town.claims():
        if claim.role != "leftover":
            held.setdefault(claim.instance_id, []).append(claim.role)
    rows = town.book.read(
        lambda session: session.execute(
            sa.select(Instance.id, Instance.vm_state, Instance.deleted_at, Operation.id).outerjoin(
                Operation, Operation.open_key == Instance.id
            )
        ).all()
    )
    row: Any
    for row in rows:
        server, vm_state, deleted_at, operation = row
        roles = sorted(held.get(server, []))
        if deleted_at is not None:
            assert not roles, f"{server} is deleted and holds {roles}"
        elif operation is None and vm_state in HELD:
            assert roles == HELD[vm_state], f"{server} is {vm_state} and holds {roles}"


def _check_trackers(town: Town) -> None:
    for worker in town.workers.values():
        if not worker.up:
            continue
        for node in worker.nodes:
            believed = worker.tracker.current_view(node)
            book = town.box.view(node)
            assert {claim.id for claim in believed.claims} == {claim.id for claim in book.claims}
