"""Whether messages reach this worker: what comes back of the echoes that it asks for with its heartbeats.

A worker may be heard and yet hear nothing: its connection stands and its calls are answered, but nobody takes from
its queue any more. So with each heartbeat it asks the conductor to send it an echo the way that work comes, and
counts only what has come. An echo that no conductor has sent (the broker was away, or it knows none) does not count.
"""

from __future__ import annotations

from pinfold.runtime import Runtime

# After a process stood still, or a connection broke, what was under way may be late all at once.
_LEAST = 3


class Hearing:
    """Deaf once echoes were sent for longer than ``patience`` seconds, a few of them, and none has come since."""

    def __init__(self, runtime: Runtime, patience: float) -> None:
        self._runtime = runtime
        self._patience = patience
        self._guard = runtime.lock()
        self._asked = 0
        self._came = 0
        self._missing: list[float] = []

    def ask(self) -> int:
        """The number of the next echo."""
        with self._guard:
            self._asked += 1
            return self._asked

    def sent(self, number: int, asked_at: float) -> None:
        """A conductor says that it has sent this echo, which was asked for at ``asked_at`` (monotonic)."""
        with self._guard:
            if number > self._came:
                self._missing.append(asked_at)

    def came(self, number: int) -> None:
        """An echo is here, so the queue is being taken from: also when it is an old one that was late."""
        with self._guard:
            self._came = max(self._came, number)
            self._missing.clear()

    @property
    def unheard(self) -> float:
        """For how many seconds nothing has come of what was sent; 0 when all has."""
        with self._guard:
            return self._runtime.monotonic() - self._missing[0] if self._missing else 0.0

    @property
    def is_deaf(self) -> bool:
        """Whether this worker must not claim any more to be up."""
        unheard = self.unheard
        with self._guard:
            return unheard > self._patience and len(self._missing) >= _LEAST
