"""Runs a service: a supervisor, and one process that does the work and is replaced when it dies.

Imports nothing but this file's needs until the concurrency backend is chosen. The program itself is imported
in the process that works: a supervisor that had it in memory would keep half as much again for itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pinfold import concurrency
from pinfold.model import errors

if TYPE_CHECKING:
    from oslo_config import cfg

    from pinfold.runtime import Runtime


class Service(Protocol):
    """What a process runs."""

    def start(self) -> None:
        """Returns when work is taken, or ``stop`` was called meanwhile.

        Raises ConfigurationError when it never can work, Unavailable when it cannot yet.
        """

    def stop(self) -> None:
        """Take no more work and finish what is under way. May come at any time, also during ``start``, and
        more than once."""


class OnEnd(Protocol):
    """Told, once, why this process must end."""

    def __call__(self, why: str, *, replace: bool = False) -> None:
        """Not to be replaced, unless another one in its place would do better (``replace``)."""


class Program(NamedTuple):
    """What an assembly module has as ``PROGRAM``.

    ``registers`` add options to the configuration; ``build`` makes the services in the order in which they
    start (they are stopped in the other). It is called in the process that does the work, perhaps again when
    a start failed; raises ConfigurationError or Unavailable.
    """

    registers: Sequence[Callable[[cfg.ConfigOpts], None]]
    build: Callable[[cfg.ConfigOpts, Runtime, OnEnd], Sequence[Service]]


def main(name: str, assembly: str, argv: Sequence[str] | None = None) -> int:
    """Run the ``PROGRAM`` of the module ``assembly`` under ``name`` until it is told to stop; the exit code."""
    # Until a supervisor is there that knows better: there is nothing to finish, and nothing to reload.
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        concurrency.choose(arguments, program=name)
        return _supervise(name, assembly, arguments)
    except errors.ConfigurationError as error:
        print(f"{name}: {error.message}", file=sys.stderr)
        return 1


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(0)


def _supervise(name: str, assembly: str, arguments: Sequence[str]) -> int:
    from oslo_service import service

    from pinfold.cmd import configuration, incarnation
    from pinfold.runtime import RealRuntime

    conf = configuration.configure(name, arguments)
    incarnation.reload_in_place()
    work = incarnation.Incarnation(name, conf, assembly, RealRuntime())
    launcher = service.ProcessLauncher(conf, restart_method="mutate")
    launcher.launch_service(work, workers=1)
    code = 0
    try:
        launcher.wait()
    except SystemExit as end:
        code = int(end.code or 0)
    return work.verdict.code or code
