"""The files at [DEFAULT] pid_file: who works, who supervises, and a lock that only one can hold."""

from __future__ import annotations

import os

from oslo_config import cfg
from oslo_log import log

from pinfold import durable
from pinfold.model import errors
from pinfold.runtime import Event, Runtime

LOG = log.getLogger(__name__)

_LOOK = 0.05


class PidFiles:
    """Those of one process. The kernel gives the lock free when it dies, however it dies."""

    def __init__(self, conf: cfg.ConfigOpts, runtime: Runtime) -> None:
        self._conf = conf
        self._runtime = runtime
        self._lock = -1

    def take(self, supervisor: int, stopping: Event) -> bool:
        """Wait for the lock, then write both numbers. False when told to stop before.

        Raises ConfigurationError when the former process is not gone within start_wait seconds.
        """
        path = self._conf.pid_file
        if not path:
            return True
        try:
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            if not self._take_lock(stopping):
                return False
            durable.replace(self._beside("supervisor"), b"%d\n" % supervisor)
            durable.replace(path, b"%d\n" % os.getpid())
        except OSError as error:
            raise errors.ConfigurationError(
                f"[DEFAULT] pid_file = {path} cannot be written: {error.strerror}"
            ) from error
        return True

    def remove(self) -> None:
        """Nobody works here any more. The lock stays until the process is gone."""
        if self._lock < 0:
            return
        for path in (self._conf.pid_file, self._beside("supervisor")):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass

    def _take_lock(self, stopping: Event) -> bool:
        path = self._beside("lock")
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        until = self._runtime.monotonic() + self._conf.start_wait
        told = False
        while True:
            try:
                self._lock = durable.claim(path)
                return True
            except BlockingIOError:
                if self._runtime.monotonic() >= until:
                    raise self._in_the_way() from None
            if not told:
                LOG.info("Waiting until the former process, %s, is gone", self._former())
                told = True
            if stopping.wait(_LOOK):
                return False

    def _in_the_way(self) -> errors.ConfigurationError:
        return errors.ConfigurationError(
            f"Process {self._former()} still works with [DEFAULT] pid_file = {self._conf.pid_file}, and was not "
            f"gone within start_wait = {self._conf.start_wait:g} seconds: stop it, or give this service a "
            "pid_file of its own."
        )

    def _former(self) -> str:
        try:
            with open(self._conf.pid_file, encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return "of unknown number"

    def _beside(self, kind: str) -> str:
        return f"{str(self._conf.pid_file).removesuffix('.pid')}.{kind}"
