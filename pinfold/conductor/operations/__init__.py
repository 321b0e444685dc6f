"""One file per kind of operation: what its finish, its failure and its recovery write in the book."""

from __future__ import annotations

from pinfold.conductor.operations.base import Plan
from pinfold.conductor.operations.confirm_resize import ConfirmResize
from pinfold.conductor.operations.create import Create
from pinfold.conductor.operations.delete import Delete
from pinfold.conductor.operations.moving import Moving
from pinfold.conductor.operations.revert_resize import RevertResize
from pinfold.conductor.operations.shelve import Shelve
from pinfold.conductor.operations.shelve_offload import ShelveOffload
from pinfold.conductor.operations.unshelve import Unshelve
from pinfold.conductor.operations.unshelve_in_place import UnshelveInPlace

PLANS: dict[str, Plan] = {
    "create": Create(),
    "shelve": Shelve(),
    "shelve_offload": ShelveOffload(),
    "unshelve": Unshelve(),
    "unshelve_in_place": UnshelveInPlace(),
    "resize": Moving(),
    "migrate": Moving(),
    "confirm_resize": ConfirmResize(),
    "revert_resize": RevertResize(),
    "delete": Delete(),
    "force_delete": Delete(),
}
