"""One life of the process that does the work, between its fork and its end."""

from __future__ import annotations

import ctypes
import gc
import importlib
import mmap
import os
import signal
import sys
from collections.abc import Sequence

from oslo_config import cfg
from oslo_log import log
from oslo_service import service

from pinfold import concurrency
from pinfold.cmd import configuration
from pinfold.cmd.pid_files import PidFiles
from pinfold.cmd.service import Program, Service
from pinfold.model import errors
from pinfold.runtime import Runtime

LOG = log.getLogger(__name__)

_PAUSE, _LONGEST_PAUSE = 1.0, 10.0
#: Of graceful_shutdown_timeout: the rest is for the supervisor, which kills without mercy after it.
_SHARE = 0.8
_FAILED = 1
#: From glibc's malloc.h.
_M_ARENA_MAX = -8


class Verdict:
    """What the process that works tells its supervisor; they share this memory.

    ``code`` other than 0: do not replace me, end with this code. ``worked``: some incarnation did start.
    ``stopping`` is the supervisor's to set: it has been told to stop.
    """

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 3)

    @property
    def code(self) -> int:
        return self._shared[0]

    @code.setter
    def code(self, value: int) -> None:
        self._shared[0] = value

    @property
    def worked(self) -> bool:
        return bool(self._shared[1])

    @worked.setter
    def worked(self, value: bool) -> None:
        self._shared[1] = value

    @property
    def stopping(self) -> bool:
        return bool(self._shared[2])

    @stopping.setter
    def stopping(self, value: bool) -> None:
        self._shared[2] = value


class Incarnation(service.ServiceBase):  # type: ignore[misc]  # untyped library
    """What oslo.service runs in the process that it forks, again in each that replaces one.

    Made in the supervisor; ``start``, ``stop`` and ``reset`` are called in the fork.
    """

    def __init__(self, name: str, conf: cfg.ConfigOpts, assembly: str, runtime: Runtime) -> None:
        self.verdict = Verdict()
        self._name = name
        self._conf = conf
        self._assembly = assembly
        self._runtime = runtime
        self._supervisor = os.getpid()
        self._pid: int | None = None
        self._stopping = runtime.event()
        self._services: Sequence[Service] = ()
        self._files = PidFiles(conf, runtime)

    def start(self) -> None:
        """Wait until the former process is gone, then start the services."""
        self._pid = os.getpid()
        if concurrency.chosen() == "eventlet":
            self._reload_on_signal()
        if self.verdict.code:
            # Forked in the very moment in which the supervisor was being told to stop.
            return
        why: str | None
        try:
            if self._files.take(self._supervisor, self._stopping):
                self._start_services(self._load())
            return
        except (errors.ConfigurationError, cfg.Error) as error:
            why = str(error)
        except Exception:
            LOG.exception("%s could not start", self._name)
            if self.verdict.worked:
                # It did work before, so it may again: have it replaced.
                os._exit(_FAILED)
            why = None
        self._end(why)

    def wait(self) -> None:
        """Nothing to wait for: the process lives until it is told to stop."""

    def stop(self, graceful: bool = True) -> None:
        """Stop the services, and the supervisor if it is not the one who asked."""
        if os.getpid() != self._pid:
            # oslo.service with eventlet calls it in the supervisor, too, before it passes the signal on.
            self.verdict.stopping = True
            return
        self._stopping.set()
        self._tell_supervisor()
        stopping = self._runtime.spawn(self._stop_services, name="stop")
        patience = _SHARE * self._conf.graceful_shutdown_timeout or None
        if not stopping.join(patience):
            LOG.warning(
                "Some work did not end within %.0f seconds; it is left to be taken up again", patience
            )
        self._files.remove()

    def reset(self) -> None:
        """Read the files again and apply the options that may change; nothing is stopped for it."""
        self._conf.mutate_config_files()

    def _reload_on_signal(self) -> None:
        """In place of oslo.service's way with eventlet: it takes its handlers away for a moment, in which a second
        SIGHUP ends the process. A handler must not switch green threads; the byte that a signal writes wakes one."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGHUP, lambda number, frame: None)

        def reload() -> None:
            while signals := os.read(reading, 64):
                if signal.SIGHUP in signals:
                    self._reset_or_say()

        self._runtime.spawn(reload, name="reload")

    def _reset_or_say(self) -> None:
        try:
            self.reset()
        except Exception:
            LOG.exception("The configuration was not reloaded, the former stays in force")

    def _load(self) -> Program:
        _share_heaps()
        program: Program = importlib.import_module(self._assembly).PROGRAM
        for register in program.registers:
            register(self._conf)
        configuration.check(self._conf)
        return program

    def _start_services(self, program: Program) -> None:
        pause, said = _PAUSE, ""
        while not self._stopping.is_set():
            try:
                self._services = program.build(self._conf, self._runtime, self._end)
                for each in self._services:
                    each.start()
                self._has_started()
                return
            except errors.Unavailable as error:
                why = str(error)
            if why != said:
                LOG.warning("%s cannot start yet, and tries again: %s", self._name, why)
                said = why
            self._stop_services()
            self._stopping.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _has_started(self) -> None:
        self.verdict.worked = True
        # What was imported stays: the collector need not look at it again and again.
        gc.freeze()
        LOG.info("%s has started as process %d", self._name, os.getpid())

    def _stop_services(self) -> None:
        for each in reversed(self._services):
            try:
                each.stop()
            except Exception:
                LOG.exception("%s did not stop cleanly", type(each).__name__)

    def _end(self, why: str | None, *, replace: bool = False) -> None:
        """Have the whole service end with an error: a replacement of this process would fail as it does.

        With ``replace`` this process alone ends, at once, and its supervisor starts another.
        """
        if self.verdict.code or self._stopping.is_set():
            return
        if replace:
            LOG.critical(why)
            os._exit(_FAILED)
        if why is not None:
            LOG.critical(why)
            if not _stderr_has_the_log(self._conf):
                print(f"{self._name}: {why}", file=sys.stderr, flush=True)
        self.verdict.code = _FAILED
        # Whose death ends this process, too; so does the signal that it sends back.
        self._signal_supervisor()

    def _tell_supervisor(self) -> None:
        """SIGTERM to this process means the service: without this, it would be replaced."""
        if concurrency.chosen() == "eventlet":
            # The supervisor sends the signal again, and oslo.service has taken its handler away by now.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not self.verdict.stopping:
            self._signal_supervisor()

    def _signal_supervisor(self) -> None:
        if os.getppid() == self._supervisor:
            os.kill(self._supervisor, signal.SIGTERM)


def _share_heaps() -> None:
    """Have all threads of this process share two heaps: glibc gives each of them one of its own, and keeps it."""
    try:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
    except (OSError, AttributeError):
        pass  # another C library


def reload_in_place() -> None:
    """Have SIGHUP reach ``Incarnation.reset``.

    oslo.service 4.8 on cotyledon does not pass it on, so that cotyledon's default ends the process to reload.
    """
    if concurrency.chosen() == "threading" and "reload" not in vars(service.ServiceWrapper):
        service.ServiceWrapper.reload = lambda wrapper: wrapper.service_instance.reset()


def _stderr_has_the_log(conf: cfg.ConfigOpts) -> bool:
    """Whether what is logged is read where stderr goes (then it need not be said twice)."""
    if not conf.log_file:
        return not (conf.log_dir or conf.use_syslog or conf.use_journal)
    try:
        return os.path.samestat(os.fstat(2), os.stat(os.path.join(conf.log_dir or "", conf.log_file)))
    except OSError:
        return False
