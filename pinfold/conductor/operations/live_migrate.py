"""Live migration: the destination claims, the source hands its guest over while that runs.

===========  ===========  =================================================================================
leg          worker       at its end, in one transaction
===========  ===========  =================================================================================
claim        destination  its claim is ``incoming``; the source's stays ``current``
hand_over    source       the guest runs at the destination: that claim is ``current``, the source's is gone
settle       destination  asked where the source cannot answer: if the guest runs here, as above, with a leftover
withdraw     destination  nothing of the guest is here: its claim goes, the migration has failed
===========  ===========  =================================================================================

From the begin of the hand-over on only the two workers know where the guest is. Until one of them has said so nothing
is given up: it is the one operation that may stay open beyond its time, as long as both its hosts are down.
"""

from __future__ import annotations

import msgspec

from pinfold.conductor.operations.base import Deed, Freed, gave_up
from pinfold.conductor.operations.moving import Moving, leg_of
from pinfold.db import claims as book_claims
from pinfold.db import operations
from pinfold.db.models import Claim, Node
from pinfold.db.operations import Fault
from pinfold.model import states
from pinfold.model.work import Bell, Target
from pinfold.rpcapi.messages import Abort

ABORTED = Fault("The live migration was aborted.", code=409)


class LiveMigrate(Moving):
    """The plan of a move that needs no confirmation."""

    def finish(self, deed: Deed, node: str) -> Freed:
        leg = leg_of(deed)
        if leg == states.CLAIM:
            return self._claimed(deed)
        if leg == states.WITHDRAW:
            return self._withdrawn(deed)
        return self._handed_over(deed, seen_at_source=leg == states.HAND_OVER)

    def _claimed(self, deed: Deed) -> Freed:
        source, _ = self._ends(deed)
        if deed.operation.arguments.get("aborted"):
            return Freed(bell=self._unwind(deed, ABORTED))
        return Freed(bell=self._cast(deed, source, states.HAND_OVER))

    def _cast(self, deed: Deed, held: tuple[Claim, Node], leg: str) -> Bell:
        return _with_target(deed, super()._cast(deed, held, leg))

    def _handed_over(self, deed: Deed, *, seen_at_source: bool) -> Freed:
        source, target = self._ends(deed)
        freed = Freed()
        if seen_at_source:
            freed = deed.free(source)
        else:
            deed.leave([source])
        # before the other has the role: there is one claim of each
        deed.session.flush()
        generation = book_claims.set_role(*target, book_claims.CURRENT)
        deed.close(states.DONE)
        return freed if seen_at_source else Freed(None, generation)

    def abort(self, deed: Deed, abort: Abort) -> tuple[Freed, Bell]:
        if leg_of(deed) != states.HAND_OVER:
            return super().abort(deed, abort)
        operations.note_error(deed.operation, abort.message, deed.at)
        fault = ABORTED if deed.operation.arguments.get("aborted") else Fault(abort.message, abort.details)
        if abort.clean:
            return Freed(), self._unwind(deed, fault)
        # the source cannot say where its guest is: it is asked again
        return Freed(), deed.look_again()

    def resume(self, deed: Deed) -> Bell:
        leg = leg_of(deed)
        if leg not in (states.HAND_OVER, states.SETTLE):
            return super().resume(deed)
        source, target = self._ends(deed)
        if not any(entry["step"] == "live_migrate" for entry in deed.operation.log):
            return self._not_begun(deed, source)
        if deed.past_deadline:
            operations.set_arguments(deed.operation, aborted=True)
        if deed.is_up(source[1].host):
            return _with_target(deed, deed.cast(source[1], source[0], states.HAND_OVER))
        if deed.is_up(target[1].host):
            return deed.cast(target[1], target[0], states.SETTLE)
        return deed.look_again()

    def _not_begun(self, deed: Deed, source: tuple[Claim, Node]) -> Bell:
        claim, node = source
        if deed.is_up(node.host) and not deed.past_deadline:
            return _with_target(deed, deed.cast(node, claim))
        return self._unwind(deed, gave_up(deed, node.host))

    def _restore(self, deed: Deed) -> Bell:
        """The source's guest has never stopped."""
        self.fail(deed, self._first_fault(deed))
        return Bell()


def _with_target(deed: Deed, bell: Bell) -> Bell:
    """The source is told where the guest is to go."""
    held = deed.claim(book_claims.INCOMING)
    if held is None or leg_of(deed) != states.HAND_OVER:
        return bell
    claim, node = held
    target = Target(node.host, node.name, claim.placement)
    return Bell(work=tuple(msgspec.structs.replace(work, target=target) for work in bell.work))
