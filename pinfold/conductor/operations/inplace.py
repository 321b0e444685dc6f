"""What the operations share whose server has its place already: cast to its worker, and cast again."""

from __future__ import annotations

from pinfold.conductor.operations.base import Deed, Freed, gave_up
from pinfold.db import claims as book_claims
from pinfold.db import operations
from pinfold.db.operations import Fault
from pinfold.model import states
from pinfold.model.work import Bell
from pinfold.rpcapi.messages import Abort


class InPlace:
    """The plan of an operation on the worker that has the server's current claim."""

    def may_claim(self, deed: Deed) -> bool:
        return False

    def finish(self, deed: Deed, node: str) -> Freed:
        deed.close(states.DONE)
        return Freed()

    def abort(self, deed: Deed, abort: Abort) -> tuple[Freed, Bell]:
        self.give_up(deed, Fault(abort.message, abort.details))
        return Freed(), Bell()

    def give_up(self, deed: Deed, fault: Fault) -> None:
        """End it where it stands: back to what was before."""
        operations.drop_unrecorded_image(deed.session, deed.operation, deed.instance, deed.at)
        deed.close(states.FAILED, fault)

    def resume(self, deed: Deed) -> Bell:
        held = deed.claim(book_claims.CURRENT)
        if held is None:
            self.give_up(deed, Fault("The server has no host."))
            return Bell()
        claim, node = held
        if deed.is_up(node.host) and not deed.past_deadline:
            return deed.cast(node, claim)
        self.give_up(deed, gave_up(deed, node.host))
        return Bell()

    def entered(self, deed: Deed, step: str) -> bool:
        return False


def offloaded(deed: Deed, node: str) -> Freed:
    """The guest is gone from ``node``: its claim goes, and the state changes, in this one transaction."""
    freed = Freed()
    for held in book_claims.holding(deed.claims):
        if held[1].name == node:
            freed = deed.free(held)
    deed.close(states.OFFLOADED)
    return freed


def offloaded_unseen(deed: Deed, fault: Fault) -> None:
    """The offload went too far to go back, and its worker cannot say that the guest is gone."""
    deed.leave(book_claims.holding(deed.claims))
    deed.close(states.OFFLOADED, fault)
