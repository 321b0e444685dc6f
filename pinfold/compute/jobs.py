"""What a worker is doing: one lane per instance, and a bounded number of threads.

A lane is the lock of an instance: at most one job of it runs at a time, in the order they came. Operations
and the audit alike go through it, so nothing ever looks at a guest that somebody else is changing.

A thread in a hypervisor call that does not return cannot be taken back. Once its job is overdue it no longer
counts against the bound, so that other instances get their turn; its lane stays taken until it returns.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from pinfold.runtime import Event, Runtime

LOG = logging.getLogger(__name__)


class Key(msgspec.Struct, frozen=True):
    """One attempt of an operation on one node."""

    operation: str
    attempt: int
    node: str


class _Job:
    def __init__(
        self, instance: str, run: Callable[[], None], key: Key | None, overdue_at: float, done: Event
    ) -> None:
        self.instance = instance
        self.run = run
        self.key = key
        self.overdue_at = overdue_at
        self.done = done


class Jobs:
    """Runs at most ``limit`` jobs that are in time, each in a thread of its own."""

    def __init__(self, runtime: Runtime, limit: int) -> None:
        self._runtime = runtime
        self._limit = limit
        self._guard = runtime.lock()
        self._waiting: deque[_Job] = deque()
        self._running: dict[str, _Job] = {}
        self._keys: set[Key] = set()
        self._refused: set[Key] = set()
        self._told: dict[str, str] = {}
        self._closed = False
        self._idle = runtime.event()
        self._idle.set()

    def submit(self, instance: str, run: Callable[[], None], *, key: Key, seconds: float) -> bool:
        """Take an operation's work; False if it is under way already, or no more is taken."""
        with self._guard:
            if self._closed or key in self._keys:
                return False
            self._keys.add(key)
            self._add(instance, run, key, seconds)
            started = self._startable()
        self._start(started)
        return True

    def try_submit(self, instance: str, run: Callable[[], None], *, seconds: float) -> Event | None:
        """Take a job if nothing is under way for its instance; set once it is done. None if it was not taken."""
        with self._guard:
            if self._closed or self._is_busy(instance):
                return None
            job = self._add(instance, run, None, seconds)
            started = self._startable()
        self._start(started)
        return job.done

    def under_way(self) -> tuple[tuple[str, int], ...]:
        """The operations taken and not ended, each with its newest attempt here."""
        with self._guard:
            newest: dict[str, int] = {}
            for key in self._keys:
                newest[key.operation] = max(key.attempt, newest.get(key.operation, 0))
        return tuple(sorted(newest.items()))

    def refuse(self, operations: Iterable[tuple[str, int]]) -> None:
        """These are no longer this worker's."""
        named = set(operations)
        with self._guard:
            self._refused.update(key for key in self._keys if (key.operation, key.attempt) in named)

    def refuse_others(self, instance: str, key: Key) -> None:
        """Another operation has taken over what is under way for the instance: that is to end soon."""
        with self._guard:
            running = self._running.get(instance)
            there = [job for job in (running, *self._waiting) if job is not None and job.instance == instance]
            self._refused.update(
                job.key for job in there if job.key is not None and job.key.operation != key.operation
            )

    def tell(self, operation: str, wish: str) -> bool:
        """What is wished of an operation under way; False if it is not."""
        with self._guard:
            there = any(key.operation == operation for key in self._keys)
            if there:
                self._told[operation] = wish
        return there

    def told(self, operation: str) -> str | None:
        """What ``tell`` has said last."""
        with self._guard:
            return self._told.get(operation)

    def is_refused(self, key: Key) -> bool:
        """Whether ``refuse`` has named it."""
        with self._guard:
            return key in self._refused

    def look(self) -> None:
        """Start what waited for a job that is overdue by now; called now and then."""
        with self._guard:
            started = self._startable()
        self._start(started)

    def close(self) -> None:
        """Take no more; what waits is dropped (the book has it), what runs goes on."""
        with self._guard:
            self._closed = True
            for job in self._waiting:
                self._forget(job)
            self._waiting.clear()
            self._note_idle()

    def drain(self, timeout: float) -> bool:
        """Wait until nothing runs any more; False if it still does after ``timeout`` seconds."""
        return self._idle.wait(timeout)

    def is_busy(self, instance: str) -> bool:
        """Whether something is under way for the instance."""
        with self._guard:
            return self._is_busy(instance)

    def _is_busy(self, instance: str) -> bool:
        return instance in self._running or any(job.instance == instance for job in self._waiting)

    def _add(self, instance: str, run: Callable[[], None], key: Key | None, seconds: float) -> _Job:
        job = _Job(instance, run, key, self._runtime.monotonic() + seconds, self._runtime.event())
        self._waiting.append(job)
        self._idle.clear()
        return job

    def _startable(self) -> list[_Job]:
        """Move jobs from waiting to running as far as lanes and the bound allow (under the guard)."""
        now = self._runtime.monotonic()
        room = self._limit - sum(job.overdue_at > now for job in self._running.values())
        started: list[_Job] = []
        kept: deque[_Job] = deque()
        for job in self._waiting:
            if len(started) < room and job.instance not in self._running:
                self._running[job.instance] = job
                started.append(job)
            else:
                kept.append(job)
        self._waiting = kept
        return started

    def _start(self, started: list[_Job]) -> None:
        for job in started:
            self._runtime.spawn(self._work, job, name=f"job-{job.instance}")

    def _work(self, job: _Job) -> None:
        try:
            job.run()
        except Exception:
            LOG.exception("The work on server %s ended with an unexpected error", job.instance)
        finally:
            with self._guard:
                del self._running[job.instance]
                self._forget(job)
                started = self._startable()
                self._note_idle()
            job.done.set()
            self._start(started)

    def _forget(self, job: _Job) -> None:
        if job.key is not None:
            self._keys.discard(job.key)
            self._refused.discard(job.key)
            self._told.pop(job.key.operation, None)

    def _note_idle(self) -> None:
        if not self._running and not self._waiting:
            self._idle.set()
