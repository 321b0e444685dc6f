"""Self-fencing: a worker whose renewals are not heard starts nothing more.

A courtesy, not a guard: what keeps two guests apart is the book's answer to each write. It spares work
that would be refused.
"""

from __future__ import annotations

from pinfold.model import errors
from pinfold.runtime import Runtime

_LOOK = 1.0


class Fenced(errors.Unavailable):
    """The conductor has not heard this worker in time."""

    code = "fenced"


class Ended(errors.PinfoldError):
    """This incarnation of the worker is over: whatever it was doing is the next one's."""

    code = "worker-ended"


class Fence:
    """Open while the last renewal that was heard is younger than ``lease`` seconds, counted from when it was sent."""

    def __init__(self, runtime: Runtime, lease: float) -> None:
        self._runtime = runtime
        self.lease = lease
        self._sent = float("-inf")
        self._changed = runtime.event()
        self._ended: str | None = None

    def renewed(self, sent_at: float) -> None:
        """A renewal that was sent at ``sent_at`` (monotonic) has been heard."""
        self._sent = max(self._sent, sent_at)
        self._changed.set()

    def end(self, why: str) -> None:
        """For ever: this incarnation changes nothing more."""
        self._ended = why
        self._changed.set()

    @property
    def is_open(self) -> bool:
        """Whether something may be started now."""
        return self._ended is None and self._runtime.monotonic() - self._sent <= self.lease

    def require_living(self) -> None:
        """Raises Ended once this incarnation is over."""
        if self._ended is not None:
            raise Ended(self._ended)

    def wait(self, until: float) -> None:
        """Return once something may be started. Raises Fenced when that is not by ``until`` (monotonic), Ended."""
        self.require_living()
        while not self.is_open:
            left = until - self._runtime.monotonic()
            if left <= 0:
                raise Fenced("The conductor has not heard this worker for longer than its lease.")
            self._changed.clear()
            if not self.is_open:
                self._changed.wait(min(left, _LOOK))
            self.require_living()
