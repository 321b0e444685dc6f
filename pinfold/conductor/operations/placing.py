"""What create and unshelve share: they take a claim of their own, on one host after another."""

from __future__ import annotations

import msgspec

from pinfold.conductor.operations.base import Deed, Freed, gave_up
from pinfold.db import claims as book_claims
from pinfold.db import hosts, operations
from pinfold.db.models import Node
from pinfold.db.operations import Fault
from pinfold.model import states
from pinfold.model.placement import HostRefusal
from pinfold.model.work import Bell
from pinfold.rpcapi.messages import Abort

NO_FIT, IMAGE_GONE = "no-fit", "image-gone"


class Placing:
    """The plan of an operation that places the server."""

    def may_claim(self, deed: Deed) -> bool:
        """Only a server that holds nothing is placed."""
        return not book_claims.holding(deed.claims)

    def finish(self, deed: Deed, node: str) -> Freed:
        held = deed.claim(book_claims.INCOMING)
        if held is None or held[1].name != node:
            raise LookupError(f"operation {deed.operation.id} has no claim on {node}")
        generation = book_claims.set_role(*held, book_claims.CURRENT)
        deed.close(states.DONE)
        self.placed(deed)
        return Freed(None, generation)

    def placed(self, deed: Deed) -> None:
        """The server runs: what else that means for this kind."""

    def abort(self, deed: Deed, abort: Abort) -> tuple[Freed, Bell]:
        freed = Freed()
        held = deed.claim(book_claims.INCOMING)
        if held is not None and abort.clean:
            freed = deed.free(held)
        elif held is not None:
            deed.leave([held])
        operations.note_error(deed.operation, abort.message, deed.at)
        self._note_refusal(deed, abort)
        return freed, self._next(deed, abort)

    def _note_refusal(self, deed: Deed, abort: Abort) -> None:
        if abort.code == NO_FIT:
            refusal = HostRefusal(abort.host, abort.node, abort.refusals)
            deed.operation.refusals = [*deed.operation.refusals, msgspec.to_builtins(refusal)]
        else:
            failed = deed.operation.arguments.get("failed_nodes", [])
            deed.operation.arguments = {
                **deed.operation.arguments,
                "failed_nodes": [*failed, abort.node],
            }

    def _next(self, deed: Deed, abort: Abort) -> Bell:
        """Another host after a clean abort; an operation that left a leftover ends."""
        tries = len(deed.operation.arguments.get("failed_nodes", []))
        if abort.code == IMAGE_GONE:
            self.fail(deed, Fault(abort.message, abort.details), image_gone=True)
            return Bell()
        if deed.operation.left_leftover or deed.past_deadline or tries >= deed.settings.max_attempts:
            self.fail(deed, self._fault(abort, tries))
            return Bell()
        deed.operation.targets = [name for name in deed.operation.targets if name != abort.node]
        node = self._next_target(deed)
        if node is not None:
            return deed.cast(node, None)
        deed.operation.lease_until = deed.patience()
        return Bell(run=(deed.operation.id,))

    def _next_target(self, deed: Deed) -> Node | None:
        for name in deed.operation.targets:
            node = hosts.node_by_name(deed.session, name)
            if node is not None and deed.is_up(node.host):
                return node
        return None

    @staticmethod
    def _fault(abort: Abort, tries: int) -> Fault:
        after = f" (tried on {tries} hosts)" if tries > 1 else ""
        return Fault(f"{abort.message}{after}", abort.details)

    def fail(self, deed: Deed, fault: Fault, *, image_gone: bool = False) -> None:
        """End it without a claim, or with a leftover."""
        deed.close(states.FAILED, fault)

    def resume(self, deed: Deed) -> Bell:
        held = deed.claim(book_claims.INCOMING)
        if held is None:
            if deed.past_deadline:
                self.fail(deed, self._too_late(deed))
                return Bell()
            deed.operation.lease_until = deed.patience()
            return Bell(run=(deed.operation.id,))
        claim, node = held
        up = deed.is_up(node.host)
        if up and not deed.past_deadline:
            return deed.cast(node, claim)
        deed.leave([held])
        self.fail(deed, gave_up(deed, node.host))
        return Bell()

    def _too_late(self, deed: Deed) -> Fault:
        last = f" The last error was: {deed.operation.error}" if deed.operation.error else ""
        return Fault(f"Operation {deed.operation.kind} found no host that took it in time.{last}")

    def entered(self, deed: Deed, step: str) -> bool:
        return False
