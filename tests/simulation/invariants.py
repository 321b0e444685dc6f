"""What must hold after every step, whatever has just failed, and what must hold once everything has settled.

Nothing here knows how the product works: it compares the rows of the book with the guests of the hypervisors and the
images of the store. Usable by other tests that have these three.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from pinfold.model.numa import Placement, held_cpus
from pinfold.virt.driver import PAUSED, RUNNING, SUSPENDED
from tests.simulation.hypervisor import Machine, SimGuest
from tests.simulation.images import Images

HOLDING = ("incoming", "current", "outgoing")
DELETES = ("delete", "force_delete")
#: The roles of the claims of a server without an open operation, by its state.
HELD = {
    **{
        state: ["current"] for state in ("active", "stopped", "paused", "suspended", "shelved", "soft-delete")
    },
    "shelved_offloaded": [],
    "resized": ["current", "outgoing"],
}
#: While these are open, what runs on the server's place may be new, and is not yet the server's.
REPLACING = ("resize", "migrate", "rebuild", "evacuate")
_placement = msgspec.json.Decoder(Placement)


class Violation(Exception):
    """An invariant does not hold."""


class InstanceRow(msgspec.Struct, frozen=True):
    """A server that is not deleted. ``ran``: whether it ran before the move that is to be confirmed."""

    vm_state: str
    shelved_image: str | None
    image_ref: str
    ran: bool | None


class OperationRow(msgspec.Struct, frozen=True):
    """An open operation."""

    kind: str
    instance: str
    attempt: int
    step: str | None
    owner: str | None
    snapshot: str | None


class ClaimRow(msgspec.Struct, frozen=True):
    """A claim."""

    instance: str
    node: str
    role: str
    operation: str | None


class Picture(msgspec.Struct, frozen=True):
    """What the book holds, read in one go. ``later`` is what of the outbox is only to be looked at again one day."""

    instances: dict[str, InstanceRow]
    operations: dict[str, OperationRow]
    claims: dict[str, ClaimRow]
    pins: dict[str, frozenset[int]]
    nodes: dict[str, int]
    outbox: tuple[str, ...]
    later: frozenset[str]

    def of(self, instance: str) -> list[ClaimRow]:
        """The claims of one server."""
        return [claim for claim in self.claims.values() if claim.instance == instance]


def read(raw: sqlite3.Connection) -> Picture:
    """The picture that a connection shows, outside of any transaction."""
    pins: dict[str, set[int]] = {}
    for claim, cpu in raw.execute("SELECT claim_id, cpu FROM pins"):
        pins.setdefault(claim, set()).add(cpu)
    return Picture(
        instances={
            row[0]: InstanceRow(*row[1:])
            for row in raw.execute(
                "SELECT id, vm_state, shelved_image, image_ref, json_extract(moved_from, '$.runs') FROM instances "
                "WHERE deleted_at IS NULL"
            )
        },
        operations={
            row[0]: OperationRow(*row[1:])
            for row in raw.execute(
                "SELECT id, kind, instance_id, attempt, step, owner_host, json_extract(arguments, '$.snapshot') "
                "FROM operations WHERE open_key IS NOT NULL"
            )
        },
        claims={
            row[0]: ClaimRow(*row[1:])
            for row in raw.execute(
                "SELECT claims.id, instance_id, nodes.name, role, operation_id FROM claims "
                "JOIN nodes ON nodes.id = node_id"
            )
        },
        pins={claim: frozenset(cpus) for claim, cpus in pins.items()},
        nodes=dict(raw.execute("SELECT name, generation FROM nodes").fetchall()),
        outbox=tuple(row[0] for row in raw.execute("SELECT subject FROM outbox")),
        later=frozenset(
            row[0]
            for row in raw.execute("SELECT subject FROM outbox WHERE due_at > created_at AND tries = 0")
        ),
    )


class Invariants:
    """Checks pictures one after another.

    ``latest`` is what stands on the disk of each server that has run, ``before_move`` what stood there before a move
    that is to be confirmed, ``pictures`` are images that users have asked for.
    """

    def __init__(self, raw: sqlite3.Connection, machines: Iterable[Machine], images: Images) -> None:
        self._raw = raw
        self._machines = tuple(machines)
        self._images = images
        self._placed: dict[str, frozenset[int]] = {}
        self._before: Picture | None = None
        self.latest: dict[str, bytes] = {}
        self.before_move: dict[str, bytes] = {}
        self.pictures: set[str] = set()
        self._writes = 0
        self.lost_on_purpose: set[str] = set()

    def check(self, picture: Picture) -> None:
        """Raises Violation."""
        for problem in self._problems(picture):
            raise Violation(problem)
        self._before = picture

    def _problems(self, picture: Picture) -> Iterator[str]:
        yield from self._pins(picture)
        yield from self._generations(picture)
        yield from self._claims(picture)
        yield from self._states(picture)
        yield from self._guests(picture)
        yield from self._disks(picture)

    # --- the book alone ------------------------------------------------------------------------

    def _pins(self, picture: Picture) -> Iterator[str]:
        """Pins are exactly the CPUs of claims' placements."""
        for claim in picture.claims:
            pins = picture.pins.get(claim, frozenset())
            if self._placed.get(claim) != pins:
                self._placed[claim] = self._read_placement(claim)
            if pins != self._placed[claim]:
                yield f"claim {claim} is placed on {set(self._placed[claim])}, and its pins differ"
        if picture.pins.keys() - picture.claims.keys():
            yield "there are pins without a claim"

    def _read_placement(self, claim: str) -> frozenset[int]:
        (text,) = self._raw.execute("SELECT placement FROM claims WHERE id = ?", (claim,)).fetchone()
        cells = _placement.decode(text).cells if text else ()
        return frozenset().union(*(held_cpus(cell) for cell in cells))

    def _generations(self, picture: Picture) -> Iterator[str]:
        """Whatever changes the claims of a node raises its generation; nothing ever lowers it."""
        before = self._before
        if before is None:
            return
        for node, generation in picture.nodes.items():
            old = before.nodes.get(node, -1)
            if generation < old:
                yield f"the generation of {node} went from {old} back to {generation}"
            if generation == old and _on(before, node) != _on(picture, node):
                yield f"the claims of {node} have changed, and its generation is still {generation}"

    def _claims(self, picture: Picture) -> Iterator[str]:
        roles: set[tuple[str, str]] = set()
        going = {row.instance for row in picture.operations.values() if row.kind in DELETES}
        for identity, claim in picture.claims.items():
            if claim.role in HOLDING:
                if (claim.instance, claim.role) in roles:
                    yield f"server {claim.instance} has two claims that are {claim.role}"
                roles.add((claim.instance, claim.role))
            if claim.role == "incoming" and not (
                claim.operation in picture.operations or claim.instance in going
            ):
                yield f"claim {identity} is incoming, and its operation {claim.operation} is not open"
        kinds = [operation.instance for operation in picture.operations.values()]
        if len(kinds) != len(set(kinds)):
            yield "a server has two open operations"

    def _states(self, picture: Picture) -> Iterator[str]:
        """A server without an open operation holds what its state says, and nothing else."""
        busy = {operation.instance for operation in picture.operations.values()}
        held: dict[str, list[str]] = {}
        for claim in picture.claims.values():
            if claim.role in HOLDING:
                held.setdefault(claim.instance, []).append(claim.role)
        for instance, roles in held.items():
            if instance not in picture.instances:
                yield f"server {instance} is deleted and still has a claim that is {roles}"
        for instance, row in picture.instances.items():
            roles = held.get(instance, [])
            if instance in busy:
                continue
            if row.vm_state in HELD and sorted(roles) != HELD[row.vm_state]:
                yield f"server {instance} is {row.vm_state} and its claims are {roles}"
            if row.vm_state == "building":
                yield f"server {instance} is building, and nobody builds it"

    # --- book and hypervisor -------------------------------------------------------------------

    def _guests(self, picture: Picture) -> Iterator[str]:
        running: dict[str, str] = {}
        for machine in self._machines:
            used: dict[int, str] = {}
            for instance, guest in machine.guests.items():
                if not guest.runs:
                    continue
                for cpu in guest.cpus:
                    if cpu in used:
                        yield f"CPU {cpu} of {machine.node} is run by {used[cpu]} and {instance}"
                    used[cpu] = instance
                yield from self._is_claimed(picture, machine.node, instance, guest)
                if instance in running:
                    yield f"server {instance} runs on {running[instance]} and on {machine.node}"
                running[instance] = machine.node

    def _is_claimed(self, picture: Picture, node: str, instance: str, guest: SimGuest) -> Iterator[str]:
        """Whatever runs has a claim there, for all of its CPUs."""
        for identity, claim in picture.claims.items():
            if claim.instance == instance and claim.node == node and guest.cpus <= self._placed[identity]:
                return
        yield f"server {instance} runs on {node} on CPUs {set(guest.cpus)} without a claim for them"

    # --- disks ---------------------------------------------------------------------------------

    def _disks(self, picture: Picture) -> Iterator[str]:
        """No disk is lost: what a server last wrote is on a guest, or in the image it will be started from."""
        self._follow(picture)
        yield from self._let_guests_write(picture)
        kinds = {row.instance: row.kind for row in picture.operations.values()}
        for instance, latest in self.latest.items():
            row = picture.instances.get(instance)
            if row is None or kinds.get(instance) in DELETES or row.vm_state == "error":
                continue
            if row.shelved_image in self.lost_on_purpose:
                continue
            kept = self._kept_disks(instance, row)
            kind = kinds.get(instance)
            if latest not in kept and kind != "revert_resize":
                yield f"the disk of server {instance} is lost: it was {latest!r}, and there is {kept}"
            old = self.before_move.get(instance)
            if row.vm_state == "resized" and kind != "confirm_resize" and old is not None and old not in kept:
                yield f"the disk of server {instance} before its move is lost: it was {old!r}, and there is {kept}"

    def _kept_disks(self, instance: str, row: InstanceRow) -> list[bytes]:
        kept = [
            there[instance].disk
            for machine in self._machines
            for there in (machine.guests, machine.aside)
            if instance in there
        ]
        image = self._images.data.get(row.shelved_image or "")
        return kept if image is None else [*kept, image]

    def _follow(self, picture: Picture) -> None:
        """What is meant to change a disk: a revert goes back, a rebuild and an evacuation begin anew."""
        before = self._before.claims if self._before else {}
        for identity, claim in picture.claims.items():
            role = before[identity].role if identity in before else ""
            if (role, claim.role) == ("current", "outgoing") and claim.instance in self.latest:
                self.before_move[claim.instance] = self.latest[claim.instance]
            if (role, claim.role) == ("outgoing", "current") and claim.instance in self.before_move:
                self.latest[claim.instance] = self.before_move.pop(claim.instance)
        for operation in picture.operations.values():
            if (operation.kind, operation.step) in (("rebuild", "rebuild"), ("evacuate", "spawn")):
                self.latest.pop(operation.instance, None)
                self.before_move.pop(operation.instance, None)
            if operation.kind == "create_image" and operation.snapshot:
                self.pictures.add(operation.snapshot)

    def _let_guests_write(self, picture: Picture) -> Iterator[str]:
        """A guest that runs for its server writes to its disk once a boot: so old data can be told from new."""
        current = {
            (claim.instance, claim.node) for claim in picture.claims.values() if claim.role == "current"
        }
        # A shelved server's image is its disk; what a guest writes in an unshelve that fails is lost with it.
        served = {instance for instance, row in picture.instances.items() if row.vm_state != "shelved"}
        made = {row.instance for row in picture.operations.values() if row.kind in REPLACING}
        for machine in self._machines:
            for instance, guest in machine.guests.items():
                if (
                    guest.record.power_state == RUNNING
                    and guest.written < guest.boots
                    and (instance, machine.node) in current
                    and instance in served
                    and instance not in made
                ):
                    latest = self.latest.get(instance)
                    if latest is not None and guest.disk != latest:
                        yield f"server {instance} was started from {guest.disk!r}, and its disk was {latest!r}"
                    guest.written = guest.boots
                    self._writes += 1
                    self.latest[instance] = guest.disk = f"{instance}:{self._writes}".encode()

    # --- when everything has settled ----------------------------------------------------------

    def unsettled(self, picture: Picture, base_images: Iterable[str]) -> list[str]:
        """What is not yet, or never will be, as it should be when nothing fails any more."""
        return [
            *(f"operation {identity} is open: {row}" for identity, row in picture.operations.items()),
            *(
                f"claim {identity} is {row.role}"
                for identity, row in picture.claims.items()
                if row.role not in ("current", "outgoing")
            ),
            *(
                f"the outbox still holds {subject}"
                for subject in picture.outbox
                if subject in self._images.records or subject not in picture.later
            ),
            *self._unsettled_guests(picture),
            *self._unsettled_images(picture, base_images),
        ]

    def _unsettled_guests(self, picture: Picture) -> Iterator[str]:
        wanted = sorted(
            (row.instance, row.node, row.role)
            for row in picture.claims.values()
            if row.role in ("current", "outgoing")
        )
        there = sorted(
            (instance, machine.node, role)
            for machine in self._machines
            for role, guests in (("guest", machine.guests), ("aside", machine.aside))
            for instance in guests
        )
        at_home = {(instance, node) for instance, node, role in wanted if role == "current"}
        for instance, node, role in wanted:
            place = "aside" if role == "outgoing" and (instance, node) in at_home else "guest"
            if (instance, node, place) not in there:
                if picture.instances[instance].vm_state == "error":
                    continue  # a rebuild has failed in the middle
                yield f"server {instance} has a claim on {node} that is {role}, and no guest there"
                continue
            there.remove((instance, node, place))
            yield from self._unfit(picture.instances[instance], instance, node, role)
        for instance, node, place in there:
            yield f"{node} has a {place} of server {instance}, which has no claim there"
        for machine in self._machines:
            for request in machine.requests:
                yield f"{machine.node} is still busy with {request.what}"

    def _unfit(self, row: InstanceRow, instance: str, node: str, role: str) -> Iterator[str]:
        machine = next(machine for machine in self._machines if machine.node == node)
        guest = machine.guests[instance]
        if role == "outgoing":
            runs_wrongly = guest.runs and instance not in machine.aside
        else:
            runs_wrongly = not _fits(row, guest.record.power_state)
        if runs_wrongly:
            state = guest.record.power_state
            yield f"server {instance} is {row.vm_state}, and its guest on {node} ({role}) is in state {state}"

    def _unsettled_images(self, picture: Picture, base_images: Iterable[str]) -> Iterator[str]:
        wanted = {row.shelved_image for row in picture.instances.values() if row.shelved_image} | {
            *base_images
        }
        there = set(self._images.records)
        for image in sorted(there - wanted):
            if image not in self.pictures or self._images.records[image].status != "active":
                yield f"image {image} is left in the store"
        for image in sorted(wanted - there - self.lost_on_purpose):
            yield f"image {image} is not in the store"


def _on(picture: Picture, node: str) -> Mapping[str, Any]:
    return {identity: claim for identity, claim in picture.claims.items() if claim.node == node}


def _fits(row: InstanceRow, power_state: int) -> bool:
    """Whether a guest does what its server's state says."""
    if row.vm_state == "active":
        return power_state == RUNNING
    if row.vm_state == "error" or (row.vm_state == "resized" and row.ran):
        return True  # nobody starts the guest of a server that waits for its move to be confirmed
    if row.vm_state == "paused":
        return power_state == PAUSED
    return power_state not in (RUNNING, PAUSED) or (row.vm_state == "suspended" and power_state == SUSPENDED)
