"""Confirm: the old place of a server that was moved is given up, by the worker that has it."""

from __future__ import annotations

from pinfold.conductor.operations import inplace
from pinfold.conductor.operations.base import Deed, Freed, gave_up, recorded
from pinfold.conductor.operations.outcomes import done_or_off
from pinfold.db import claims as book_claims
from pinfold.db.moves import end_move
from pinfold.db.operations import Fault
from pinfold.model.work import Bell
from pinfold.rpcapi.messages import Abort


class ConfirmResize(inplace.InPlace):
    """Its step is the point of no return; before it the server stays resized."""

    def finish(self, deed: Deed, node: str) -> Freed:
        freed = Freed()
        held = deed.claim(book_claims.OUTGOING)
        if held is not None:
            freed = deed.free(held)
        self._end(deed)
        return freed

    def _end(self, deed: Deed, fault: Fault | None = None) -> None:
        outcome = done_or_off(deed)
        end_move(deed.session, deed.instance, "error" if fault else "confirmed")
        deed.close(outcome, fault)

    def abort(self, deed: Deed, abort: Abort) -> tuple[Freed, Bell]:
        """The guest there is of no use any more, so this only goes forward, with a leftover if need be."""
        fault = Fault(abort.message, abort.details)
        if not recorded(deed.operation):
            self.give_up(deed, fault)
            return Freed(), Bell()
        freed = Freed()
        held = deed.claim(book_claims.OUTGOING)
        if held is not None and abort.clean:
            freed = deed.free(held)
        elif held is not None:
            deed.leave([held])
        self._end(deed, fault)
        return freed, Bell()

    def resume(self, deed: Deed) -> Bell:
        held = deed.claim(book_claims.OUTGOING)
        if held is None:
            self._end(deed)
            return Bell()
        claim, node = held
        if deed.is_up(node.host) and not deed.past_deadline:
            return deed.cast(node, claim)
        fault = gave_up(deed, node.host)
        if not recorded(deed.operation):
            self.give_up(deed, fault)
            return Bell()
        deed.leave([held])
        self._end(deed, fault)
        return Bell()
