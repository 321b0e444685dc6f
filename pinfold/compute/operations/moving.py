"""Resize and cold migration, leg by leg; what a destination made can be taken back, and a source be as it was.

The disk travels as an image. Where source and destination are one node, the old guest is put aside there.
"""

from __future__ import annotations

from pinfold.compute.operations import guest, saving, spawning
from pinfold.compute.operations.attempt import STORE_ERROR, Attempt, Failed
from pinfold.compute.operations.runner import Deed, Plan
from pinfold.compute.tracker import Held
from pinfold.model import states
from pinfold.virt import driver


def migrate_disk(attempt: Attempt) -> None:
    """Hand the disk over: save it as the operation's image."""
    saving.save_as_image(attempt, attempt.tools.driver.migrate_disk)


def finish_migration(attempt: Attempt) -> None:
    """Make the guest on the claim, with the disk that has travelled, and start it if it ran before."""
    work, hypervisor = attempt.work, attempt.tools.driver
    if work.claim is None:
        raise Failed("The server cannot be moved: it has no claim here.", code="no-claim")
    # only now, when the book has accepted the step: before that, what is there may be somebody else's
    attempt.held = Held(work.claim, work.placement)
    spec = spawning.spec_of(attempt)

    def receive() -> None:
        spawning.with_image(
            attempt,
            work.snapshot,
            lambda disk: hypervisor.finish_migration(
                spec, disk, power_on=work.runs, same_node=work.same_node
            ),
        )

    def once() -> None:
        attempt.drive("received", receive)

    attempt.retry(once, until=attempt.patience, transient=lambda failed: failed.code == STORE_ERROR)


def take_back(attempt: Attempt) -> bool:
    """Take away what the destination made, in a few tries; whether it is gone. The guest of the same node is kept."""
    work, hypervisor = attempt.work, attempt.tools.driver
    if not work.same_node:
        return attempt.remove_guest()
    return attempt.few_tries(
        lambda: hypervisor.revert_migration(work.node, work.instance), "its old guest could not be put back"
    )


def nothing_made(attempt: Attempt) -> bool:
    """A claim alone leaves nothing to take away."""
    return True


def withdraw(attempt: Attempt) -> None:
    """The destination's way back."""
    if not take_back(attempt):
        raise Failed("What had been made at the destination could not be removed.", code="not-removed")


def restore(attempt: Attempt) -> None:
    """The source's way back: its guest, started if it ran. The begin of this step is the leave to run."""
    work, hypervisor = attempt.work, attempt.tools.driver
    attempt.drive("put back", lambda: hypervisor.revert_migration(work.node, work.instance))
    if work.runs:
        attempt.drive("started again", lambda: hypervisor.power_on(work.node, work.instance))


def _plans(kind: str) -> tuple[Plan, ...]:
    claim = {"claim": Deed(spawning.claim, undo=spawning.nothing, begins=False)}
    send = {
        "power_off": Deed(guest.power_off, undo=guest.restore),
        "migrate_disk": Deed(migrate_disk, undo=saving.delete_image),
    }
    return (
        Plan(kind, claim, driver.NOSTATE, states.CLAIM, nothing_made, "incoming"),
        Plan(kind, send, driver.SHUTDOWN, states.SEND),
        Plan(kind, {"finish_migration": Deed(finish_migration)}, driver.RUNNING, states.RECEIVE, take_back),
        Plan(kind, {"withdraw": Deed(withdraw)}, driver.NOSTATE, states.WITHDRAW),
        Plan(kind, {"restore": Deed(restore)}, driver.RUNNING, states.RESTORE),
    )


PLANS = (*_plans("resize"), *_plans("migrate"))
