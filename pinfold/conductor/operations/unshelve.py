"""Unshelve of an offloaded server: schedule, claim, spawn from its image, and then the image goes."""

from __future__ import annotations

from pinfold.conductor.operations.base import Deed
from pinfold.conductor.operations.placing import Placing
from pinfold.db import operations
from pinfold.db.operations import Fault
from pinfold.model import states


class Unshelve(Placing):
    """When it fails the server is offloaded as before, unless there is no image to start from any more."""

    def placed(self, deed: Deed) -> None:
        operations.forget_shelved_image(deed.session, deed.instance, deed.at)

    def fail(self, deed: Deed, fault: Fault, *, image_gone: bool = False) -> None:
        deed.close(states.IMAGE_GONE if image_gone else states.FAILED, fault)
