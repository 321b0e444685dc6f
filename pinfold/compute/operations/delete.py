"""Delete and force-delete: the guest is destroyed; its claim goes with ``finish``."""

from __future__ import annotations

from pinfold.compute.operations import destroying
from pinfold.compute.operations.runner import Deed, Plan
from pinfold.virt import driver

_DEEDS = {"destroy": Deed(destroying.destroy)}

PLAN = Plan("delete", _DEEDS, driver.NOSTATE)
FORCE_PLAN = Plan("force_delete", _DEEDS, driver.NOSTATE)
