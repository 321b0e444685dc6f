"""Live migration: the destination claims and checks, the source hands its guest over; where that cannot say, the
other does."""

from __future__ import annotations

from pinfold.compute.calls import NoAnswer
from pinfold.compute.operations import moving, spawning
from pinfold.compute.operations.attempt import Attempt, Failed
from pinfold.compute.operations.runner import Deed, Plan
from pinfold.compute.tracker import Held
from pinfold.model import errors, states
from pinfold.virt import driver
from pinfold.virt.driver import GuestSpec

ABORTED = "aborted"


def hand_over(attempt: Attempt) -> None:
    """Have the hypervisor move the guest while it runs. Whatever it answers, its list says where the guest is."""
    work, hypervisor = attempt.work, attempt.tools.driver
    if work.target is None:
        raise Failed("The server cannot be moved: it has no target.", code="no-claim")
    target = work.target
    spec = GuestSpec(
        instance=work.instance,
        name=work.name,
        node=target.node,
        vcpus=work.demand.vcpus,
        memory_mb=work.demand.memory_mb,
        disk_gb=work.demand.disk_gb,
        placement=target.placement,
    )
    if work.aborted and _is_here(attempt):
        raise Failed("The live migration was aborted.", code=ABORTED)
    try:
        attempt.drive(
            f"moved to {target.node} while it runs",
            lambda: hypervisor.live_migrate(work.node, work.instance, spec, target.host, Wish(attempt)),
        )
    except Failed:
        if _is_here(attempt):
            raise


class Wish:
    """What its users want of a live migration that is under way."""

    def __init__(self, attempt: Attempt) -> None:
        self._jobs, self._operation = attempt.tools.jobs, attempt.work.operation

    def is_aborted(self) -> bool:
        """It is to end, with the guest where it was."""
        return self._jobs.told(self._operation) == "abort"

    def is_forced(self) -> bool:
        """It is to be completed at any price."""
        return self._jobs.told(self._operation) == "force"


def _is_here(attempt: Attempt) -> bool:
    """Whether the source still has the guest. Raises NoAnswer where it cannot say: then nothing is given up."""
    work = attempt.work
    try:
        listed = attempt.tools.driver.list(work.node)
    except errors.PinfoldError as error:
        raise NoAnswer(
            f"The hypervisor does not say whether it has handed the guest over: {error}"
        ) from error
    return any(guest.instance == work.instance for guest in listed)


def settle(attempt: Attempt) -> None:
    """The source cannot say: is the guest here?

    Where it is not, it is shut out: the source's hypervisor may still be at it, whatever its worker does.
    """
    work = attempt.work
    attempt.held = None if work.claim is None else Held(work.claim, work.placement)
    try:
        attempt.tools.driver.admit_live_migration(work.node, work.instance, admitted=False)
        listed = attempt.tools.driver.list(work.node)
    except errors.PinfoldError as error:
        raise NoAnswer(f"The hypervisor does not say whether it has the guest: {error}") from error
    if not any(guest.instance == work.instance for guest in listed):
        attempt.held = None
        raise Failed("The guest had not been handed over when its host died.", code="not-here", gone=True)


def check(attempt: Attempt) -> None:
    """The hypervisor here is asked before anything is moved. Raises Failed: the guest goes on where it is."""
    work, hypervisor, source = attempt.work, attempt.tools.driver, attempt.work.hypervisor

    def ask() -> None:
        hypervisor.admit_live_migration(work.node, work.instance, admitted=True)
        if source is not None:
            hypervisor.check_live_migration(spawning.spec_of(attempt), source)

    attempt.drive("accepted for a live migration", ask)


_CLAIM = {
    "claim": Deed(spawning.claim, undo=spawning.nothing, begins=False),
    "check": Deed(check, undo=spawning.nothing),
}
PLANS = (
    Plan("live_migrate", _CLAIM, driver.NOSTATE, states.CLAIM, moving.nothing_made, "incoming"),
    Plan("live_migrate", {"live_migrate": Deed(hand_over)}, driver.NOSTATE, states.HAND_OVER),
    Plan("live_migrate", {"settle": Deed(settle)}, driver.RUNNING, states.SETTLE),
    Plan("live_migrate", {"withdraw": Deed(moving.withdraw)}, driver.NOSTATE, states.WITHDRAW),
)
