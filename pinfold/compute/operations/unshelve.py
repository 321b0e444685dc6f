"""Unshelve of an offloaded server: claim a place, spawn from the shelved image."""

from __future__ import annotations

from pinfold.compute.operations import spawning
from pinfold.compute.operations.runner import Plan
from pinfold.virt import driver

PLAN = Plan("unshelve", spawning.DEEDS, driver.RUNNING)
