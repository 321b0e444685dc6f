"""Unshelve of a server that was not offloaded: its guest is still there and is started."""

from __future__ import annotations

from pinfold.conductor.operations.base import Deed, Freed
from pinfold.conductor.operations.inplace import InPlace
from pinfold.db import operations


class UnshelveInPlace(InPlace):
    """When it fails the server stays shelved, with its place and its image."""

    def finish(self, deed: Deed, node: str) -> Freed:
        freed = super().finish(deed, node)
        operations.forget_shelved_image(deed.session, deed.instance, deed.at)
        return freed
