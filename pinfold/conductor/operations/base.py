"""What all kinds of operation share on the conductor's side.

An operation's kind is a ``Plan``: what its finish, its failure and its recovery write. Each method
runs inside one transaction with the operation and the instance locked, and returns the bell to
ring after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
from sqlalchemy.orm import Session

from pinfold.conductor.settings import Settings
from pinfold.db import claims as book_claims
from pinfold.db import hosts, operations
from pinfold.db.models import Claim, Instance, Node, Operation
from pinfold.db.operations import Fault
from pinfold.model.work import Bell
from pinfold.rpcapi.messages import Abort, Finished

Held = Sequence[tuple[Claim, Node]]

recorded = operations.is_recorded


class Freed(msgspec.Struct, frozen=True):
    """What a worker is told of its node: a claim that is gone, and the generation after it or after another change.

    ``bell`` is what is to be rung next: the work that another worker has with the operation.
    """

    claim: str | None = None
    generation: int | None = None
    bell: Bell = Bell()


class Deed:
    """One transaction's hold on an operation: rows, the database's clock, and the settings."""

    def __init__(
        self, session: Session, operation: Operation, instance: Instance, at: float, settings: Settings
    ) -> None:
        self.session = session
        self.operation = operation
        self.instance = instance
        self.at = at
        self.settings = settings
        self._claims: Held | None = None

    @property
    def claims(self) -> Held:
        """The instance's claims with their nodes, read once."""
        if self._claims is None:
            self._claims = book_claims.of_instance(self.session, self.instance.id)
        return self._claims

    def claim(self, role: str) -> tuple[Claim, Node] | None:
        """The instance's claim of this role."""
        return book_claims.with_role(self.claims, role)

    def is_up(self, host: str) -> bool:
        """Whether the worker of ``host`` is up."""
        return hosts.host_is_up(self.session, host, self.settings.times.service_down)

    @property
    def past_deadline(self) -> bool:
        """Whether the operation has had its time."""
        return self.operation.deadline_at <= self.at

    def patience(self) -> float:
        """Until when a cast may go unanswered before it is cast again: longer each time."""
        times = self.settings.times
        return self.at + min(times.lease, times.sweep_after * 2.0 ** max(0, self.operation.attempt - 1))

    def cast(self, node: operations.Place, claim: Claim | None, leg: str | None = None) -> Bell:
        """A new attempt, for the worker of ``node``; with ``leg``, from now on that leg of the operation.

        Every new cast raises the attempt.
        """
        if leg is not None:
            operations.set_arguments(self.operation, leg=leg)
        self.operation.attempt += 1
        operations.lease(self.session, self.operation, node.host, None, self.patience())
        self.operation.updated_at = self.at
        return Bell(work=(operations.work_for(self.operation, self.instance, node, self.at, claim),))

    def answered(self, node: str, attempt: int, freed: Freed) -> Finished:
        """The answer to the finish of this attempt on this node, from now on and for ever."""
        finished = Finished(True, released=freed.claim, generation=freed.generation)
        self.operation.finishes = {
            **self.operation.finishes,
            finish_key(attempt, node): msgspec.to_builtins(finished),
        }
        return finished

    def look_again(self) -> Bell:
        """Nothing to do yet: the sweeper looks again soon."""
        self.operation.lease_until = self.at + self.settings.times.sweep_after
        return Bell()

    def close(self, outcome: str, fault: Fault | None = None) -> None:
        """End the operation."""
        operations.close(self.operation, self.instance, outcome, self.at, fault)

    def leave(self, held: Held) -> None:
        """Turn claims into leftovers."""
        operations.to_leftovers(self.operation, held)

    def free(self, held: tuple[Claim, Node]) -> Freed:
        """Delete a claim, on the word of its node's worker."""
        claim_id = held[0].id
        generation = book_claims.free(self.session, *held)
        self._claims = [pair for pair in self.claims if pair[0].id != claim_id]
        return Freed(claim_id, generation)


def finish_key(attempt: int, node: str) -> str:
    """Under which an operation keeps the answer to a finish."""
    return f"{attempt} {node}"


class Plan(Protocol):
    """The conductor's side of one kind of operation."""

    def may_claim(self, deed: Deed) -> bool:
        """Whether the operation may take a claim, by what the instance holds now."""

    def finish(self, deed: Deed, node: str) -> Freed:
        """The worker of ``node`` has done all its steps."""

    def abort(self, deed: Deed, abort: Abort) -> tuple[Freed, Bell]:
        """The worker could not do a step, and has undone what it made."""

    def resume(self, deed: Deed) -> Bell:
        """Its lease has run out: run it on from its recorded step, or unwind it."""

    def entered(self, deed: Deed, step: str) -> bool:
        """The worker begins ``step``, which has been noted. For ``record``: whether to go on and offload."""


def gave_up(deed: Deed, host: str) -> Fault:
    """The fault of an operation whose worker did not end it."""
    step = deed.operation.step or "its first step"
    if deed.past_deadline:
        return Fault(f"Operation {deed.operation.kind} did not end in time; it was in {step} on {host}.")
    return Fault(f"Host {host} stopped answering while it was in {step} of {deed.operation.kind}.")
