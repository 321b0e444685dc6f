"""Confirm: the old guest of a server that was moved is removed."""

from __future__ import annotations

from pinfold.compute.operations.attempt import Attempt, Failed
from pinfold.compute.operations.runner import Deed, Plan
from pinfold.virt import driver


def confirm_migration(attempt: Attempt) -> None:
    """Remove it. Where the hypervisor fails to, a plain removal is tried: it is of no use to anybody."""
    work, hypervisor = attempt.work, attempt.tools.driver

    def remove() -> None:
        hypervisor.confirm_migration(work.node, work.instance, same_node=work.same_node)

    try:
        attempt.drive("removed from its old place", remove)
    except Failed as failed:
        gone = (
            attempt.few_tries(remove, "its old guest could not be removed")
            if work.same_node
            else (attempt.remove_guest())
        )
        raise Failed(failed.message, code=failed.code, details=failed.details, gone=gone) from failed


PLAN = Plan("confirm_resize", {"confirm_migration": Deed(confirm_migration)}, driver.NOSTATE)
