"""Processes are known again, and only those that were started are stopped."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import pytest

from devstack import processes
from devstack.layout import Process
from devstack.progress import wait_for

#: A supervisor with a worker: the worker's number is printed.
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def start(tmp_path: Path, code: str) -> tuple[Process, Path]:
    log = tmp_path / "log"
    return processes.start([sys.executable, "-c", code], log), log


def test_stop_ends_the_whole_session(tmp_path: Path) -> None:
    process, log = start(tmp_path, PARENT)
    wait_for("the worker", lambda: log.read_text().strip(), 10)
    child = int(log.read_text())
    assert set(processes.members(process)) == {process.pid, child}
    processes.stop(process)
    assert processes.start_time(child) is None
    assert not processes.alive(process)


def test_a_worker_without_its_supervisor_is_still_found_and_stopped(tmp_path: Path) -> None:
    process, log = start(tmp_path, PARENT)
    wait_for("the worker", lambda: log.read_text().strip(), 10)
    os.kill(process.pid, signal.SIGKILL)
    processes.reap()
    wait_for("the supervisor is gone", lambda: not processes.alive(process), 10)
    assert processes.members(process) == [int(log.read_text())]
    processes.stop(process)
    assert processes.members(process) == []


def test_what_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    code = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(1, flush=True)\ntime.sleep(60)"
    process, log = start(tmp_path, code)
    wait_for("it ignores", lambda: log.read_text(), 10)
    began = time.monotonic()
    processes.stop(process, grace=0.3)
    assert not processes.alive(process)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("change", [{"started": "00000000:1"}, {"started": "other"}])
def test_a_namesake_is_left_alone(tmp_path: Path, change: dict[str, str]) -> None:
    """The same number in another boot, or of a process that began at another time."""
    process, _ = start(tmp_path, "import time; time.sleep(60)")
    namesake = msgspec.structs.replace(process, **change)
    assert not processes.alive(namesake)
    assert processes.members(namesake) == []
    processes.stop(namesake)
    assert processes.alive(process)
    processes.stop(process)
