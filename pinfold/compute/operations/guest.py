"""The operations that are one call of the hypervisor: a table, and how each is taken back.

What takes all of them back is the same: the guest is made to do what the server's state says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pinfold.compute.operations.attempt import Attempt
from pinfold.compute.operations.runner import Deed, Plan
from pinfold.model import power, states
from pinfold.model.power import PowerState
from pinfold.virt.driver import Driver

LOG = logging.getLogger(__name__)

Change = Callable[[Driver, str, str], PowerState]


def power_off(attempt: Attempt) -> None:
    """Stop the guest; its system is asked first where it can hear."""
    work = attempt.work
    clean = work.vm_state == states.ACTIVE
    attempt.drive("shut down", lambda: attempt.tools.driver.power_off(work.node, work.instance, clean=clean))


def power_on(attempt: Attempt) -> None:
    """Start the guest."""
    _change(attempt, "started", lambda driver, node, guest: driver.power_on(node, guest))


def restore(attempt: Attempt) -> None:
    """Make the guest again what it was before, if it is not; where it must be started for that, if the book still
    lets it run. In ERROR nobody knows what it was."""
    wanted = power.OF_STATE.get(attempt.work.vm_state)
    seen = attempt.power_state()
    if wanted is None or seen is None or seen == wanted:
        return
    if wanted == power.SHUTDOWN:
        if seen not in power.OFF:
            power_off(attempt)
        return
    if seen in power.OFF or wanted == power.RUNNING:
        if not attempt.may_run_again():
            LOG.info("%s: its guest stays as it is, because the server is not to run here now", attempt)
            return
        _change(attempt, "started again", lambda driver, node, guest: driver.power_on(node, guest))
    if wanted == power.PAUSED:
        _change(attempt, "paused again", lambda driver, node, guest: driver.pause(node, guest))
    elif wanted == power.SUSPENDED:
        _change(attempt, "suspended again", lambda driver, node, guest: driver.suspend(node, guest))


def _change(attempt: Attempt, what: str, change: Change) -> None:
    work = attempt.work
    attempt.drive(what, lambda: change(attempt.tools.driver, work.node, work.instance))


def _plan(kind: str, what: str, change: Change, ends: PowerState) -> Plan:
    (step,) = states.KINDS[kind].steps
    return Plan(kind, {step.name: Deed(lambda attempt: _change(attempt, what, change), undo=restore)}, ends)


def _stopping(kind: str) -> Plan:
    return Plan(kind, {"power_off": Deed(power_off, undo=restore)}, power.SHUTDOWN)


PLANS = (
    _plan("start", "started", lambda driver, node, guest: driver.power_on(node, guest), power.RUNNING),
    _plan("restore", "started", lambda driver, node, guest: driver.power_on(node, guest), power.RUNNING),
    _plan("reboot", "rebooted", lambda driver, node, guest: driver.reboot(node, guest), power.RUNNING),
    _plan(
        "hard_reboot",
        "rebooted",
        lambda driver, node, guest: driver.reboot(node, guest, hard=True),
        power.RUNNING,
    ),
    _plan("pause", "paused", lambda driver, node, guest: driver.pause(node, guest), power.PAUSED),
    _plan("unpause", "unpaused", lambda driver, node, guest: driver.unpause(node, guest), power.RUNNING),
    _plan("suspend", "suspended", lambda driver, node, guest: driver.suspend(node, guest), power.SUSPENDED),
    _plan("resume", "resumed", lambda driver, node, guest: driver.resume(node, guest), power.RUNNING),
    _stopping("stop"),
    _stopping("soft_delete"),
    # What it was before is what was wrong.
    Plan("power_restore", {"power_on": Deed(power_on)}, power.RUNNING),
    Plan("power_sync", {"power_off": Deed(power_off)}, power.SHUTDOWN),
)
