"""What a transaction changed, as lines of the history."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History
from tests.simulation.invariants import Picture


def changes(history: History, before: Picture | None, after: Picture) -> Iterator[str]:
    """The difference of two pictures, in words."""
    if before is None:
        return
    for identity, server in after.instances.items():
        old = before.instances.get(identity)
        if old is None:
            yield f"server {history.name('s', identity)} is {server.vm_state}"
        elif old != server:
            image = f", image {history.name('i', server.shelved_image)}" if server.shelved_image else ""
            yield f"server {identity}: {old.vm_state} -> {server.vm_state}{image}"
    for identity in before.instances.keys() - after.instances.keys():
        yield f"server {identity} is deleted"
    yield from _operations(history, before, after)
    yield from _claims(history, before, after)
    for subject in after.outbox:
        if subject not in before.outbox:
            yield f"outbox: {subject} is to be deleted"
    for subject in before.outbox:
        if subject not in after.outbox:
            yield f"outbox: {subject} is done"


def _operations(history: History, before: Picture, after: Picture) -> Iterator[str]:
    for identity, row in after.operations.items():
        old = before.operations.get(identity)
        if old is None:
            name = history.name("o", identity)
            if row.snapshot:
                history.name("i", row.snapshot)
            yield f"operation {name} ({row.kind} of {row.instance}) is open, attempt {row.attempt}"
        elif old != row:
            yield f"operation {identity}: attempt {row.attempt}, step {row.step}, owner {row.owner}"
    for identity in before.operations.keys() - after.operations.keys():
        yield f"operation {identity} ({before.operations[identity].kind}) is closed"


def _claims(history: History, before: Picture, after: Picture) -> Iterator[str]:
    for identity, row in after.claims.items():
        old = before.claims.get(identity)
        if old is None:
            cpus = sorted(after.pins.get(identity, ()))
            yield f"claim {history.name('c', identity)} of {row.instance} on {row.node}: {row.role}, CPUs {cpus}"
        elif old != row:
            yield f"claim {identity} of {row.instance} on {row.node}: {old.role} -> {row.role}"
    for identity in before.claims.keys() - after.claims.keys():
        row = before.claims[identity]
        yield f"claim {identity} of {row.instance} on {row.node} ({row.role}) is gone"
