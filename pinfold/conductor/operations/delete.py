"""Delete and force-delete: destroy the guest wherever the server holds something. Never undone."""

from __future__ import annotations

from pinfold.conductor.operations.base import Deed, Freed
from pinfold.db import claims as book_claims
from pinfold.db import operations
from pinfold.db.operations import Fault
from pinfold.model import states
from pinfold.model.work import Bell
from pinfold.rpcapi.messages import Abort


class Delete:
    """A server that is going. A claim whose worker cannot say that the guest is gone becomes a leftover."""

    def may_claim(self, deed: Deed) -> bool:
        return False

    def finish(self, deed: Deed, node: str) -> Freed:
        freed = Freed()
        for held in book_claims.holding(deed.claims):
            if held[1].name == node:
                freed = deed.free(held)
        if not self._end_if_nothing_is_held(deed) and deed.operation.arguments.get("in_turn"):
            return Freed(freed.claim, freed.generation, self._cast_all(deed))
        return freed

    def _end_if_nothing_is_held(self, deed: Deed) -> bool:
        if book_claims.holding(deed.claims):
            return False
        deed.close(states.DONE)
        operations.delete_instance(deed.session, deed.instance, deed.at)
        return True

    def abort(self, deed: Deed, abort: Abort) -> tuple[Freed, Bell]:
        """A delete only goes forward: it is tried again until its deadline."""
        operations.note_error(deed.operation, abort.message, deed.at)
        deed.operation.lease_until = deed.patience()
        return Freed(), Bell()

    def give_up(self, deed: Deed, fault: Fault) -> None:
        """End it, with leftovers."""
        deed.leave(book_claims.holding(deed.claims))
        self._end_if_nothing_is_held(deed)

    def resume(self, deed: Deed) -> Bell:
        held = book_claims.holding(deed.claims)
        if deed.past_deadline:
            deed.leave(held)
        else:
            deed.leave([pair for pair in held if not deed.is_up(pair[1].host)])
        if self._end_if_nothing_is_held(deed):
            return Bell()
        return self._cast_all(deed)

    @staticmethod
    def _cast_all(deed: Deed) -> Bell:
        """One attempt, for each worker that still has something of it; where a guest was being handed over, for the
        one that it came from first."""
        held = sorted(book_claims.holding(deed.claims), key=lambda pair: pair[0].role != book_claims.CURRENT)
        (claim, node), *others = held
        bell = deed.cast(node, claim)
        if deed.operation.arguments.get("in_turn"):
            return bell
        works = [
            operations.work_for(deed.operation, deed.instance, there, deed.at, held)
            for held, there in others
            if there.id != node.id
        ]
        return Bell(work=(*bell.work, *works))

    def entered(self, deed: Deed, step: str) -> bool:
        return False
