"""One file per kind of operation that is not plain: what its finish, failure and recovery write in the book."""

from __future__ import annotations

from pinfold.conductor.operations.base import Plan
from pinfold.conductor.operations.confirm_resize import ConfirmResize
from pinfold.conductor.operations.create import Create
from pinfold.conductor.operations.delete import Delete
from pinfold.conductor.operations.evacuate import Evacuate
from pinfold.conductor.operations.inplace import InPlace
from pinfold.conductor.operations.live_migrate import LiveMigrate
from pinfold.conductor.operations.moving import Moving
from pinfold.conductor.operations.rebuild import Rebuild
from pinfold.conductor.operations.revert_resize import RevertResize
from pinfold.conductor.operations.shelve import Shelve
from pinfold.conductor.operations.shelve_offload import ShelveOffload
from pinfold.conductor.operations.soft_delete import Restore, SoftDelete
from pinfold.conductor.operations.unshelve import Unshelve
from pinfold.conductor.operations.unshelve_in_place import UnshelveInPlace

# Kinds whose end is written as that of any operation in its place.
_PLAIN = (
    "create_image",
    "hard_reboot",
    "pause",
    "power_restore",
    "power_sync",
    "reboot",
    "resume",
    "start",
    "stop",
    "suspend",
    "unpause",
)

PLANS: dict[str, Plan] = {
    **dict.fromkeys(_PLAIN, InPlace()),
    "create": Create(),
    "shelve": Shelve(),
    "shelve_offload": ShelveOffload(),
    "unshelve": Unshelve(),
    "unshelve_in_place": UnshelveInPlace(),
    "resize": Moving(),
    "migrate": Moving(),
    "confirm_resize": ConfirmResize(),
    "revert_resize": RevertResize(),
    "evacuate": Evacuate(),
    "live_migrate": LiveMigrate(),
    "delete": Delete(),
    "force_delete": Delete(),
    "soft_delete": SoftDelete(),
    "restore": Restore(),
    "rebuild": Rebuild(),
}
