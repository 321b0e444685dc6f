"""A private MariaDB: its own data folder, port and password; started and stopped by pid."""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql

from devstack import processes, unprivileged
from devstack.layout import Layout, Process, StackError
from devstack.progress import wait_for

NAME = "mariadb"
BINARY = Path("/usr/sbin/mariadbd")
#: Seconds that a start may take, recovery after a crash included.
PATIENCE = 60.0
USER = DATABASE = "pinfold"

#: ``innodb_flush_log_at_trx_commit`` stays at 1: what a crash may lose is part of what is tested here.
SETTINGS = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "1",
    "max-connections": "200",
    "innodb-buffer-pool-size": "64M",
    "character-set-server": "utf8mb4",
    "performance-schema": "OFF",
}

#: Read at each start, before anybody is listened to.
_FIRST = """\
ALTER USER root@localhost IDENTIFIED BY '{password}';
CREATE DATABASE IF NOT EXISTS {database};
CREATE USER IF NOT EXISTS {user}@'127.0.0.1' IDENTIFIED BY '{password}';
GRANT ALL ON *.* TO {user}@'127.0.0.1';
"""


def _account() -> unprivileged.Account:
    return unprivileged.account("MariaDB", "mysql")


def create(layout: Layout, port: int, password: str) -> dict[str, Any]:
    """Make the data folder and say what to record."""
    if not BINARY.exists():
        raise StackError("MariaDB's server is not installed; stack.sh --multi --database mariadb installs it")
    who = _account()
    home = unprivileged.make_home(who, layout)
    first = home / "first.sql"
    first.touch(mode=0o600)
    first.write_text(_FIRST.format(password=password, user=USER, database=DATABASE))
    unprivileged.give(who, first)
    command = ["mariadb-install-db", "--no-defaults", f"--datadir={home / 'data'}", "--skip-test-db"]
    command += ["--auth-root-authentication-method=normal", "--skip-name-resolve"]
    done = subprocess.run(unprivileged.command(who, command), cwd="/", capture_output=True, text=True)
    if done.returncode:
        raise StackError(f"mariadb-install-db failed:\n{done.stdout}{done.stderr}")
    return {"home": str(home), "port": port, "password": password}


def make_database(record: dict[str, Any]) -> None:
    """The empty database. It is made at the first start: nothing is left to do."""


def start(layout: Layout, record: dict[str, Any]) -> Process:
    """Start the server and wait until it answers."""
    home = Path(record["home"])
    settings = SETTINGS | record.get("settings", {})
    settings |= {
        "datadir": str(home / "data"),
        "port": str(record["port"]),
        "socket": str(home / "socket"),
        "pid-file": str(home / "pid"),
        "init-file": str(home / "first.sql"),
    }
    command = [str(BINARY), "--no-defaults", *(f"--{name}={value}" for name, value in settings.items())]
    process = processes.start(unprivileged.command(_account(), command), layout.log_file(NAME))
    try:
        wait_for(
            "MariaDB answers or ends", lambda: processes.has_ended(process) or _answers(record), PATIENCE
        )
        if processes.has_ended(process):
            raise StackError(f"MariaDB ended:\n{processes.tail(layout.log_file(NAME))}")
    except BaseException as error:
        stop(process)
        if isinstance(error, TimeoutError):
            raise StackError(f"{error}:\n{processes.tail(layout.log_file(NAME))}") from error
        raise
    return process


def _answers(record: dict[str, Any]) -> bool:
    try:
        execute(record, "SELECT 1")
    except pymysql.err.OperationalError:
        return False
    return True


def execute(record: dict[str, Any], statement: str) -> list[tuple[Any, ...]]:
    """Run one statement as the account that may do everything; its rows."""
    with closing(
        pymysql.connect(host="127.0.0.1", port=record["port"], user=USER, password=record["password"])
    ) as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        return list(cursor.fetchall())


def statements(record: dict[str, Any]) -> int:
    """How many statements clients have sent to the whole server since it was started."""
    ((_, count),) = execute(record, "SHOW GLOBAL STATUS LIKE 'Questions'")
    return int(count)


def url(record: dict[str, Any], database: str = DATABASE) -> str:
    return f"mysql+pymysql://{USER}:{record['password']}@127.0.0.1:{record['port']}/{database}"


def stop(process: Process) -> None:
    processes.stop(process, signal.SIGTERM)


def wipe(record: dict[str, Any]) -> None:
    """Remove its data."""
    shutil.rmtree(record["home"], ignore_errors=True)
