"""Private servers for tests: a RabbitMQ, a PostgreSQL, a MariaDB on free ports, ended by their process numbers."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from devstack import mariadb, postgres, processes, rabbit
from devstack.databases import KINDS
from devstack.databases import Database as Kind
from devstack.layout import Layout, Process, StackError
from devstack.progress import wait_for
from pinfold.rpcapi.permissions import Permissions, definitions
from tests.books import empty


class Guard:
    """Ends what is left of the servers when this process dies without having stopped them, however it dies."""

    _SCRIPT = (
        'cat > /dev/null; for leader in $(cat "$1/leaders"); do kill -s KILL -- "-$leader"; done; rm -rf "$@"'
    )

    def __init__(self, root: Path, *folders: str) -> None:
        self._leaders = root / "leaders"
        self._leaders.touch()
        # It waits for the end of its input, which the kernel closes with this process.
        self._watcher = subprocess.Popen(
            ["sh", "-c", self._SCRIPT, "guard", str(root), *folders],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def watch(self, process: Process) -> Process:
        """Also end ``process`` and those of its session."""
        with open(self._leaders, "a") as file:
            file.write(f"{process.pid}\n")
        return process

    def dismiss(self) -> None:
        """All is stopped."""
        self._watcher.kill()
        self._watcher.wait()
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()


EVERYTHING = Permissions(configure=".*", write=".*", read=".*", topic_write=".*", topic_read=".*")


class Broker:
    """A RabbitMQ of its own, with an account that may do everything."""

    def __init__(self, root: Path, extra: str = "") -> None:
        if not (rabbit.BINARIES / "rabbitmq-server").exists():
            pytest.fail("RabbitMQ is not installed: apt-get install rabbitmq-server")
        self._layout = Layout(root)
        self._layout.make()
        self._record = rabbit.record(free_ports(3))
        rabbit.create(self._layout, self._record)
        self.admin = ("admin", secrets.token_hex(8))
        self._accounts = root / "broker" / "accounts.json"
        self._write_accounts({self.admin[0]: (self.admin[1], EVERYTHING)})
        with open(root / "broker" / "rabbitmq.conf", "a") as config:
            config.write(extra)
        self._guard = Guard(root)
        self._mapper = self._guard.watch(rabbit.start_mapper(self._layout, self._record))
        self._process = self._start()

    @property
    def port(self) -> int:
        """Where it listens, at 127.0.0.1."""
        return int(self._record["port"])

    def vhost(self) -> str:
        """The url of a virtual host of its own: for queues of another kind than the tests before made."""
        name = f"test-{secrets.token_hex(4)}"
        self._write_accounts({self.admin[0]: (self.admin[1], EVERYTHING)}, name)
        self.control("import_definitions", str(self._accounts))
        return self.url() + name

    def url(self, user: str | None = None, password: str | None = None) -> str:
        """What to write into ``transport_url``; ends with a slash."""
        if user is None:
            user, password = self.admin
        return rabbit.url(self._record, user, password or "")

    def add_account(self, name: str, may: Permissions) -> str:
        """Make an account with these permissions, or change them; its url."""
        password = secrets.token_hex(8)
        self._write_accounts({name: (password, may)})
        self.control("import_definitions", str(self._accounts))
        return self.url(name, password)

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl on it. Takes most of a second."""
        return rabbit.control(self._layout, self._record, *arguments)

    def settle(self) -> None:
        """Have it write what it knows of its quorum queues: one that is killed in the seconds after it made
        such a queue knows it by name but not by content when it comes back, and never answers for it."""
        self.control("eval", "[dets:sync(Table) || Table <- dets:all()], ok.")

    def kill(self) -> None:
        """End it as a power cut would."""
        for pid in processes.members(self._process):
            os.kill(pid, signal.SIGKILL)
        wait_for("the broker is gone", lambda: _gone(self._process), 10)

    def restart(self) -> None:
        """Start it again with the data it has."""
        self._process = self._start()

    def stop(self) -> None:
        """End it, and the port mapper, for good."""
        self.kill()
        processes.stop(self._mapper)
        self._guard.dismiss()

    def _write_accounts(self, accounts: dict[str, tuple[str, Permissions]], vhost: str = "/") -> None:
        self._accounts.write_text(json.dumps(definitions(accounts, vhost)))

    def _start(self) -> Process:
        process = self._guard.watch(rabbit.start(self._layout, self._record))
        rabbit.await_ready(self._layout, self._record, process)
        return process


_CARELESS = {
    postgres.NAME: {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"},
    mariadb.NAME: {"innodb-flush-log-at-trx-commit": "0", "innodb-doublewrite": "0"},
}


class Database:
    """A PostgreSQL or a MariaDB of its own."""

    def __init__(self, root: Path, kind: Kind) -> None:
        self._kind = kind
        self._kept: str | None = None
        # in memory where there is such a place: its data need not outlive it
        shelf = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/var/lib")
        self._layout = Layout(root, shelf / "pinfold-tests")
        self._layout.make()
        self._record = kind.create(self._layout, free_ports(1)[0], secrets.token_hex(16))
        self._record["settings"] = _CARELESS[kind.name]
        self._guard = Guard(root, self._record["home"])
        self._process = self._guard.watch(kind.start(self._layout, self._record))

    def create(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{secrets.token_hex(6)}"
        if self._kind.name == postgres.NAME:
            postgres.psql(self._record, "postgres", f"CREATE DATABASE {name}")
        else:
            mariadb.execute(self._record, f"CREATE DATABASE {name}")
        return self._kind.url(self._record).rpartition("/")[0] + f"/{name}"

    def emptied(self) -> str:
        """The URL of a database that is the same each time, with no row in it: for one test at a time."""
        if self._kept is None:
            self._kept = self.create()
        empty(self._kept)
        return self._kept

    def stop(self) -> None:
        """End it and remove its data."""
        self._kind.stop(self._process)
        self._kind.wipe(self._record)
        self._guard.dismiss()


def forget_consumers(queue: str, vhost: str = "/") -> tuple[str, str]:
    """Arguments of rabbitmqctl that have the broker forget who takes from a queue, and tell nobody."""
    expression = (
        f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost}">>, queue, <<"{queue}">>)), '
        "[ok = gen_server2:call(amqqueue:get_pid(Q), "
        '{basic_cancel, element(1, C), element(2, C), undefined, <<"test">>}, infinity) '
        "|| C <- rabbit_amqqueue:consumers(Q)]."
    )
    return "eval", expression


@contextmanager
def private_broker(extra: str = "") -> Iterator[Broker]:
    """A broker, with ``extra`` lines of configuration, until the end of the block."""
    root = Path(tempfile.mkdtemp(prefix="pinfold-test-broker-"))
    try:
        broker = Broker(root, extra)
        try:
            yield broker
        finally:
            broker.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def private_database(kind: str) -> Iterator[Database]:
    """A postgresql or a mariadb until the end of the block."""
    root = Path(tempfile.mkdtemp(prefix="pinfold-test-database-"))
    try:
        try:
            database = Database(root, KINDS[kind])
        except StackError as error:
            pytest.fail(f"{error} (Debian's packages postgresql and mariadb-server)")
        try:
            yield database
        finally:
            database.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens at now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _gone(process: Process) -> bool:
    processes.reap()
    return not processes.members(process)
