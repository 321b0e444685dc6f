"""Rebuild: the guest gets a new disk where it is, and if its image asks for that, a new place on its node.

The begin of ``rebuild`` is the fenced write before the old disk goes: after it the operation only goes forward.
"""

from __future__ import annotations

from pinfold.compute.operations import spawning
from pinfold.compute.operations.attempt import IMAGE_GONE, NO_FIT, STORE_ERROR, Attempt, Failed, Refused
from pinfold.compute.operations.runner import Deed, Plan
from pinfold.compute.tracker import ClaimRefused, Held, NoFit, Proposal, Wanted
from pinfold.image.store import ImageNotFound
from pinfold.model import errors, states
from pinfold.rpcapi import messages
from pinfold.virt import driver


def prepare(attempt: Attempt) -> None:
    """See that there is an image, while the old disk is there, and find the guest's place."""
    attempt.retry(
        lambda: _look_for_image(attempt),
        until=attempt.patience,
        transient=lambda failed: failed.code == STORE_ERROR,
    )
    if attempt.work.refit:
        _refit(attempt)


def _look_for_image(attempt: Attempt) -> None:
    image = attempt.work.image or ""
    try:
        status = attempt.tools.store.get(image).status
    except ImageNotFound:
        status = "gone"
    except errors.Unavailable as error:
        raise Failed("The image store does not answer.", code=STORE_ERROR, details=error.message) from error
    except errors.PinfoldError as error:
        raise Failed(
            f"The server's image {image} cannot be used.", code="image-refused", details=error.message
        ) from error
    if status != "active":
        raise Failed(f"The server cannot be rebuilt: its image {image} is {status}.", code=IMAGE_GONE)


def _refit(attempt: Attempt) -> None:
    """Plan the guest's place as if it held none, and have the book write that down."""
    work, tools = attempt.work, attempt.tools
    wanted = Wanted(work.claim or "", work.instance, work.operation, work.demand)

    def ask(proposal: Proposal) -> messages.Refitted:
        return attempt.conductor.refit(_record(attempt, proposal))

    def plan(wanted: Wanted) -> Held:
        return tools.tracker.refit(work.node, wanted, ask, attempt.deadline)

    try:
        held = tools.calls.until(attempt.deadline, plan, wanted)
    except ClaimRefused as error:
        raise Refused(error.message, undo=True) from error
    except NoFit as error:
        raise Failed(error.message, code=NO_FIT, refusals=error.refusals) from error
    except errors.AccountingError as error:
        raise Failed("The node's claims do not add up.", code=error.code, details=error.message) from error
    attempt.placement = held.placement


def _record(attempt: Attempt, proposal: Proposal) -> messages.Refit:
    work, tools, view = attempt.work, attempt.tools, proposal.view
    return messages.Refit(
        operation=work.operation,
        attempt=work.attempt,
        host=tools.settings.host,
        incarnation=tools.incarnation,
        node=work.node,
        generation=proposal.generation,
        claim=view.id,
        memory_mb=view.memory_mb,
        disk_gb=view.disk_gb,
        shared_vcpus=view.shared_vcpus,
        placement=view.placement,
    )


def rebuild(attempt: Attempt) -> None:
    """Put the new guest in the place of the old one; it runs if the old one did, or if nobody knows."""
    work, hypervisor = attempt.work, attempt.tools.driver
    power_on = work.vm_state != states.STOPPED

    def once() -> None:
        attempt.drive(
            "rebuilt",
            lambda: spawning.with_image(
                attempt,
                work.image,
                lambda image: hypervisor.rebuild(spawning.spec_of(attempt), image, power_on=power_on),
            ),
        )

    attempt.retry(once, until=attempt.patience, transient=lambda failed: failed.code == STORE_ERROR)


def nothing(attempt: Attempt) -> None:
    """What was planned is given up by ``abort``."""


PLAN = Plan("rebuild", {"prepare": Deed(prepare, undo=nothing), "rebuild": Deed(rebuild)}, driver.RUNNING)
