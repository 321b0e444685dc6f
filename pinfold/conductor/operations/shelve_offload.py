"""Shelve-offload: the guest of a shelved server is destroyed, and its claim goes."""

from __future__ import annotations

from pinfold.conductor.operations import inplace
from pinfold.conductor.operations.base import Deed, Freed
from pinfold.db import operations
from pinfold.db.operations import Fault


class ShelveOffload(inplace.InPlace):
    """Its first step is the point of no return: before it the server stays shelved."""

    def finish(self, deed: Deed, node: str) -> Freed:
        return inplace.offloaded(deed, node)

    def give_up(self, deed: Deed, fault: Fault) -> None:
        if operations.is_recorded(deed.operation):
            inplace.offloaded_unseen(deed, fault)
        else:
            super().give_up(deed, fault)
