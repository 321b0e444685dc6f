"""Unshelve of a server that has kept its place: its guest is started."""

from __future__ import annotations

from pinfold.compute.operations.attempt import Attempt
from pinfold.compute.operations.runner import Deed, Plan
from pinfold.virt import driver


def power_on(attempt: Attempt) -> None:
    """Start the guest that is there."""
    work = attempt.work
    attempt.drive("started", lambda: attempt.tools.driver.power_on(work.node, work.instance))


def power_off(attempt: Attempt) -> None:
    """Take the start back: a shelved server's guest is off."""
    work = attempt.work
    attempt.drive("shut down", lambda: attempt.tools.driver.power_off(work.node, work.instance))


PLAN = Plan("unshelve_in_place", {"power_on": Deed(power_on, undo=power_off)}, driver.RUNNING)
