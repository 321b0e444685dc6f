"""One concurrency mode per process, fixed first; a wrong order refuses to start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def python(code: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter."""
    env = {name: value for name, value in os.environ.items() if name != "PINFOLD_CONCURRENCY_BACKEND"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        cwd=ROOT,
        env=env | environ,
        capture_output=True,
        text=True,
        timeout=60,
    )


CHOOSE = "import sys; from pinfold import concurrency; print(concurrency.choose(sys.argv[1:]))"


def configured(folder: Path, name: str, value: str) -> Path:
    file = folder / f"{name}.conf"
    file.write_text(f"[other]\nconcurrency_backend = wrong\n[DEFAULT]\nconcurrency_backend = {value}\n")
    return file


def test_threads_are_the_default() -> None:
    assert python(CHOOSE).stdout == "threading\n"


@pytest.mark.parametrize("form", ["--config-file {}", "--config-file={}"])
def test_a_configuration_file_may_choose_eventlet(tmp_path: Path, form: str) -> None:
    file = configured(tmp_path, "a", "eventlet")
    assert python(CHOOSE, *form.format(file).split()).stdout == "eventlet\n"


def test_the_last_file_wins_and_folders_come_after_files(tmp_path: Path) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    first, _ = configured(tmp_path, "a", "eventlet"), configured(folder, "b", "threading")
    done = python(CHOOSE, "--config-dir", str(folder), "--config-file", str(first))
    assert done.stdout == "threading\n"


@pytest.mark.parametrize("name", ["pinfold", "pinfold-api"])
def test_without_named_files_those_of_the_home_folder_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / ".pinfold").mkdir()
    configured(tmp_path / ".pinfold", name, "eventlet")
    code = "from pinfold import concurrency; print(concurrency.choose(program='pinfold-api'))"
    assert python(code, HOME=str(tmp_path)).stdout == "eventlet\n"


def test_the_environment_wins_over_files(tmp_path: Path) -> None:
    file = configured(tmp_path, "a", "eventlet")
    done = python(CHOOSE, "--config-file", str(file), PINFOLD_CONCURRENCY_BACKEND="threading")
    assert done.stdout == "threading\n"


def test_another_value_is_refused_and_its_file_named(tmp_path: Path) -> None:
    file = configured(tmp_path, "a", "asyncio")
    done = python(CHOOSE, "--config-file", str(file))
    assert f"{file}: concurrency_backend = asyncio is neither threading nor eventlet" in done.stderr


def test_with_threads_nothing_can_import_eventlet() -> None:
    done = python(CHOOSE + "\nimport eventlet")
    assert "import of eventlet halted" in done.stderr


_KINDS = """
import threading, queue
from pinfold.runtime import FairLock
from pinfold.rpcapi import transport
for thing in (threading.Lock(), FairLock()._guard, threading.Condition()._lock, queue.Queue().mutex):
    print(type(thing).__module__)
"""


def test_with_threads_locks_of_what_is_imported_later_are_native() -> None:
    """F105."""
    done = python(f"{CHOOSE}\n{_KINDS}")
    assert done.stdout.splitlines() == ["threading", "_thread", "_thread", "_thread", "_thread"]


def test_with_eventlet_locks_of_what_is_imported_later_are_green(tmp_path: Path) -> None:
    """F105."""
    done = python(f"{CHOOSE}\n{_KINDS}", "--config-file", str(configured(tmp_path, "a", "eventlet")))
    chosen, *kinds = done.stdout.splitlines()
    assert chosen == "eventlet"
    assert all(kind.startswith("eventlet.") for kind in kinds)


@pytest.mark.parametrize("module", ["oslo_service.service", "oslo_messaging"])
def test_what_decides_the_mode_in_passing_must_not_come_first(module: str) -> None:
    """F105."""
    done = python(f"import {module}\n{CHOOSE}")
    assert done.returncode == 1
    assert f"these came first: {module}" in done.stderr or "oslo_service.service" in done.stderr


def test_a_patched_process_refuses_threads() -> None:
    """F105."""
    done = python(f"import eventlet; eventlet.monkey_patch()\n{CHOOSE}")
    assert "eventlet has patched this process already" in done.stderr


@pytest.mark.parametrize("module", ["sqlalchemy", "pinfold.runtime", "oslo_log.log"])
def test_what_keeps_locks_must_not_come_before_eventlet(tmp_path: Path, module: str) -> None:
    """F105."""
    file = configured(tmp_path, "a", "eventlet")
    done = python(f"import {module}\n{CHOOSE}", "--config-file", str(file))
    assert done.returncode == 1
    assert module.split(".")[0] in done.stderr.splitlines()[-1]


def test_a_running_thread_must_not_come_before_eventlet(tmp_path: Path) -> None:
    file = configured(tmp_path, "a", "eventlet")
    early = (
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True, name='early').start()"
    )
    done = python(f"{early}\n{CHOOSE}", "--config-file", str(file))
    assert "early" in done.stderr.splitlines()[-1]


def test_the_transport_refuses_a_process_that_has_not_chosen() -> None:
    done = python("import pinfold.rpcapi.transport")
    assert "choose() must be the first thing" in done.stderr


@pytest.mark.parametrize("service", ["api", "conductor", "compute", "all_in_one"])
def test_the_commands_import_nothing_before_the_choice(service: str) -> None:
    done = python(
        f"import sys, pinfold.cmd.{service}\n"
        "print([name for name in sys.modules if name.startswith(('oslo', 'sqlalchemy', 'falcon', 'kombu'))])"
    )
    assert done.stdout == "[]\n"
