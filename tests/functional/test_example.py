"""The example of a cloud on many hosts works once what it says is to be changed has been changed."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.client import Client, until
from devstack.seed import seed
from pinfold.rpcapi import permissions
from pinfold.rpcapi.permissions import Permissions
from tests.functional.harness import BINARIES, ROOT, free_port
from tests.servers import Broker, Database

EXAMPLE = ROOT / "etc" / "pinfold" / "multi-host"
ACCOUNTS: dict[str, tuple[str, Permissions]] = {
    "api": ("api", permissions.for_api()),
    "conductor": ("conductor", permissions.for_conductor()),
    "compute-1": ("compute-host-1", permissions.for_compute("host-1")),
    "compute-2": ("compute-host-2", permissions.for_compute("host-2")),
}


class Machines:
    """The example's four machines, each a folder here, and their processes."""

    def __init__(self, folder: Path, broker: Broker, database: str) -> None:
        self.folder = folder
        self.port = free_port()
        self._running: list[subprocess.Popen[bytes]] = []
        for name, (account, may) in ACCOUNTS.items():
            text = (EXAMPLE / f"{name}.conf").read_text()
            for old, new in {
                f"rabbit://{account}:PASSWORD@storage:5672/pinfold": broker.add_account(account, may),
                "postgresql://pinfold:PASSWORD@storage:5432/pinfold": database,
                "port = 8774": f"port = {self.port}",
                "/var/lib/pinfold/images": str(folder / "images"),
                "/var/lib": str(folder / name / "lib"),
                "/var/log": str(folder / name / "log"),
                "/run": str(folder / name / "run"),
            }.items():
                text = text.replace(old, new)
            self.file(name).write_text(text)
            self.file(name).chmod(0o600)
            (folder / name / "log" / "pinfold").mkdir(parents=True)

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.conf"

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        command = [str(BINARIES / "pinfold-manage"), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def start(self) -> None:
        for name in ACCOUNTS:
            command = [
                str(BINARIES / f"pinfold-{name.partition('-')[0]}"),
                "--config-file",
                str(self.file(name)),
            ]
            self._running.append(subprocess.Popen(command, start_new_session=True))

    def stop(self) -> None:
        for process in self._running:
            os.killpg(process.pid, signal.SIGTERM)
        for process in self._running:
            process.wait(30)


@pytest.fixture
def machines(tmp_path: Path, broker: Broker, postgresql: Database) -> Iterator[Machines]:
    made = Machines(tmp_path, broker, postgresql.create())
    yield made
    made.stop()


def test_the_example_runs_as_it_stands(machines: Machines) -> None:
    names = [machines.file(name) for name in ACCOUNTS]
    checked = machines.run("config", "check", "--json", *names)
    assert (checked.returncode, json.loads(checked.stdout)) == (0, []), checked.stdout + checked.stderr
    assert machines.run("--config-file", machines.file("conductor"), "db", "upgrade").returncode == 0
    machines.start()
    with Client(f"http://127.0.0.1:{machines.port}") as client:
        until(lambda: _nodes(client) == {"host-1": "up", "host-2": "up"}, lambda: f"{_nodes(client)}", 60)
        seed(client)
        server = client.boot(f"s-{secrets.token_hex(2)}", "p4", client.image_id("tiny"))
        assert client.wait(server, "ACTIVE")["OS-EXT-SRV-ATTR:host"] in ("host-1", "host-2")
        client.delete(server)
        client.wait_gone(server)


def _nodes(client: Client) -> dict[str, str]:
    try:
        return {name: node["state"] for name, node in client.nodes().items()}
    except Exception:  # it has not started yet
        return {}
