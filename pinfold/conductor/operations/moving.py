"""Resize and cold migration: one leg after another, on two workers (or twice on one).

===========  ===========  =================================================================================
leg          worker       at its end, in one transaction
===========  ===========  =================================================================================
claim        destination  its claim is ``incoming``; the source's stays ``current``
send         source       the guest is off, and its disk in a temporary image
receive      destination  source ``outgoing``, destination ``current``, the new size; the server is resized
withdraw     destination  what was made there is gone: its claim goes
restore      source       the guest is as it was: the move has failed
===========  ===========  =================================================================================

``withdraw`` and ``restore`` are the way back, in this order: the source's guest is started again only once the
destination has said that nothing runs there. Where it cannot say so, its claim is a ``leftover`` and the source's
guest stays off, whatever its users do, until the destination's worker has looked; then the source's audit starts it.
"""

from __future__ import annotations

from pinfold.conductor.operations.base import Deed, Freed, gave_up
from pinfold.conductor.operations.placing import Placing
from pinfold.db import claims as book_claims
from pinfold.db import operations
from pinfold.db.models import Claim, Node
from pinfold.db.operations import Fault
from pinfold.model import power, states
from pinfold.model.work import Bell
from pinfold.rpcapi.messages import Abort

UNWIND_SECONDS = 60.0
"""What the way back may take, beyond the operation's deadline."""

_STAYS_OFF = " The guest stays off until host {host} has said that it runs there no more."


class Moving(Placing):
    """The plan of a move that is to be confirmed."""

    def may_claim(self, deed: Deed) -> bool:
        """It keeps its place while it looks for another."""
        return [claim.role for claim, _ in book_claims.holding(deed.claims)] == [book_claims.CURRENT]

    # --- forward -------------------------------------------------------------------------------

    def finish(self, deed: Deed, node: str) -> Freed:
        ends = {
            states.CLAIM: self._claimed,
            states.SEND: self._sent,
            states.RECEIVE: self._received,
            states.WITHDRAW: self._withdrawn,
            states.RESTORE: self._restored,
        }
        return ends[leg_of(deed)](deed)

    def _claimed(self, deed: Deed) -> Freed:
        source, target = self._ends(deed)
        operations.set_arguments(deed.operation, same_node=source[1].id == target[1].id)
        return Freed(bell=self._cast(deed, source, states.SEND))

    def _sent(self, deed: Deed) -> Freed:
        _, target = self._ends(deed)
        return Freed(bell=self._cast(deed, target, states.RECEIVE))

    def _received(self, deed: Deed) -> Freed:
        source, target = self._ends(deed)
        book_claims.set_role(*source, book_claims.OUTGOING)
        # before the other has the role: there is one claim of each
        deed.session.flush()
        generation = book_claims.set_role(*target, book_claims.CURRENT)
        instance, arguments = deed.instance, deed.operation.arguments
        instance.moved_from = {
            "flavor": instance.flavor,
            "demand": operations.as_json(instance.demand),
            "runs": arguments["runs"],
            "operation": deed.operation.id,
        }
        instance.moved_at = deed.at
        instance.demand = operations.demand_of(deed.operation, instance)
        instance.flavor = arguments["flavor"]
        operations.drop_unrecorded_image(deed.session, deed.operation, instance, deed.at)
        deed.close(states.DONE)
        return Freed(None, generation)

    @staticmethod
    def _ends(deed: Deed) -> tuple[tuple[Claim, Node], tuple[Claim, Node]]:
        source, target = deed.claim(book_claims.CURRENT), deed.claim(book_claims.INCOMING)
        if source is None or target is None:
            raise LookupError(f"operation {deed.operation.id} has lost one of its claims")
        return source, target

    def _cast(self, deed: Deed, held: tuple[Claim, Node], leg: str) -> Bell:
        """On to the next worker, unless it is down."""
        claim, node = held
        if not deed.is_up(node.host):
            return self._unwind(deed, Fault(f"Host {node.host} is down, and the server cannot be moved."))
        return deed.cast(node, claim, leg)

    # --- failures ------------------------------------------------------------------------------

    def abort(self, deed: Deed, abort: Abort) -> tuple[Freed, Bell]:
        leg = leg_of(deed)
        if leg == states.CLAIM:
            return super().abort(deed, abort)
        operations.note_error(deed.operation, abort.message, deed.at)
        fault = Fault(abort.message, abort.details)
        if leg == states.SEND:
            # the worker has taken back what it did
            operations.set_arguments(deed.operation, source_back=True)
            return Freed(), self._unwind(deed, fault)
        if leg == states.RESTORE:
            self.fail(deed, self._first_fault(deed, fault))
            return Freed(), Bell()
        return self._target_failed(deed, abort, fault)

    def _target_failed(self, deed: Deed, abort: Abort, fault: Fault) -> tuple[Freed, Bell]:
        freed = Freed()
        target = deed.claim(book_claims.INCOMING)
        # the way back is to make it clean, and has failed to
        clean = abort.clean and leg_of(deed) != states.WITHDRAW
        if target is not None and clean:
            freed = deed.free(target)
        elif target is not None:
            deed.leave([target])
        return freed, self._unwind(deed, fault)

    def fail(self, deed: Deed, fault: Fault, *, image_gone: bool = False) -> None:
        """It goes on where it was."""
        operations.drop_unrecorded_image(deed.session, deed.operation, deed.instance, deed.at)
        deed.close(states.FAILED, fault)

    # --- the way back --------------------------------------------------------------------------

    def _unwind(self, deed: Deed, fault: Fault) -> Bell:
        """The destination first, then the source."""
        if "fault" not in deed.operation.arguments:
            operations.set_arguments(deed.operation, fault=operations.as_json(fault))
            deed.operation.deadline_at = deed.at + UNWIND_SECONDS
        target = deed.claim(book_claims.INCOMING)
        if target is None:
            return self._restore(deed)
        claim, node = target
        if deed.is_up(node.host) and not deed.past_deadline:
            return deed.cast(node, claim, states.WITHDRAW)
        deed.leave([target])
        return self._restore(deed)

    def _withdrawn(self, deed: Deed) -> Freed:
        target = deed.claim(book_claims.INCOMING)
        freed = Freed() if target is None else deed.free(target)
        bell = self._restore(deed)
        return Freed(freed.claim, freed.generation, bell)

    def _restore(self, deed: Deed) -> Bell:
        """Let the source be as it was, if it was touched and nothing can run at the destination."""
        fault = self._first_fault(deed)
        begun = {entry["step"] for entry in deed.operation.log}
        if deed.operation.left_leftover and "finish_migration" in begun:
            host = deed.operation.arguments["target"][0]
            note = _STAYS_OFF.format(host=host) if deed.operation.arguments["runs"] else ""
            self.fail(deed, Fault(fault.message + note, fault.details))
            deed.instance.power_state = power.SHUTDOWN
            return Bell()
        source = deed.claim(book_claims.CURRENT)
        back = deed.operation.arguments.get("source_back") or "power_off" not in begun
        if back or source is None or not deed.is_up(source[1].host) or deed.past_deadline:
            self.fail(deed, fault)
            return Bell()
        return deed.cast(source[1], source[0], states.RESTORE)

    def _restored(self, deed: Deed) -> Freed:
        self.fail(deed, self._first_fault(deed))
        return Freed()

    @staticmethod
    def _first_fault(deed: Deed, other: Fault | None = None) -> Fault:
        """Why the move failed, rather than what failed after it."""
        known = deed.operation.arguments.get("fault")
        if known is None:
            return other or Fault("The server could not be moved.")
        first = Fault(**known)
        return first if other is None else Fault(f"{first.message} {other.message}", first.details)

    # --- recovery ------------------------------------------------------------------------------

    def resume(self, deed: Deed) -> Bell:
        leg = leg_of(deed)
        if leg == states.CLAIM:
            return super().resume(deed)
        role = book_claims.CURRENT if leg in (states.SEND, states.RESTORE) else book_claims.INCOMING
        held = deed.claim(role)
        if held is not None and deed.is_up(held[1].host) and not deed.past_deadline:
            return deed.cast(held[1], held[0])
        fault = gave_up(deed, held[1].host if held else "its host")
        if leg == states.RESTORE:
            self.fail(deed, self._first_fault(deed, fault))
            return Bell()
        return self._unwind(deed, fault)


def leg_of(deed: Deed) -> str:
    """The leg that the operation is in."""
    leg: str = deed.operation.arguments.get("leg", states.CLAIM)
    return leg
