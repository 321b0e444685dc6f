"""Fibers, virtual time, and processes that can die at any point: what the simulated world runs on.

One fiber runs at a time, until it comes to a point where it may be switched; which one goes on there is
decided by the seed. Time stands still while anything can run, and then jumps to the next timer.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from greenlet import greenlet

#: So many switches without time going on mean that somebody runs in circles.
RUNAWAY = 200_000


class Killed(BaseException):
    """The process of this fiber is gone, as by kill -9: thrown in where it stood."""


class Busy(Exception):
    """Somebody from outside would have to wait for a lock."""


class Runaway(Exception):
    """Something goes on and on without time passing."""


class Process:
    """What dies together. A paused process (SIGSTOP) keeps its fibers, and none of them runs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.paused = False
        self.fibers: dict[Fiber, None] = {}
        self.frozen: list[Fiber] = []
        self.at_death: list[Callable[[], None]] = []

    @property
    def stands_still(self) -> bool:
        """Whether none of its fibers may run now."""
        return self.dead or self.paused

    def __str__(self) -> str:
        return self.name


class Fiber:
    """A thread of a process."""

    __slots__ = ("done", "greenlet", "name", "process", "waiters")

    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        self.name = name
        self.done = False
        self.waiters: list[Wait] = []
        self.greenlet: Any = None


class Timer:
    """Something that happens at a time, unless it is cancelled."""

    __slots__ = ("act",)

    def __init__(self, act: Callable[[], None]) -> None:
        self.act: Callable[[], None] | None = act

    def cancel(self) -> None:
        self.act = None


class Wait:
    """One fiber that waits once: for somebody to wake it, or for a time."""

    __slots__ = ("fiber", "over", "woken")

    def __init__(self, fiber: Fiber) -> None:
        self.fiber = fiber
        self.over = False
        self.woken = False


class Loop:
    """Runs fibers. ``restless`` is how likely a fiber is switched at a point; ``at_point`` may kill it there."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.steps = 0
        self.restless = 1.0
        self.at_point: Callable[[Process, str], None] | None = None
        self.on_crash: Callable[[Fiber, BaseException], None] | None = None
        self.atomic = False
        self.halted = False
        self.current: Fiber | None = None
        self._hub: Any = greenlet.getcurrent()
        self._ready: list[Fiber] = []
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._dying: list[Process] = []
        self._still = 0

    # --- for fibers ----------------------------------------------------------------------------

    def point(self, process: Process, what: str) -> None:
        """Here the fiber may be switched, or its process killed. Raises Killed."""
        if process.dead:
            raise Killed
        if self.atomic or self.current is None:
            return
        self.steps += 1
        if self.at_point is not None:
            self.at_point(process, what)
        if process.stands_still or self.random.random() < self.restless:
            self._ready.append(self.current)
            self.park(process)

    def park(self, process: Process) -> None:
        """Until somebody makes this fiber ready again. Raises Killed."""
        if self.atomic:
            raise AssertionError("a fiber is switched inside a transaction")
        self._hub.switch()
        if process.dead:
            raise Killed

    def wait(self, wait: Wait, timeout: float | None) -> bool:
        """Until ``wake`` or for ``timeout`` seconds; whether it was woken. Raises Killed."""
        timer = None if timeout is None else self.after(timeout, lambda: self._expire(wait))
        self.park(wait.fiber.process)
        if timer is not None:
            timer.cancel()
        return wait.woken

    def sleep(self, process: Process, seconds: float) -> None:
        """Raises Killed."""
        if process.dead:
            raise Killed
        assert self.current is not None
        self.wait(Wait(self.current), max(0.0, seconds))

    # --- for anybody ---------------------------------------------------------------------------

    def wake(self, wait: Wait) -> bool:
        """End a wait; False if it was over."""
        if wait.over:
            return False
        wait.over = wait.woken = True
        self._ready.append(wait.fiber)
        return True

    def _expire(self, wait: Wait) -> None:
        if not wait.over:
            wait.over = True
            self._ready.append(wait.fiber)

    def after(self, seconds: float, act: Callable[[], None]) -> Timer:
        """Do ``act`` (which must not wait) in ``seconds``."""
        timer = Timer(act)
        self._count += 1
        heapq.heappush(self._timers, (self.now + seconds, self._count, timer))
        return timer

    def spawn(self, process: Process, run: Callable[[], Any], name: str) -> Fiber:
        """A new fiber of ``process``, that runs some time."""
        fiber = Fiber(process, name)
        fiber.greenlet = greenlet(lambda: self._main(fiber, run), self._hub)
        process.fibers[fiber] = None
        self._ready.append(fiber)
        return fiber

    def kill(self, process: Process) -> None:
        """As by kill -9: from here on nothing of it has any effect."""
        if process.dead:
            return
        process.dead = True
        self._dying.append(process)
        for act in process.at_death:
            act()

    def pause(self, process: Process) -> None:
        """As by SIGSTOP."""
        process.paused = True

    def resume(self, process: Process) -> None:
        """As by SIGCONT."""
        process.paused = False
        self._ready += process.frozen
        process.frozen.clear()

    def end(self, processes: Iterable[Process]) -> None:
        """Nothing happens any more."""
        self.at_point = None
        for process in processes:
            self.kill(process)
        self._bury()

    # --- the hub -------------------------------------------------------------------------------

    def run(self, stop: Callable[[], bool]) -> bool:
        """Until ``stop`` says so, asked whenever time is about to go on, or ``halted`` is set; False if nothing is
        left to happen."""
        while True:
            self._bury()
            if self.halted:
                return True
            if self._ready:
                self._step()
            elif stop():
                return True
            elif not self._next_timer():
                return False

    def _step(self) -> None:
        ready = self._ready
        index = int(self.random.random() * len(ready))
        fiber, ready[index] = ready[index], ready[-1]
        ready.pop()
        process = fiber.process
        if fiber.done or process.dead:
            return
        if process.paused:
            process.frozen.append(fiber)
            return
        self._still += 1
        if self._still > RUNAWAY:
            raise Runaway(
                f"{process.name}, in {fiber.name}: {RUNAWAY} switches, and it is still {self.now:.3f}"
            )
        self._switch_to(fiber)

    def _switch_to(self, fiber: Fiber, *thrown: Any) -> None:
        self.current = fiber
        try:
            if thrown:
                fiber.greenlet.throw(*thrown)
            else:
                fiber.greenlet.switch()
        except Killed:
            fiber.done = True  # it had not begun
        finally:
            self.current = None

    def _next_timer(self) -> bool:
        while self._timers:
            time, _, timer = heapq.heappop(self._timers)
            if timer.act is not None:
                self._still = 0
                self.now = max(self.now, time)
                timer.act()
                return True
        return False

    def _bury(self) -> None:
        while self._dying:
            process = self._dying.pop()
            for fiber in list(process.fibers):
                self._switch_to(fiber, Killed)
            process.frozen.clear()

    def _main(self, fiber: Fiber, run: Callable[[], Any]) -> None:
        try:
            run()
        except Killed:
            pass
        except Exception as error:
            if self.on_crash is None:
                raise
            self.on_crash(fiber, error)
        finally:
            fiber.done = True
            fiber.process.fibers.pop(fiber, None)
            for wait in fiber.waiters:
                self.wake(wait)


class Lock:
    """First come, first served; of one process."""

    def __init__(self, loop: Loop, process: Process) -> None:
        self._loop = loop
        self._process = process
        self._held = False
        self._waiters: deque[Fiber] = deque()

    def __enter__(self) -> Lock:
        loop = self._loop
        loop.point(self._process, "lock")
        if self._held:
            if loop.current is None:
                raise Busy
            self._waiters.append(loop.current)
            loop.park(self._process)
        self._held = True
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process.dead:
            return
        if self._waiters:
            self._loop.wake(Wait(self._waiters.popleft()))
        else:
            self._held = False


class Event:
    """As ``threading.Event``; of one process."""

    def __init__(self, loop: Loop, process: Process) -> None:
        self._loop = loop
        self._process = process
        self._set = False
        self._waits: list[Wait] = []

    def set(self) -> None:
        self._set = True
        waits, self._waits = self._waits, []
        for wait in waits:
            self._loop.wake(wait)

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        loop = self._loop
        loop.point(self._process, "wait")
        if self._set or (timeout is not None and timeout <= 0):
            return self._set
        assert loop.current is not None
        wait = Wait(loop.current)
        self._waits.append(wait)
        if loop.wait(wait, timeout):
            return True
        if wait in self._waits:
            self._waits.remove(wait)
        return self._set
