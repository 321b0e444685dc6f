"""A private PostgreSQL: its own data folder, port and password; started and stopped by pid."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

from devstack import processes, unprivileged
from devstack.layout import Layout, Process, StackError
from devstack.progress import wait_for

NAME = "postgresql"
#: Seconds that a start may take, recovery after a crash included.
PATIENCE = 30.0
USER = DATABASE = "pinfold"

#: ``synchronous_commit`` stays on: what a crash may lose is part of what is tested here.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.max": "10000",
    "pg_stat_statements.track": "top",
    "log_min_messages": "warning",
}


def binaries() -> Path:
    """The folder of the newest server that is installed."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]), reverse=True
    )
    if not found:
        raise StackError("PostgreSQL's server is not installed; stack.sh --multi installs it")
    return found[0].parent


def _account() -> unprivileged.Account:
    return unprivileged.account("PostgreSQL", "postgres")


def create(layout: Layout, port: int, password: str) -> dict[str, Any]:
    """Make the data folder and say what to record."""
    who = _account()
    home = unprivileged.make_home(who, layout)
    secret = home / "password"
    secret.write_text(password + "\n")
    unprivileged.give(who, secret)
    command = [str(binaries() / "initdb"), "-D", str(home / "data"), "-U", USER, f"--pwfile={secret}"]
    command += ["--auth=scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
    done = subprocess.run(unprivileged.command(who, command), cwd="/", capture_output=True, text=True)
    secret.unlink()
    if done.returncode:
        raise StackError(f"initdb failed:\n{done.stdout}{done.stderr}")
    return {"home": str(home), "port": port, "password": password}


def start(layout: Layout, record: dict[str, Any]) -> Process:
    """Start the server and wait until it answers.

    After a kill -9 it refuses as long as its former processes are not all gone: then it is tried again.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        process = _launch(layout, record)
        try:
            wait_for("PostgreSQL answers or ends", partial(_settled, record, process), PATIENCE)
        except BaseException as error:
            stop(process)
            if isinstance(error, TimeoutError):
                raise StackError(f"{error}:\n{processes.tail(layout.log_file(NAME))}") from error
            raise
        if not processes.has_ended(process):
            return process
        if time.monotonic() > deadline or "postmaster" not in processes.tail(layout.log_file(NAME), 5):
            raise StackError(f"PostgreSQL ended:\n{processes.tail(layout.log_file(NAME))}")


def _settled(record: dict[str, Any], process: Process) -> bool:
    return _answers(record) or processes.has_ended(process)


def _launch(layout: Layout, record: dict[str, Any]) -> Process:
    home, port = Path(record["home"]), record["port"]
    settings = (
        SETTINGS | record.get("settings", {}) | {"port": str(port), "unix_socket_directories": str(home)}
    )
    command = [str(binaries() / "postgres"), "-D", str(home / "data")]
    for key, value in settings.items():
        command += ["-c", f"{key}={value}"]
    return processes.start(unprivileged.command(_account(), command), layout.log_file(NAME))


def _answers(record: dict[str, Any]) -> bool:
    command = [str(binaries() / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(record["port"])]
    return subprocess.run(command, cwd="/").returncode == 0


def make_database(record: dict[str, Any]) -> None:
    """The empty database; and, where it does not count itself, the extension that counts statements."""
    psql(record, "postgres", f"CREATE DATABASE {DATABASE}")
    psql(record, "postgres", "CREATE EXTENSION pg_stat_statements")


def psql(record: dict[str, Any], database: str, statement: str) -> str:
    command = [str(binaries() / "psql"), "-X", "-q", "-A", "-t", "-h", "127.0.0.1", "-p", str(record["port"])]
    command += ["-U", USER, "-d", database, "-v", "ON_ERROR_STOP=1", "-c", statement]
    env = {**os.environ, "PGPASSWORD": record["password"]}
    done = subprocess.run(command, cwd="/", env=env, capture_output=True, text=True)
    if done.returncode:
        raise StackError(f"psql: {statement}: {done.stderr.strip()}")
    return done.stdout.strip()


def url(record: dict[str, Any], user: str = USER) -> str:
    return f"postgresql+psycopg://{user}:{record['password']}@127.0.0.1:{record['port']}/{DATABASE}"


def stop(process: Process) -> None:
    """Fast shutdown: its clients are told to go."""
    processes.stop(process, signal.SIGINT)


def wipe(record: dict[str, Any]) -> None:
    shutil.rmtree(record["home"], ignore_errors=True)
