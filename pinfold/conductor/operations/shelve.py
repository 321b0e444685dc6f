"""Shelve: power off, snapshot, record the image; then, if it is to be offloaded at once, destroy."""

from __future__ import annotations

from pinfold.conductor.operations import inplace
from pinfold.conductor.operations.base import Deed, Freed
from pinfold.db import claims as book_claims
from pinfold.db import operations
from pinfold.db.operations import Fault
from pinfold.model import states


class Shelve(inplace.InPlace):
    """Before its image is recorded it is undone; after that it only goes forward."""

    def entered(self, deed: Deed, step: str) -> bool:
        if step != "record":
            return bool(deed.operation.arguments.get("offload"))
        if deed.instance.vm_state != states.SHELVED:
            operations.record(deed.session, deed.operation, deed.instance, deed.at)
            offload = deed.settings.shelved_offload_time == 0
            deed.operation.arguments = {**deed.operation.arguments, "offload": offload}
        if deed.operation.arguments["offload"]:
            return True
        held = deed.claim(book_claims.CURRENT)
        if held is not None:
            deed.answered(held[1].name, deed.operation.attempt, Freed())
        deed.close(states.DONE)
        return False

    def finish(self, deed: Deed, node: str) -> Freed:
        return inplace.offloaded(deed, node)

    def give_up(self, deed: Deed, fault: Fault) -> None:
        if operations.is_recorded(deed.operation):
            inplace.offloaded_unseen(deed, fault)
        else:
            super().give_up(deed, fault)
