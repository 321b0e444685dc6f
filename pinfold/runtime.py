"""Time, threads, locks, random numbers and new ids, handed in so that a simulator can replace them.

Nothing in ``api``, ``conductor``, ``compute`` and ``db`` takes these from the standard library directly.
"""

from __future__ import annotations

import datetime
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Task(Protocol):
    """A thread that was started."""

    def join(self, timeout: float | None = None) -> bool:
        """Wait for its end; True if it has ended."""


class Event(Protocol):
    """As ``threading.Event``."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Runtime(Protocol):
    """What the world gives: one per process."""

    def monotonic(self) -> float:
        """Seconds; never goes back."""

    def now(self) -> datetime.datetime:
        """The wall clock in UTC, for people to read; nothing is decided by it."""

    def sleep(self, seconds: float) -> None: ...

    def spawn(self, function: Callable[..., Any], *args: Any, name: str) -> Task:
        """Run ``function(*args)`` in a thread that does not keep the process alive."""

    def lock(self) -> AbstractContextManager[Any]:
        """A lock that is first come, first served and not re-entrant."""

    def event(self) -> Event: ...

    def random(self) -> random.Random: ...

    def new_id(self) -> str:
        """A new UUID in its canonical text form."""


class FairLock:
    """First come, first served: ownership is handed to the longest waiter, whatever its thread's identity."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._waiters: deque[threading.Event] = deque()

    def __enter__(self) -> FairLock:
        with self._guard:
            if not self._held and not self._waiters:
                self._held = True
                return self
            turn = threading.Event()
            self._waiters.append(turn)
        turn.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        with self._guard:
            if self._waiters:
                self._waiters.popleft().set()
            else:
                self._held = False


class _ThreadTask:
    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    def join(self, timeout: float | None = None) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()


class RealRuntime:
    """The real world. Under eventlet's monkey-patching its threads and locks are green."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def spawn(self, function: Callable[..., Any], *args: Any, name: str) -> Task:
        thread = threading.Thread(target=function, args=args, name=name, daemon=True)
        thread.start()
        return _ThreadTask(thread)

    def lock(self) -> AbstractContextManager[Any]:
        return FairLock()

    def event(self) -> Event:
        return threading.Event()

    def random(self) -> random.Random:
        return self._random

    def new_id(self) -> str:
        return str(uuid.uuid4())
