"""What create and unshelve share: claim a place, spawn the guest from an image."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pinfold.compute.operations.attempt import IMAGE_GONE, NO_FIT, STORE_ERROR, Attempt, Failed, Refused
from pinfold.compute.operations.runner import Deed
from pinfold.compute.tracker import ClaimRefused, Held, NoFit, Proposal, Wanted
from pinfold.image.store import ImageNotFound
from pinfold.model import errors
from pinfold.model.work import Work
from pinfold.rpcapi import messages
from pinfold.virt.driver import GuestSpec


def claim(attempt: Attempt) -> None:
    """Take a place on the node, or the one that an earlier attempt of the operation took."""
    work, tools = attempt.work, attempt.tools
    wanted = Wanted(tools.runtime.new_id(), work.instance, work.operation, work.demand)

    def ask(proposal: Proposal) -> messages.Claimed:
        return attempt.conductor.claim(_record(attempt, proposal))

    def plan(wanted: Wanted) -> Held:
        return tools.tracker.claim(work.node, wanted, ask, attempt.deadline)

    try:
        attempt.held = tools.calls.until(attempt.deadline, plan, wanted)
    except ClaimRefused as error:
        raise Refused(error.message) from error
    except NoFit as error:
        raise Failed(error.message, code=NO_FIT, refusals=error.refusals) from error
    except errors.AccountingError as error:
        raise Failed("The node's claims do not add up.", code=error.code, details=error.message) from error
    attempt.accepted = True
    attempt.waits = {}


def _record(attempt: Attempt, proposal: Proposal) -> messages.Claim:
    work, tools, view = attempt.work, attempt.tools, proposal.view
    return messages.Claim(
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
        waits={**attempt.waits, "lock": round(proposal.waited, 3)},
    )


def spawn(attempt: Attempt) -> None:
    """Start the guest on the claim. A store that does not answer is tried for a while; an image that is gone is
    gone."""

    def once() -> None:
        attempt.drive("started", lambda: _spawn_from_image(attempt))

    attempt.retry(once, until=attempt.patience, transient=lambda failed: failed.code == STORE_ERROR)


def _spawn_from_image(attempt: Attempt) -> None:
    work = attempt.work
    with_image(attempt, work.image, lambda image: attempt.tools.driver.spawn(spec_of(attempt), image))


def spec_of(attempt: Attempt) -> GuestSpec:
    """What is to run, on the claim that the attempt holds, or else where it is told."""
    work, held = attempt.work, attempt.held
    return GuestSpec(
        instance=work.instance,
        name=work.name,
        node=work.node,
        vcpus=work.demand.vcpus,
        memory_mb=work.demand.memory_mb,
        disk_gb=work.demand.disk_gb,
        placement=held.placement if held else attempt.placement,
    )


def with_image(attempt: Attempt, image_id: str | None, call: Callable[[Iterator[bytes]], object]) -> None:
    """``call`` with the data of an image; what ends that early is what is raised. Raises Failed, Refused."""
    if image_id is None:
        raise _image_gone(attempt.work, image_id)
    image = _Pieces(attempt, image_id)
    try:
        call(image)
    except Exception:
        # A driver may wrap what its source raised.
        if image.failed is not None:
            raise image.failed from None
        raise
    finally:
        image.close()


class _Pieces:
    """The image's data; ``failed`` is why it ended early."""

    def __init__(self, attempt: Attempt, image: str) -> None:
        self._attempt = attempt
        self._image = image
        self.failed: Failed | Refused | None = None
        try:
            self._data = iter(attempt.tools.store.download(image))
        except errors.PinfoldError as error:
            raise self._as_failed(error) from error

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            self._attempt.require_mine()
            return next(self._data)
        except Refused as refused:
            self.failed = refused
            raise
        except errors.PinfoldError as error:
            self.failed = self._as_failed(error)
            raise self.failed from error

    def close(self) -> None:
        """Let go of the store's file or connection."""
        close = getattr(self._data, "close", None)
        if close is not None:
            close()

    def _as_failed(self, error: errors.PinfoldError) -> Failed:
        if isinstance(error, ImageNotFound):
            return _image_gone(self._attempt.work, self._image)
        return Failed("The server's image could not be read.", code=STORE_ERROR, details=error.message)


def _image_gone(work: Work, image: str | None) -> Failed:
    what = "its image" if image == work.image else "the image that it travels in,"
    return Failed(f"The server cannot be started: {what} {image} is gone.", code=IMAGE_GONE)


def remove(attempt: Attempt) -> None:
    """Take the spawn back."""
    attempt.remove_guest()


def nothing(attempt: Attempt) -> None:
    """The claim goes by ``abort`` or ``release``, after the guest is gone."""


DEEDS = {
    "claim": Deed(claim, undo=nothing, begins=False),
    "spawn": Deed(spawn, undo=remove, begins=False),
}
