"""A service that does what its options say and writes down what happens to it."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from oslo_config import cfg

from pinfold.cmd import service
from pinfold.model import errors
from pinfold.runtime import Runtime


def _register(conf: cfg.ConfigOpts) -> None:
    options = [
        cfg.StrOpt("diary"),
        cfg.StrOpt("start", default="well"),
        cfg.StrOpt("stop", default="well"),
        cfg.StrOpt("colour", default="red", mutable=True),
        cfg.StrOpt("size", default="small"),
    ]
    conf.register_opts(options, group="toy")


class Toy:
    def __init__(self, conf: cfg.ConfigOpts, runtime: Runtime, on_end: service.OnEnd) -> None:
        self._conf = conf.toy
        self._runtime = runtime
        self._on_end = on_end
        self._stopping = runtime.event()
        self._note("made")

    def start(self) -> None:
        how, needed = self._conf.start, Path(self._conf.diary + ".needed")
        if how == "configuration":
            raise errors.ConfigurationError("[toy] start = configuration cannot work.")
        if how == "crash":
            raise KeyError("a crash")
        if how == "unavailable" and not needed.exists():
            self._note("refused")
            raise errors.Unavailable("the toy box is away.")
        self._note("started")
        self._runtime.spawn(self._watch, name="watch")
        if how == "superseded":
            self._on_end("Another toy is here.")
        if how == "deaf" and not needed.exists():
            needed.touch()
            self._on_end("This toy is deaf.", replace=True)

    def stop(self) -> None:
        self._stopping.set()
        self._note("stopping")
        if self._conf.stop == "slowly":
            self._runtime.sleep(1.5)
        if self._conf.stop == "never":
            self._runtime.event().wait()
        self._note("stopped")

    def _watch(self) -> None:
        seen = None
        while not self._stopping.wait(0.02):
            now = f"{self._conf.colour} {self._conf.size}"
            if now != seen:
                self._note(now)
            seen = now

    def _note(self, what: str) -> None:
        with open(self._conf.diary, "a", encoding="utf-8") as diary:
            diary.write(f"{os.getpid()} {what}\n")


def _build(conf: cfg.ConfigOpts, runtime: Runtime, on_end: service.OnEnd) -> list[service.Service]:
    lock, event = type(threading.Lock()).__module__, type(threading.Event()._cond).__module__  # type: ignore[attr-defined]
    with open(conf.toy.diary + ".locks", "w", encoding="utf-8") as file:
        file.write(f"{lock} {event} {'eventlet' in sys.modules and sys.modules['eventlet'] is not None}")
    return [Toy(conf, runtime, on_end)]


PROGRAM = service.Program((_register,), _build)
