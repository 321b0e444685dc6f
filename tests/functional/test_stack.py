"""stack.sh and unstack.sh: clear errors, a second run, --resume, and an end that stops exactly what was started."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack import processes
from tests.functional.harness import Cloud, check_books, free_port, only_multi, stack


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--bogus"], "no option '--bogus'"),
        (["--hosts"], "needs a value"),
        (["--hosts", "none"], "expected a number"),
        (["--hosts", "0"], "expected a number"),
        (["--port", "70000"], "expected a number"),
        (["--driver", "xen"], "fake or libvirt"),
        (["--conductors", "2"], "--multi only"),
        (["--transport-url", "rabbit://somewhere"], "--multi only"),
        (["--brokers", "3"], "--multi only"),
        (["--multi", "--brokers", "2"], "1, 3 or 5"),
        (
            ["--multi", "--brokers", "3", "--transport-url", "rabbit://somewhere"],
            "do not go with --transport-url",
        ),
        (["--multi", "--database", "oracle"], "postgresql or mariadb"),
        (["--multi", "--transport-url", "kafka://somewhere"], "expected rabbit://"),
        (["--database-url", "oracle://somewhere"], "expected postgresql://"),
        (["--topology", "/does/not/exist"], "no file"),
        (["--resume", "--multi"], "goes with --dir only"),
        (["--resume"], "there is no cloud"),
    ],
)
def test_a_bad_option_is_a_clear_error_and_starts_nothing(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    done = stack("--dir", str(tmp_path / "stack"), *arguments, check=False)
    assert done.returncode != 0
    assert says in done.stderr
    assert not (tmp_path / "stack").exists()


def test_a_port_that_is_taken_is_a_clear_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = stack("--dir", str(tmp_path / "stack"), "--port", port, check=False)
    assert done.returncode != 0
    assert f"port {port} on 127.0.0.1 is taken" in done.stderr
    assert not (tmp_path / "stack" / "run").exists()


def test_a_topology_that_is_no_topology_is_a_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "topology.json"
    file.write_text('[{"id": 0}]')
    done = stack("--dir", str(tmp_path / "stack"), "--topology", str(file), check=False)
    assert done.returncode != 0
    assert "memory" in done.stderr
    assert not (tmp_path / "stack" / "stack.json").exists()


def test_a_service_that_cannot_start_shows_its_log_and_nothing_stays(tmp_path: Path) -> None:
    folder = tmp_path / "stack"
    arguments = ["--dir", str(folder), "--port", str(free_port()), "--no-story"]
    done = stack(*arguments, "--set", "compute.cpu_dedicated_set=0-99", check=False)
    assert done.returncode != 0
    assert "all-in-one" in done.stderr
    assert "cpu_dedicated_set" in done.stderr
    assert _of(folder) == []


def _of(folder: Path) -> list[int]:
    """The processes whose command names the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder) in (entry / "cmdline").read_text():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """A cloud that tests may stop."""
    cloud = Cloud(tmp_path_factory.mktemp("own") / "stack")
    yield cloud
    if cloud.layout.state_file.exists():
        cloud.close()


def test_a_second_run_keeps_the_cloud_and_tells_the_story_again(own: Cloud) -> None:
    server = own.boot("kept", "p2")
    pid = own.pid("all-in-one")
    done = stack("--dir", str(own.folder), "--port", str(own.options.port))
    assert "all totals are as at the start" in done.stdout
    assert own.pid("all-in-one") == pid
    assert own.client.server(server)["status"] == "ACTIVE"


def test_a_second_run_with_other_options_is_refused_while_the_cloud_runs(own: Cloud) -> None:
    done = stack("--dir", str(own.folder), "--port", str(own.options.port), "--hosts", "5", check=False)
    assert done.returncode != 0
    assert "unstack.sh" in done.stderr


def test_resume_starts_only_what_is_dead(own: Cloud) -> None:
    assert "nothing was dead" in own.resume().stdout
    (process,) = own.state.processes.values()
    for pid in processes.members(process):
        os.kill(pid, signal.SIGKILL)
    assert "started all-in-one" in own.resume().stdout
    assert [server["name"] for server in own.client.servers()] == ["kept"]
    check_books(own)


def test_unstack_stops_everything_and_may_be_repeated(own: Cloud) -> None:
    stack("--dir", str(own.folder), script="unstack.sh")
    assert _of(own.folder) == []
    assert "nothing runs" in stack("--dir", str(own.folder), script="unstack.sh").stdout


def test_a_stopped_cloud_starts_again_with_its_servers(own: Cloud) -> None:
    own.resume()
    assert [server["name"] for server in own.client.servers()] == ["kept"]
    check_books(own)


def test_wipe_removes_everything(own: Cloud) -> None:
    stack("--dir", str(own.folder), "--wipe", script="unstack.sh")
    assert _of(own.folder) == []
    assert not own.folder.exists()
    assert "there is no cloud" in stack("--dir", str(own.folder), script="unstack.sh").stdout


@only_multi
def test_resume_replaces_a_worker_whose_supervisor_was_killed(cloud: Cloud) -> None:
    server = cloud.boot("server", "p4")
    held = cloud.pins(server)
    process = cloud.state.processes["compute-host-1"]
    for pid in processes.members(process):
        os.kill(pid, signal.SIGKILL)
    assert "started compute-host-1" in cloud.resume().stdout
    assert cloud.pins(server) == held
    cloud.offload(server)
    check_books(cloud)


@only_multi
def test_each_process_has_its_own_file_and_a_worker_no_database(cloud: Cloud) -> None:
    for name in cloud.options.services:
        text = cloud.layout.config(name).read_text()
        assert cloud.layout.config(name).stat().st_mode & 0o077 == 0
        assert ("[database]" in text) == (not name.startswith("compute-"))
        if cloud.database is not None:
            password = cloud.state.servers[cloud.database]["password"]
            assert (password in text) == (not name.startswith("compute-"))
