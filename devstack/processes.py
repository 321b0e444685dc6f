"""Start processes in sessions of their own, know them again later, and stop exactly those."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from devstack.layout import Process, StackError

#: How long a service may take to finish what it can before it is killed.
GRACE = 20.0


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the command's name, or None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]


def start_time(pid: int) -> str | None:
    """Tells a process from a later one with the same number, also across a reboot."""
    fields = _stat(pid)
    return None if fields is None else f"{_boot()}:{fields[19]}"


def alive(process: Process) -> bool:
    return start_time(process.pid) == process.started


def members(process: Process) -> list[int]:
    """The living processes of the session that ``process`` began; it itself may have ended."""
    boot, _, ticks = process.started.partition(":")
    leader = start_time(process.pid)
    if boot != _boot() or (leader is not None and leader != process.started):
        return []
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            session, began = int(fields[3]), int(fields[19])
            if session == process.pid and began >= int(ticks):
                found.append(int(entry))
    return found


def start(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Process:
    """Start ``command`` in a session of its own; what it prints is added to ``log``."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "OS_"))}
    env.update(environment or {})
    with open(log, "ab") as output:
        child = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=env, cwd="/", start_new_session=True,
        )  # fmt: skip
    started = start_time(child.pid)
    if started is None:
        raise StackError(f"{command[0]} ended at once:\n{tail(log)}")
    return Process(child.pid, started, tuple(command))


def reap() -> None:
    """Collect children that have ended, so that they do not look alive."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


def has_ended(process: Process) -> bool:
    """Whether it lives no more, be it a child that nobody has collected yet."""
    reap()
    return not alive(process)


def stop(process: Process, how: signal.Signals = signal.SIGTERM, grace: float = GRACE) -> None:
    """Ask ``process`` to end; after ``grace`` seconds kill what is left of its session."""
    if alive(process):
        _send(process.pid, how)
    deadline = time.monotonic() + grace
    while (rest := members(process)) and time.monotonic() < deadline:
        if not alive(process):
            # A worker whose supervisor is gone has nobody else to tell it.
            for pid in rest:
                _send(pid, signal.SIGTERM)
        reap()
        time.sleep(0.05)
    for pid in members(process):
        _send(pid, signal.SIGKILL)
    while members(process) and time.monotonic() < deadline + 5:
        reap()
        time.sleep(0.02)


def _send(pid: int, how: signal.Signals) -> None:
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        pass


def tail(log: Path, lines: int = 20) -> str:
    """The end of a log, indented."""
    try:
        text = log.read_text(errors="replace")
    except FileNotFoundError:
        return "  (no log)"
    return "\n".join("  | " + line[:300] for line in text.splitlines()[-lines:]) or "  (the log is empty)"
