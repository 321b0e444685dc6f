"""Shelve-offload: the guest of a shelved server is destroyed; its claim goes with ``finish``."""

from __future__ import annotations

from pinfold.compute.operations import destroying
from pinfold.compute.operations.runner import Deed, Plan
from pinfold.virt import driver

PLAN = Plan("shelve_offload", {"destroy": Deed(destroying.destroy)}, driver.SHUTDOWN)
