"""Soft delete and restore: the guest is off and keeps its place until it is wanted back, or reclaimed."""

from __future__ import annotations

from pinfold.conductor.operations.base import Deed, Freed
from pinfold.conductor.operations.inplace import InPlace
from pinfold.db import operations


class SoftDelete(InPlace):
    """Time until the server is reclaimed counts from the first delete. Its disk is there, so its image is not
    needed."""

    def finish(self, deed: Deed, node: str) -> Freed:
        freed = super().finish(deed, node)
        if deed.instance.soft_deleted_at is None:
            deed.instance.soft_deleted_at = deed.at
        operations.forget_shelved_image(deed.session, deed.instance, deed.at)
        return freed


class Restore(InPlace):
    """The server runs again, as if it had never been deleted."""

    def finish(self, deed: Deed, node: str) -> Freed:
        deed.instance.soft_deleted_at = None
        return super().finish(deed, node)
