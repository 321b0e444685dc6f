"""F112: starts, stops and reloads of the real services, with files that are wrong and at awkward moments."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from devstack.client import Client, until
from devstack.seed import IMAGE, seed
from tests.books import new_book, sqlite_url
from tests.functional.harness import BINARIES, ROOT, Cloud, check_books, free_port, only_multi

SOON = 30.0
COMMON = "[DEFAULT]\ntransport_url = rabbit://u:p@127.0.0.1:1/\n[image]\npath = {folder}/images\n"
BOOK = "[database]\nconnection = sqlite:///{folder}/book.db\n"
NOAUTH = "[api]\nauth_strategy = noauth\nport = {port}\n"
WORKER = "[compute]\nstate_path = {folder}/worker\n[fake]\nstate_path = {folder}/guests\n"
FILES = {
    "pinfold-api": COMMON + BOOK + NOAUTH,
    "pinfold-conductor": COMMON + BOOK,
    "pinfold-compute": COMMON + WORKER + "[oslo_concurrency]\nlock_path = {folder}/locks\n",
    "pinfold-all-in-one": COMMON + BOOK + NOAUTH + WORKER,
}


class Starts:
    """Processes started by a test on files of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self._started: list[subprocess.Popen[str]] = []

    def file(self, command: str, more: str = "") -> Path:
        path = self.folder / f"{command}.conf"
        path.write_text((FILES[command] + more).format(folder=self.folder, port=self.port))
        return path

    def start(self, *words: object, **environ: str) -> subprocess.Popen[str]:
        started = subprocess.Popen(
            [str(word) for word in words],
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | environ,
            start_new_session=True,
        )
        self._started.append(started)
        return started

    def service(self, command: str, more: str = "") -> subprocess.Popen[str]:
        return self.start(BINARIES / command, "--config-file", self.file(command, more))

    def end(self) -> None:
        for process in self._started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.communicate()


@pytest.fixture
def starts(tmp_path: Path) -> Iterator[Starts]:
    made = Starts(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize(
    ("command", "more", "named"),
    [
        ("pinfold-api", "host = 0.0.0.0\n", "[api] host = 0.0.0.0"),
        ("pinfold-api", "threads = 50\n", "[database] max_pool_size"),
        ("pinfold-api", "tread = 1\n", "[api] tread"),
        ("pinfold-conductor", "[conductor]\nheartbeat = 15\n", "[conductor] heartbeat"),
        ("pinfold-conductor", "[rpc]\npool_size = 0\n", "[rpc] pool_size"),
        ("pinfold-conductor", "[upgrade_levels]\ncompute = 9.9\n", "[upgrade_levels] compute"),
        ("pinfold-conductor", "[DEFAULT]\nconcurrency_backend = asyncio\n", "concurrency_backend"),
        ("pinfold-conductor", "[DEFAULT]\ntransport_url = http://x\n", "transport_url"),
        ("pinfold-compute", "[compute]\ncpu_shared_set = 0-3\ncpu_dedicated_set = 3\n", "cpu_shared_set"),
        ("pinfold-compute", "[compute]\ndriver = xen\n", "[compute] driver"),
        ("pinfold-compute", "[image]\npath =\n", "[image] path"),
        ("pinfold-all-in-one", "[compute]\nheartbeat = 15\n", "[compute] heartbeat"),
        ("pinfold-all-in-one", "[database]\nconnection = oracle://x\n", "[database] connection"),
        ("pinfold-all-in-one", "[operations]\nlease = 1\n", "[operations] lease"),
    ],
)
def test_a_setting_that_cannot_work_ends_the_start_with_its_name(
    starts: Starts, command: str, more: str, named: str
) -> None:
    process = starts.service(command, more)
    said = process.communicate(timeout=SOON)[1]
    assert process.returncode == 1, said
    assert named in said
    assert "Traceback" not in said


def test_a_wsgi_server_on_a_database_that_is_away_never_answers_200(starts: Starts) -> None:
    """F112."""
    file = starts.file("pinfold-api", "[database]\nconnection = postgresql://u:p@127.0.0.1:1/none\n")
    waitress = [sys.executable, "-m", "waitress", "--listen", f"127.0.0.1:{starts.port}"]
    process = starts.start(*waitress, "pinfold.wsgi:application", PINFOLD_CONFIG_FILES=str(file))
    answers: list[int] = []
    until(lambda: process.poll() is not None or _asked(starts.port, answers), lambda: "no answer", SOON)
    for path in ("/healthz", "/v2.1/servers", "/v2.1/flavors"):
        _asked(starts.port, answers, path)
    assert set(answers) == {503}
    process.terminate()
    assert "Traceback" not in process.communicate(timeout=SOON)[1]


def test_a_renamed_host_a_doubled_one_and_another_database_are_refused(starts: Starts) -> None:
    """F045: each ends the start with an error, and nothing is written."""
    book, other = (starts.folder / name for name in ("book.db", "other"))
    other.mkdir()
    for folder in (starts.folder, other):
        new_book(sqlite_url(folder)).engine.dispose()
    more = "[DEFAULT]\nhost = n1\n[compute]\nnodes =\n"
    process = starts.service("pinfold-all-in-one", more)
    client = Client(f"http://127.0.0.1:{starts.port}")
    until(lambda: _asked(starts.port, []) and client.nodes(), lambda: "no node", SOON)
    seed(client)
    client.wait(client.boot("a", "s1", client.image_id(IMAGE)), "ACTIVE")
    process.terminate()
    assert process.wait(SOON) == 0
    for changes, said in (
        ("[DEFAULT]\nhost = n1b\n", "This machine is host 'n1'"),
        ("[compute]\nstate_path = {folder}/elsewhere\n", "belongs to another machine"),
        ("[database]\nconnection = sqlite:///{folder}/other/book.db\n", "does not know host 'n1'"),
    ):
        before = _rows(book), _rows(other / "book.db")
        refused = starts.service("pinfold-all-in-one", more + changes)
        text = refused.communicate(timeout=SOON)[1]
        assert refused.returncode == 1, text
        assert said in text
        assert "Traceback" not in text
        assert (_rows(book), _rows(other / "book.db")) == before


def _rows(book: Path) -> list[tuple[str, ...]]:
    with sqlite3.connect(book) as connection:
        return connection.execute("SELECT host, name, generation FROM nodes").fetchall()


def _asked(port: int, answers: list[int], path: str = "/healthz") -> bool:
    try:
        answers.append(httpx.get(f"http://127.0.0.1:{port}{path}", timeout=SOON).status_code)
    except httpx.TransportError:
        return False
    return True


@pytest.mark.parametrize("milliseconds", [0, 50, 100, 200, 300, 450, 600, 800, 1000, 1300, 1600, 2000])
def test_sigterm_at_any_time_after_the_start_of_a_whole_cloud(starts: Starts, milliseconds: int) -> None:
    """F112: exit code 0 and no traceback, whatever exists by then."""
    new_book(sqlite_url(starts.folder)).engine.dispose()
    process = starts.service("pinfold-all-in-one")
    until(lambda: _is_caught(process.pid), lambda: "Python has not started", SOON)
    time.sleep(milliseconds / 1000)
    process.terminate()
    said = process.communicate(timeout=SOON)[1]
    assert (process.returncode, "Traceback" in said) == (0, False), said


def _is_caught(pid: int) -> bool:
    """Python itself needs some time until a line of ours can say what SIGTERM means."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) & 1 << signal.SIGTERM - 1)


def test_ten_sighups_during_shelve_and_unshelve_fail_nothing(cloud: Cloud) -> None:
    """F112."""
    server = cloud.boot("reloaded", "p2")
    services = cloud.options.services
    for _ in range(3):
        for action, status in (("shelve", "SHELVED_OFFLOADED"), ("unshelve", "ACTIVE")):
            cloud.client.act(server, action)
            for name in services:
                for kind in ("pid", "supervisor"):
                    os.kill(int((cloud.layout.run / f"{name}.{kind}").read_text()), signal.SIGHUP)
            assert cloud.client.wait(server, status).get("fault") is None
    check_books(cloud)
    results = cloud.client.get(f"/pinfold/v1/operations?server={server}")["operations"]
    assert {operation["state"] for operation in results} == {"succeeded"}


@only_multi
def test_a_reload_changes_what_may_change_without_a_stop(cloud: Cloud) -> None:
    """F112: debug is an option that a reload applies."""
    name, path = "api", cloud.layout.config("api")
    before, log = path.read_text(), cloud.layout.log_file("api")
    pid = cloud.pid(name)
    try:
        path.write_text(before.replace("[DEFAULT]\n", "[DEFAULT]\ndebug = true\n", 1))
        os.kill(pid, signal.SIGHUP)
        until(
            lambda: cloud.client.nodes() and " DEBUG " in log.read_text(),
            lambda: "no line of debugging",
            SOON,
        )
    finally:
        path.write_text(before)
        os.kill(pid, signal.SIGHUP)
    assert cloud.pid(name) == pid
