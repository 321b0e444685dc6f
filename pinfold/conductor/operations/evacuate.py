"""Evacuate: a server whose host is dead gets a new guest elsewhere; what the dead host has is a leftover."""

from __future__ import annotations

from pinfold.conductor.operations.base import Deed, Freed
from pinfold.conductor.operations.outcomes import done_or_off
from pinfold.conductor.operations.placing import Placing
from pinfold.db import claims as book_claims
from pinfold.db.moves import end_move


class Evacuate(Placing):
    """Until it has succeeded the old place is the server's place: one that failed leaves everything as it was."""

    def may_claim(self, deed: Deed) -> bool:
        """Beside the claim on the dead host, and the old end of a move to that."""
        roles = {claim.role for claim, _ in book_claims.holding(deed.claims)}
        return book_claims.CURRENT in roles and book_claims.INCOMING not in roles

    def finish(self, deed: Deed, node: str) -> Freed:
        new = deed.claim(book_claims.INCOMING)
        if new is None or new[1].name != node:
            raise LookupError(f"operation {deed.operation.id} has no claim on {node}")
        deed.leave([held for held in book_claims.holding(deed.claims) if held[0] is not new[0]])
        end_move(deed.session, deed.instance, "confirmed")
        # before the other has the role: there is one claim of each
        deed.session.flush()
        generation = book_claims.set_role(*new, book_claims.CURRENT)
        deed.close(done_or_off(deed))
        return Freed(None, generation)
