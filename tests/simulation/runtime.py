"""The Runtime that the product is handed in the simulated world."""

from __future__ import annotations

import datetime
import random
import uuid
from collections.abc import Callable
from typing import Any

from tests.simulation.loop import Event, Fiber, Lock, Loop, Process, Wait

#: When the simulated world begins, in seconds since 1970.
BEGAN = 1_700_000_000.0


class SimTask:
    """A fiber, as the product sees it."""

    def __init__(self, loop: Loop, fiber: Fiber) -> None:
        self._loop = loop
        self._fiber = fiber

    def join(self, timeout: float | None = None) -> bool:
        """Wait for its end; True if it has ended."""
        if not self._fiber.done:
            assert self._loop.current is not None
            wait = Wait(self._loop.current)
            self._fiber.waiters.append(wait)
            self._loop.wait(wait, timeout)
        return self._fiber.done


class SimRuntime:
    """``wall_offset`` is how wrong the wall clock of this process is."""

    def __init__(self, loop: Loop, process: Process) -> None:
        self._loop = loop
        self._process = process
        self.wall_offset = 0.0

    def monotonic(self) -> float:
        """Seconds since the world began; the same in all processes, which nothing may rely on."""
        return self._loop.now

    def now(self) -> datetime.datetime:
        """The wall clock."""
        seconds = BEGAN + self._loop.now + self.wall_offset
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC)

    def sleep(self, seconds: float) -> None:
        """Virtual."""
        self._loop.point(self._process, "sleep")
        self._loop.sleep(self._process, seconds)

    def spawn(self, function: Callable[..., Any], *args: Any, name: str) -> SimTask:
        """A fiber of this process."""
        self._loop.point(self._process, "spawn")
        return SimTask(self._loop, self._loop.spawn(self._process, lambda: function(*args), name))

    def lock(self) -> Lock:
        """First come, first served."""
        return Lock(self._loop, self._process)

    def event(self) -> Event:
        """Of this process."""
        return Event(self._loop, self._process)

    def random(self) -> random.Random:
        """Decided by the seed."""
        return self._loop.random

    def new_id(self) -> str:
        """Decided by the seed."""
        return new_id(self._loop.random)


def new_id(source: random.Random) -> str:
    """A UUID of version 4 from a source that can be replayed."""
    return str(uuid.UUID(int=source.getrandbits(128), version=4))
