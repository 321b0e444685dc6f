"""Say what is done and how long it has taken."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Progress:
    """One line per step: ``[  3.2s] starting the broker ... 2.9 s``."""

    def __init__(self, began: float | None = None) -> None:
        self.began = time.time() if began is None else began

    def say(self, text: str) -> None:
        print(f"[{time.time() - self.began:6.1f}s] {text}", flush=True)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        start = time.monotonic()
        print(f"[{time.time() - self.began:6.1f}s] {text} ...", end="", flush=True)
        done = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(done,), daemon=True)
        ticker.start()
        verdict = " failed"
        try:
            yield
            verdict = ""
        finally:
            done.set()
            ticker.join()
            print(f"{verdict} {time.monotonic() - start:.1f} s", flush=True)

    def _tick(self, done: threading.Event) -> None:
        while not done.wait(2.0):
            sys.stdout.write(".")
            sys.stdout.flush()


def wait_for(what: str, ready: Callable[[], object], seconds: float, every: float = 0.1) -> None:
    """Wait until ``ready()`` is true; TimeoutError names what did not happen."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(every)
