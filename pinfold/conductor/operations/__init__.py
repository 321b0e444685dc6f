"""One file per kind of operation: what its finish, its failure and its recovery write in the book."""

from __future__ import annotations

from pinfold.conductor.operations.base import Plan
from pinfold.conductor.operations.create import Create
from pinfold.conductor.operations.delete import Delete
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
    "delete": Delete(),
    "force_delete": Delete(),
}
