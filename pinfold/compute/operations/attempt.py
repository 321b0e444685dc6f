"""One attempt of an operation: its work, its deadline, and the ways in which it touches the world."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import msgspec

from pinfold.compute import resume
from pinfold.compute.calls import Calls, Conductor, NoAnswer
from pinfold.compute.fence import Fence, Fenced
from pinfold.compute.jobs import Jobs, Key
from pinfold.compute.settings import Settings
from pinfold.compute.tracker import Held, ResourceTracker
from pinfold.image.store import Store
from pinfold.metrics import WorkerMetrics
from pinfold.model import errors
from pinfold.model.numa import Refusal
from pinfold.model.work import Work
from pinfold.rpcapi import messages
from pinfold.runtime import Event, Runtime
from pinfold.virt.driver import NOSTATE, Driver, PowerState

LOG = logging.getLogger(__name__)

T = TypeVar("T")

DRIVER_ERROR, IMAGE_GONE, NO_FIT, STORE_ERROR = "driver-error", "image-gone", "no-fit", "image-store"
_PAUSE, _LONGEST = 0.2, 5.0


class Failed(errors.PinfoldError):
    """A step could not be done: ``message`` for the user, ``details`` for an admin. ``gone``: the guest that it was
    to remove is gone all the same."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        details: str = "",
        refusals: tuple[Refusal, ...] = (),
        gone: bool = False,
    ) -> None:
        super().__init__(message, code=code)
        self.details = details
        self.refusals = refusals
        self.gone = gone


class Refused(errors.PinfoldError):
    """The book says that the operation is not this attempt's any more; ``undo`` as in ``messages.Begun``."""

    code = "refused"

    def __init__(self, what: str, *, undo: bool = False) -> None:
        super().__init__(what)
        self.undo = undo


class Tools(msgspec.Struct, frozen=True):
    """What a worker works with. ``stop`` is set when the service ends."""

    settings: Settings
    incarnation: str
    runtime: Runtime
    conductor: Conductor
    calls: Calls
    driver: Driver
    store: Store
    tracker: ResourceTracker
    fence: Fence
    jobs: Jobs
    stop: Event
    metrics: WorkerMetrics = msgspec.field(default_factory=WorkerMetrics)


class Attempt:
    """``held`` is the claim of this operation once it has one; ``placement`` is where the guest is, or is to be;
    ``accepted`` is whether the book has let this attempt do anything yet, and ``step`` the last that it has let it
    begin; ``waits`` is what it has waited for and the book has not been told."""

    def __init__(
        self, tools: Tools, conductor: Conductor, work: Work, deadline: float, queued: float = 0.0
    ) -> None:
        self.tools = tools
        self.conductor = conductor
        self.work = work
        self.deadline = deadline
        self.held: Held | None = None
        self.placement = work.placement
        self.accepted = False
        self.step = ""
        self.waits = {"queue": round(queued, 3)}

    def __str__(self) -> str:
        work = self.work
        return f"Operation {work.operation} ({work.kind}, attempt {work.attempt}) of server {work.instance}"

    @property
    def key(self) -> Key:
        """Under which ``Jobs`` knows it."""
        return Key(self.work.operation, self.work.attempt, self.work.node)

    def begin(self, step: str) -> messages.Begun:
        """Ask the book whether ``step`` may begin. Raises Refused, NoAnswer."""
        work, tools = self.work, self.tools
        waits, self.waits = self.waits, {}
        record = messages.Begin(
            work.operation, work.attempt, step, tools.settings.host, tools.incarnation, waits
        )
        begun = tools.calls.until(self.deadline, self.conductor.begin, record)
        if not begun.accepted:
            raise Refused(f"{step} was refused", undo=begun.undo)
        self.accepted, self.step = True, step
        return begun

    def drive(self, what: str, call: Callable[[], T]) -> T:
        """A driver call that changes something, logged before and after. Raises Failed, Ended."""
        try:
            self.tools.fence.wait(self.deadline)
        except Fenced as error:
            raise Failed(
                f"The server could not be {what} in time.", code="fenced", details=str(error)
            ) from error
        LOG.info("%s: the server is to be %s", self, what)
        try:
            result = call()
        except Refused:
            raise
        except errors.PinfoldError as error:
            raise _failure(what, error) from error
        except Exception as error:
            LOG.exception("%s: the server could not be %s", self, what)
            raise _failure(what, error) from error
        LOG.info("%s: the server is %s", self, what)
        return result

    def retry(self, step: Callable[[], None], *, until: float, transient: Callable[[Failed], bool]) -> None:
        """Do ``step``, again while it fails for a moment only. Raises the last Failed at ``until`` (monotonic)."""
        pause = _PAUSE
        while True:
            try:
                return step()
            except Failed as failed:
                left = until - self.tools.runtime.monotonic()
                if not transient(failed) or left <= 0 or self.tools.stop.wait(min(left, pause)):
                    raise
                LOG.warning("%s: %s It is tried again.", self, failed.message)
            pause = min(2 * pause, _LONGEST)

    @property
    def patience(self) -> float:
        """Until when a store that does not answer is tried (monotonic): the end of the operation needs time too."""
        now = self.tools.runtime.monotonic()
        return now + min(self.tools.settings.patience, max(0.0, self.deadline - now) / 2)

    def require_mine(self) -> None:
        """For work that takes long: raises Refused once the operation is known to be somebody else's.

        The book is asked, since only it knows whether what has been done is to be undone.
        """
        if not self.tools.jobs.is_refused(self.key):
            return
        if not self.step:
            raise Refused("the conductor has given it to somebody else")
        try:
            self.begin(self.step)
        except NoAnswer as error:
            LOG.warning("%s goes on for now: %s", self, error)

    def guest_is_listed(self) -> bool:
        """Whether the hypervisor has a guest of the server; True when it cannot say."""
        return self.power_state() is not None

    def power_state(self) -> PowerState | None:
        """What the server's guest does; None when the hypervisor has none, NOSTATE when it cannot say."""
        try:
            listed = self.tools.driver.list(self.work.node)
        except errors.PinfoldError as error:
            LOG.warning("%s: the hypervisor does not list its guests: %s", self, error)
            return NOSTATE
        return next((guest.power_state for guest in listed if guest.instance == self.work.instance), None)

    def remove_guest(self) -> bool:
        """Remove what this operation spawned, in a few tries; whether it is gone."""
        work, driver = self.work, self.tools.driver
        return self.few_tries(
            lambda: driver.destroy(work.node, work.instance), "its guest could not be removed"
        )

    def few_tries(self, call: Callable[[], object], problem: str) -> bool:
        """Do ``call``, again if it fails, but not for ever; whether it was done. Raises Ended."""
        tools = self.tools
        for number in range(tools.settings.destroy_tries):
            if number and tools.stop.wait(_PAUSE * 2**number):
                break
            tools.fence.require_living()
            try:
                call()
                return True
            except Exception as error:
                LOG.warning("%s: %s: %s", self, problem, error)
        return False

    def release(self, claim: str) -> None:
        """Free a claim if it has become a leftover; the caller has seen that no guest is behind it."""
        work, tools = self.work, self.tools
        record = messages.Release(tools.settings.host, tools.incarnation, work.node, claim)
        released = tools.calls.always(self.conductor.release, record)
        if released.released:
            tools.tracker.released(work.node, claim, released.generation)

    def may_run_again(self) -> bool:
        """Whether the guest may be started to take back that it was stopped: the book decides, now.

        Raises NoAnswer.
        """
        work, tools = self.work, self.tools
        record = messages.GuestRequest(tools.settings.host, tools.incarnation, work.node, work.instance)
        view = tools.calls.until(self.deadline, self.conductor.guest, record)
        return resume.is_allowed(view, apart_from=work.operation)


def _failure(what: str, error: Exception) -> Failed:
    """What a user is told: the driver's own sentence, but not the text of an error that is ours."""
    details = f"{type(error).__name__}: {error}"
    if isinstance(error, Failed):
        return error
    if isinstance(error, errors.PinfoldError):
        return Failed(f"The server could not be {what}: {error.message}", code=DRIVER_ERROR, details=details)
    return Failed(f"The server could not be {what}.", code=DRIVER_ERROR, details=details)
