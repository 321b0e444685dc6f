"""Shelve: power off, snapshot, record the image; then, if it is to be offloaded at once, destroy.

The begin of ``record`` is the fenced write before the guest is destroyed: after it the operation only goes forward.
"""

from __future__ import annotations

from pinfold.compute.operations import destroying, guest, saving
from pinfold.compute.operations.attempt import Attempt
from pinfold.compute.operations.runner import Deed, Plan
from pinfold.virt import driver


def recorded(attempt: Attempt) -> None:
    """The begin was the deed."""


PLAN = Plan(
    "shelve",
    {
        "power_off": Deed(guest.power_off, undo=guest.restore),
        "snapshot": Deed(saving.snapshot, undo=saving.delete_image),
        "record": Deed(recorded),
        "destroy": Deed(destroying.destroy, begins=False),
    },
    driver.SHUTDOWN,
)
