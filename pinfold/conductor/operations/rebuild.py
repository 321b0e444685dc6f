"""Rebuild: a new disk for the guest where it is, and a new place on its node if the image asks for that."""

from __future__ import annotations

import msgspec

from pinfold.conductor.operations.base import Deed, Freed
from pinfold.conductor.operations.inplace import InPlace
from pinfold.db import claims as book_claims
from pinfold.db import operations
from pinfold.db.operations import Fault
from pinfold.model import states


class Rebuild(InPlace):
    """Until its disk is touched the server is as before; from then on it is what the new image makes of it.

    While either guest may be there the claim holds what both need; see ``model.rebuild``.
    """

    def entered(self, deed: Deed, step: str) -> bool:
        rebuild = operations.rebuild_of(deed.operation)
        if step == "rebuild" and rebuild is not None and not rebuild.begun:
            values = {
                **rebuild.fields,
                "image_ref": rebuild.image,
                "image_properties": rebuild.image_properties,
                "demand": rebuild.demand,
            }
            for column, value in values.items():
                setattr(deed.instance, column, value)
            operations.save_rebuild(deed.operation, msgspec.structs.replace(rebuild, begun=True))
        return False

    def finish(self, deed: Deed, node: str) -> Freed:
        rebuild = operations.rebuild_of(deed.operation)
        held = deed.claim(book_claims.CURRENT)
        generation = None
        if rebuild is not None and rebuild.after is not None and held is not None:
            generation = book_claims.change(deed.session, *held, rebuild.after)
        deed.close(states.DONE)
        return Freed(None, generation)

    def give_up(self, deed: Deed, fault: Fault) -> None:
        if operations.is_recorded(deed.operation):
            deed.close(states.DISK_LOST, fault)
        else:
            operations.take_back_refit(deed.session, deed.operation)
            super().give_up(deed, fault)
