"""A service under its supervisor, as an operator with a shell sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOON = 20.0


class Toy:
    """One toy service: its files, and the commands that were started on them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._diary = folder / "diary"
        self.config = folder / "toy.conf"
        self._commands: list[subprocess.Popen[str]] = []
        self.options: dict[str, dict[str, Any]] = {
            "DEFAULT": {"pid_file": folder / "run" / "toy.pid", "graceful_shutdown_timeout": 10},
            "toy": {"diary": self._diary},
        }

    def write(self, **toy: str) -> None:
        self.options["toy"] |= toy
        lines = []
        for section, options in self.options.items():
            lines += [f"[{section}]", *(f"{name} = {value}" for name, value in options.items())]
        self.config.write_text("\n".join(lines) + "\n")

    def command(self) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "tests.cmd.toy_command", "--config-file", str(self.config)]
        started = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self._commands.append(started)
        return started

    def start(self, **toy: str) -> subprocess.Popen[str]:
        self.write(**toy)
        started = self.command()
        until(lambda: "started" in self.diary)
        return started

    @property
    def diary(self) -> list[str]:
        """What happened, without who."""
        return [line.partition(" ")[2] for line in self._lines()]

    @property
    def authors(self) -> list[int]:
        """The processes that did the work, in order."""
        return list(dict.fromkeys(int(line.split()[0]) for line in self._lines()))

    def _lines(self) -> list[str]:
        return self._diary.read_text().splitlines() if self._diary.exists() else []

    def number(self, kind: str = "pid") -> int:
        """What stands in a pid file."""
        return int((self._folder / "run" / f"toy.{kind}").read_text())

    @property
    def files(self) -> set[str]:
        return {path.name for path in (self._folder / "run").iterdir()}

    def allow(self) -> None:
        """Give it what it needs."""
        (self._folder / "diary.needed").touch()

    @property
    def locks(self) -> str:
        return (self._folder / "diary.locks").read_text()

    def end(self) -> None:
        for command in self._commands:
            with suppress(ProcessLookupError):
                os.killpg(command.pid, signal.SIGKILL)
            # Shown by pytest when the test fails.
            print(command.communicate()[1])


@pytest.fixture(params=["threading", "eventlet"])
def toy(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Toy]:
    made = Toy(tmp_path)
    made.options["DEFAULT"]["concurrency_backend"] = request.param
    yield made
    made.end()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ends(command: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code, and what it had to say."""
    said = command.communicate(timeout=SOON)[1]
    return command.returncode, said


def test_the_pid_files_name_the_process_that_works_and_its_supervisor(toy: Toy) -> None:
    command = toy.start()
    assert toy.authors == [toy.number()]
    assert toy.number("supervisor") == command.pid != toy.number()


def test_a_killed_process_is_replaced_and_the_pid_file_rewritten(toy: Toy) -> None:
    toy.start()
    first = toy.number()
    os.kill(first, signal.SIGKILL)
    until(lambda: toy.diary.count("started") == 2)
    assert toy.authors == [first, toy.number()]


def test_a_process_whose_supervisor_is_killed_ends(toy: Toy) -> None:
    command = toy.start()
    worker = toy.number()
    command.kill()
    until(lambda: not alive(worker))
    assert toy.diary[-1] == "stopped"


@pytest.mark.parametrize("whom", ["supervisor", "pid"])
def test_sigterm_to_either_process_stops_the_service(toy: Toy, whom: str) -> None:
    command = toy.start()
    os.kill(toy.number(whom), signal.SIGTERM)
    code, said = ends(command)
    assert code == 0
    assert "Traceback" not in said
    assert toy.diary[-2:] == ["stopping", "stopped"]
    assert toy.diary.count("started") == 1
    assert toy.files == {"toy.lock"}


@pytest.mark.parametrize("milliseconds", [0, 30, 60, 100, 150, 200, 300, 400, 500, 700, 1000])
def test_sigterm_at_any_time_after_the_start_ends_with_0(toy: Toy, milliseconds: int) -> None:
    toy.write()
    command = toy.command()
    # Python itself needs some time until the first line of ours can say what SIGTERM means.
    until(lambda: _catches_sigterm(command.pid))
    time.sleep(milliseconds / 1000)
    command.terminate()
    code, said = ends(command)
    assert (code, "Traceback" in said) == (0, False), said
    assert not any(alive(pid) for pid in toy.authors)


def _catches_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) & 1 << signal.SIGTERM - 1)


def test_sighup_applies_options_that_may_change_and_stops_nothing(toy: Toy) -> None:
    command = toy.start()
    worker = toy.number()
    until(lambda: "red small" in toy.diary)
    toy.write(colour="blue", size="large")
    command.send_signal(signal.SIGHUP)
    until(lambda: "blue small" in toy.diary)
    assert toy.number() == worker
    assert "stopping" not in toy.diary


def test_ten_sighups_do_no_harm(toy: Toy) -> None:
    command = toy.start()
    for _ in range(10):
        command.send_signal(signal.SIGHUP)
    toy.write(colour="green")
    command.send_signal(signal.SIGHUP)
    until(lambda: "green small" in toy.diary)
    assert toy.authors == [toy.number()]


def test_sighup_with_a_broken_file_keeps_the_former_options(toy: Toy, tmp_path: Path) -> None:
    toy.options["DEFAULT"]["log_file"] = log = tmp_path / "toy.log"
    command = toy.start()
    until(lambda: "red small" in toy.diary)
    toy.config.write_text("[toy\n")
    command.send_signal(signal.SIGHUP)
    until(lambda: "was not reloaded, the former stays in force" in log.read_text())
    toy.write(colour="blue")
    command.send_signal(signal.SIGHUP)
    until(lambda: "blue small" in toy.diary)
    assert toy.authors == [toy.number()]


def test_settings_that_cannot_work_end_the_service_with_one_message(toy: Toy) -> None:
    toy.write(start="configuration")
    code, said = ends(toy.command())
    assert code == 1
    assert said.count("[toy] start = configuration cannot work.") == 1
    assert "Traceback" not in said
    assert toy.diary.count("made") == 1


def test_the_message_goes_to_the_terminal_and_to_the_log(toy: Toy, tmp_path: Path) -> None:
    toy.options["DEFAULT"]["log_file"] = tmp_path / "toy.log"
    toy.write(start="configuration")
    _, said = ends(toy.command())
    assert said == "toy: [toy] start = configuration cannot work.\n"
    assert (tmp_path / "toy.log").read_text().count("configuration cannot work") == 1


def test_an_option_with_an_impossible_value_ends_the_service(toy: Toy) -> None:
    toy.options["DEFAULT"]["start_wait"] = "soon"
    toy.write()
    code, said = ends(toy.command())
    assert (code, "start_wait" in said, "Traceback" in said) == (1, True, False)


def test_a_first_start_that_crashes_ends_the_service_with_one_traceback(toy: Toy) -> None:
    toy.write(start="crash")
    code, said = ends(toy.command())
    assert (code, said.count("Traceback")) == (1, 1)


def test_what_is_unavailable_at_the_start_is_waited_for(toy: Toy) -> None:
    toy.write(start="unavailable")
    command = toy.command()
    until(lambda: "refused" in toy.diary)
    toy.allow()
    until(lambda: "started" in toy.diary)
    assert toy.authors == [toy.number()]
    command.terminate()
    assert ends(command)[1].count("the toy box is away.") == 1


def test_a_superseded_service_ends_with_an_error_and_is_not_replaced(toy: Toy) -> None:
    toy.write(start="superseded")
    code, said = ends(toy.command())
    assert (code, said.count("Another toy is here.")) == (1, 1)
    assert toy.diary.count("made") == 1


def test_a_service_that_another_process_would_do_better_is_replaced(toy: Toy) -> None:
    toy.write(start="deaf")
    command = toy.command()
    until(lambda: toy.diary.count("started") == 2)
    assert len(set(toy.authors)) == 2
    command.terminate()
    code, said = ends(command)
    assert (code, said.count("This toy is deaf.")) == (0, 1)


def test_a_start_waits_until_the_former_process_is_gone(toy: Toy) -> None:
    toy.start(stop="slowly")
    former = toy.number()
    os.kill(toy.number("supervisor"), signal.SIGKILL)
    toy.command()
    until(lambda: toy.diary.count("started") == 2)
    assert not alive(former)
    assert toy.diary.index("stopped") < toy.diary.index("started", toy.diary.index("started") + 1)


def test_a_second_start_gives_up_in_time_and_names_the_process_in_the_way(toy: Toy) -> None:
    toy.options["DEFAULT"]["start_wait"] = 0.3
    toy.start()
    worker, files = toy.number(), toy.files
    code, said = ends(toy.command())
    assert code == 1
    assert f"Process {worker} still works" in said
    assert alive(worker)
    assert (toy.number(), toy.files) == (worker, files)


def test_what_never_ends_does_not_hold_up_a_stop_for_ever(toy: Toy) -> None:
    toy.options["DEFAULT"]["graceful_shutdown_timeout"] = 5
    command = toy.start(stop="never")
    command.terminate()
    code, said = ends(command)
    assert (code, "did not end within" in said) == (0, True)


def test_without_a_pid_file_nothing_is_written(toy: Toy, tmp_path: Path) -> None:
    del toy.options["DEFAULT"]["pid_file"]
    command = toy.start()
    command.terminate()
    assert ends(command)[0] == 0
    assert not (tmp_path / "run").exists()
