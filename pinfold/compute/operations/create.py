"""Create: claim a place, spawn from the image of the request."""

from __future__ import annotations

from pinfold.compute.operations import spawning
from pinfold.compute.operations.runner import Plan
from pinfold.virt import driver

PLAN = Plan("create", spawning.DEEDS, driver.RUNNING)
