"""What must hold in a town after every step, whatever has just failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db.models import Claim, Instance, Node, Operation, Pin
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
    "soft-delete": ["current"],
    "building": [],
}


def cpus_of(placement: Placement | None) -> frozenset[int]:
    """The host CPUs that a placement holds."""
    return frozenset().union(*(held_cpus(cell) for cell in placement.cells)) if placement else frozenset()


class Seen(msgspec.Struct, frozen=True):
    """What the book says, read at once: servers as id, state, when deleted, and open operation."""

    nodes: dict[int, str]
    generations: dict[str, int]
    claims: list[Claim]
    pins: dict[str, set[int]]
    servers: list[tuple[str, str, float | None, str | None]]


def check(town: Town) -> None:
    """Raises AssertionError. Leftovers are allowed beside everything else."""
    assert town.refused == [], "a hypervisor was asked for the impossible"
    seen = town.book.read(_seen)
    for claim in seen.claims:
        assert seen.pins.get(claim.id, set()) == cpus_of(claim.placement), f"the pins of {claim.id} are torn"
    _check_guests(town, seen)
    _check_states(seen)
    _check_trackers(town, seen)


def _seen(session: Session) -> Seen:
    nodes = session.execute(sa.select(Node.id, Node.name, Node.generation)).all()
    pins: dict[str, set[int]] = {}
    for claim, cpu in session.execute(sa.select(Pin.claim_id, Pin.cpu)):
        pins.setdefault(claim, set()).add(cpu)
    servers = session.execute(
        sa.select(Instance.id, Instance.vm_state, Instance.deleted_at, Operation.id).outerjoin(
            Operation, Operation.open_key == Instance.id
        )
    )
    return Seen(
        {number: name for number, name, _ in nodes},
        {name: generation for _, name, generation in nodes},
        list(session.scalars(sa.select(Claim))),
        pins,
        [(server, state, gone, operation) for server, state, gone, operation in servers],
    )


def records(town: Town) -> list[Record]:
    """All guests of all hypervisors, with their pins."""
    return [
        record
        for worker in town.workers.values()
        for folder in worker.hypervisor._folders.values()
        for record in folder.all()
    ]


def _check_guests(town: Town, seen: Seen) -> None:
    running: set[str] = set()
    used: set[tuple[str, int]] = set()
    for guest in records(town):
        there = [
            claim
            for claim in seen.claims
            if claim.instance_id == guest.instance and seen.nodes[claim.node_id] == guest.node
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


def _check_states(seen: Seen) -> None:
    """A server without an open operation holds what its state says."""
    held: dict[str, list[str]] = {}
    for claim in seen.claims:
        if claim.role != "leftover":
            held.setdefault(claim.instance_id, []).append(claim.role)
    for server, vm_state, deleted_at, operation in seen.servers:
        roles = sorted(held.get(server, []))
        if deleted_at is not None:
            assert not roles, f"{server} is deleted and holds {roles}"
        elif operation is None and vm_state in HELD:
            assert roles == HELD[vm_state], f"{server} is {vm_state} and holds {roles}"


def _check_trackers(town: Town, seen: Seen) -> None:
    """What a worker believes of a node, once it has read what it knows that it has missed."""
    book: dict[str, set[str]] = {}
    for claim in seen.claims:
        book.setdefault(seen.nodes[claim.node_id], set()).add(claim.id)
    for worker in town.workers.values():
        for node in worker.nodes if worker.up else ():
            believed = worker.tracker.view(node)
            if believed.generation != seen.generations[node]:
                believed = worker.tracker.current_view(node)
            assert {claim.id for claim in believed.claims} == book.get(node, set())
