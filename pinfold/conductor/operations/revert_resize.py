"""Revert: the new place of a server that was moved is given up, and its old guest runs again.

Its two legs: ``drop`` (the worker of the new place removes the guest; then, in one transaction, that claim goes and
the old one is ``current``, with the old size) and ``restore`` (the worker of the old place starts the guest if it
ran). Where the host of the new place is forced down there is only the second.
"""

from __future__ import annotations

from pinfold.conductor.operations import inplace
from pinfold.conductor.operations.base import Deed, Freed, gave_up, recorded
from pinfold.conductor.operations.outcomes import done_or_off
from pinfold.db import claims as book_claims
from pinfold.db import moves
from pinfold.db.models import Claim, Node
from pinfold.db.operations import Fault
from pinfold.model import power, states
from pinfold.model.work import Bell
from pinfold.rpcapi.messages import Abort


class RevertResize(inplace.InPlace):
    """Once the new guest may be gone it only goes forward."""

    def finish(self, deed: Deed, node: str) -> Freed:
        if _leg(deed) == states.RESTORE:
            deed.close(done_or_off(deed))
            return Freed()
        held = deed.claim(book_claims.CURRENT)
        freed = Freed() if held is None else deed.free(held)
        claim, old = self._turn_back(deed)
        if not deed.is_up(old.host):
            self._give_up_restoring(deed, Fault(f"Host {old.host} is down: the guest there is off for now."))
            return freed
        return Freed(freed.claim, freed.generation, deed.cast(old, claim, states.RESTORE))

    def _turn_back(self, deed: Deed) -> tuple[Claim, Node]:
        """The old place is the server's place again, and the old size its size."""
        held = deed.claim(book_claims.OUTGOING)
        if held is None:
            raise LookupError(f"server {deed.instance.id} has nothing to go back to")
        moves.turn_back(deed.session, deed.instance, held)
        return held

    def abort(self, deed: Deed, abort: Abort) -> tuple[Freed, Bell]:
        fault = Fault(abort.message, abort.details)
        if _leg(deed) == states.RESTORE:
            self._give_up_restoring(deed, fault)
        elif not recorded(deed.operation):
            self.give_up(deed, fault)
        else:
            self._leave_new(deed, fault)
        return Freed(), Bell()

    def resume(self, deed: Deed) -> Bell:
        held = deed.claim(book_claims.CURRENT)
        if held is not None and deed.is_up(held[1].host) and not deed.past_deadline:
            return deed.cast(held[1], held[0])
        fault = gave_up(deed, held[1].host if held else "its host")
        if _leg(deed) == states.RESTORE:
            self._give_up_restoring(deed, fault)
        elif not recorded(deed.operation):
            self.give_up(deed, fault)
        else:
            self._leave_new(deed, fault)
        return Bell()

    def _leave_new(self, deed: Deed, fault: Fault) -> None:
        """Nobody can say whether the new guest is gone: the old one stays off until its worker has said so."""
        new = deed.claim(book_claims.CURRENT)
        if new is not None:
            deed.leave([new])
        self._turn_back(deed)
        self._give_up_restoring(deed, fault)
        deed.instance.power_state = power.SHUTDOWN

    @staticmethod
    def _give_up_restoring(deed: Deed, fault: Fault) -> None:
        """The old guest is there, and is off: the audit of its host starts it with its worker, or else tells so."""
        deed.close(done_or_off(deed), fault)


def _leg(deed: Deed) -> str:
    leg: str = deed.operation.arguments.get("leg", states.DROP)
    return leg
