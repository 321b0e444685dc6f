"""Evacuate: claim a place, spawn from the server's image, and shut it down again where it is to be off."""

from __future__ import annotations

from pinfold.compute.operations import spawning
from pinfold.compute.operations.attempt import Attempt
from pinfold.compute.operations.runner import Deed, Plan
from pinfold.virt import driver


def spawn(attempt: Attempt) -> None:
    """A new guest: its disk is lost with its host."""
    work = attempt.work
    spawning.spawn(attempt)
    if not work.runs:
        attempt.drive("shut down", lambda: attempt.tools.driver.power_off(work.node, work.instance))


PLAN = Plan(
    "evacuate",
    {"claim": spawning.DEEDS["claim"], "spawn": Deed(spawn, undo=spawning.remove, begins=False)},
    driver.RUNNING,
)
