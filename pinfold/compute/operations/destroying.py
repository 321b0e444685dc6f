"""What shelve, offload and delete share: the guest is destroyed, and there is no way back."""

from __future__ import annotations

from pinfold.compute.operations.attempt import Attempt


def destroy(attempt: Attempt) -> None:
    """Remove the guest; tried until the operation's deadline, since this only goes forward."""
    work = attempt.work

    def once() -> None:
        attempt.drive("removed", lambda: attempt.tools.driver.destroy(work.node, work.instance))

    attempt.retry(once, until=attempt.deadline, transient=lambda failed: True)
