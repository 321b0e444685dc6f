"""Revert: the new guest of a server that was moved is removed, then the old one is as it was."""

from __future__ import annotations

from pinfold.compute.operations import moving
from pinfold.compute.operations.attempt import Attempt
from pinfold.compute.operations.runner import Deed, Plan
from pinfold.model import states
from pinfold.virt import driver


def drop(attempt: Attempt) -> None:
    """Remove the new guest; tried until the operation's deadline, since this only goes forward."""
    work, hypervisor = attempt.work, attempt.tools.driver

    def remove() -> None:
        if work.same_node:
            hypervisor.revert_migration(work.node, work.instance)
        else:
            hypervisor.destroy(work.node, work.instance)

    def once() -> None:
        attempt.drive("removed from its new place", remove)

    attempt.retry(once, until=attempt.deadline, transient=lambda failed: True)


PLANS = (
    Plan("revert_resize", {"destroy": Deed(drop)}, driver.NOSTATE, states.DROP),
    Plan("revert_resize", {"revert_migration": Deed(moving.restore)}, driver.RUNNING, states.RESTORE),
)
