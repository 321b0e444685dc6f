"""A private RabbitMQ: its own node, cookie, ports and port mapper; one account per service process."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

from devstack import processes
from devstack.layout import Layout, Process, StackError
from devstack.progress import wait_for
from pinfold.rpcapi import permissions

NAME, MAPPER = "rabbitmq", "epmd"
#: Debian's /usr/sbin/rabbitmq-server changes to the user rabbitmq; the real one is here.
BINARIES = Path("/usr/lib/rabbitmq/bin")
_CONFIG = """\
# A private broker for one Pinfold cloud, on loopback.
listeners.tcp.local = 127.0.0.1:{port}
load_definitions = {accounts}
log.file.level = warning
# Development machines are small: do not stop taking messages because the disk is rather full.
disk_free_limit.absolute = 50MB
"""
#: For one of several: who is cut off from the others stops.
_CLUSTER = """\
cluster_formation.peer_discovery_backend = classic_config
cluster_partition_handling = pause_minority
"""


def name(number: int) -> str:
    """How the so-manieth broker of a cloud is called."""
    return NAME if number == 1 else f"{NAME}-{number}"


def record(ports: list[int], number: int = 1, mapper: int | None = None) -> dict[str, Any]:
    """What to keep about a new broker: its port, that of its cluster, and that of the port mapper they share."""
    port, distribution, own_mapper = ports
    return {"port": port, "distribution": distribution, "mapper": mapper or own_mapper, "number": number}


def create(layout: Layout, broker: dict[str, Any], members: int = 1) -> None:
    """Write its configuration, as the only one or as one of so many ``members`` of a cluster."""
    home = _home(layout, broker)
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o700)
    cookie, first = home / ".erlang.cookie", _first(layout) / ".erlang.cookie"
    if not cookie.exists():
        cookie.write_text(first.read_text() if first.exists() else secrets.token_hex(20))
        cookie.chmod(0o400)
    (home / "plugins").write_text("[].\n")
    config = home / "rabbitmq.conf"
    config.touch(mode=0o600)
    text = _CONFIG.format(port=broker["port"], accounts=_first(layout) / "accounts.json")
    if members > 1:
        text += _CLUSTER
        for number in range(1, members + 1):
            text += f"cluster_formation.classic_config.nodes.{number} = {_node(layout, number)}\n"
    config.write_text(text)


def _node(layout: Layout, number: int) -> str:
    return f"pinfold-{layout.key}{'' if number == 1 else f'-{number}'}@localhost"


def _first(layout: Layout) -> Path:
    return layout.root / "broker"


def _home(layout: Layout, broker: dict[str, Any]) -> Path:
    number = broker.get("number", 1)
    return _first(layout) if number == 1 else layout.root / f"broker-{number}"


def _environment(layout: Layout, broker: dict[str, Any]) -> dict[str, str]:
    home = _home(layout, broker)
    return {
        "HOME": str(home),
        "RABBITMQ_NODENAME": _node(layout, broker.get("number", 1)),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_LOG_BASE": str(layout.log),
        "RABBITMQ_DIST_PORT": str(broker["distribution"]),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none",
        "ERL_EPMD_PORT": str(broker["mapper"]),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "LANG": "C.UTF-8",
    }


def is_new(layout: Layout, broker: dict[str, Any]) -> bool:
    """Whether it was never started."""
    return not (_home(layout, broker) / "data").exists()


def start_mapper(layout: Layout, broker: dict[str, Any]) -> Process:
    """Erlang's port mapper, ours alone: the node would else start one that outlives it."""
    environment = _environment(layout, broker)
    mapper = processes.start(["epmd", "-port", str(broker["mapper"])], layout.log_file(MAPPER), environment)
    _await_port(layout, MAPPER, mapper, broker["mapper"], _listens)
    return mapper


def start(layout: Layout, broker: dict[str, Any]) -> Process:
    command = [str(BINARIES / "rabbitmq-server")]
    return processes.start(command, layout.log_file(_name(broker)), _environment(layout, broker))


def _name(broker: dict[str, Any]) -> str:
    return name(broker.get("number", 1))


def await_ready(layout: Layout, broker: dict[str, Any], process: Process) -> None:
    _await_port(layout, _name(broker), process, broker["port"], _speaks_amqp)


def _await_port(layout: Layout, what: str, process: Process, port: int, probe: Any) -> None:
    def ready() -> bool:
        if processes.has_ended(process):
            raise StackError(f"{what} ended:\n{processes.tail(layout.log_file(what))}")
        return bool(probe(port))

    try:
        wait_for(f"{what} answers", ready, 90)
    except TimeoutError as error:
        raise StackError(f"{error}:\n{processes.tail(layout.log_file(what))}") from error


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _speaks_amqp(port: int) -> bool:
    """The protocol's handshake: far cheaper than a command-line tool."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            return connection.recv(1) == b"\x01"
    except OSError:
        return False


def control(layout: Layout, broker: dict[str, Any], *arguments: str) -> str:
    """Run rabbitmqctl against this broker."""
    command = [str(BINARIES / "rabbitmqctl"), "-q", *arguments]
    env = {**os.environ, **_environment(layout, broker)}
    done = subprocess.run(command, cwd="/", env=env, capture_output=True, text=True)
    if done.returncode:
        raise StackError(f"rabbitmqctl {arguments[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def write_accounts(layout: Layout, accounts: dict[str, str]) -> None:
    """The accounts, each with only the rights it needs; the broker reads them whenever it starts."""
    made = permissions.definitions({name: (secret, rights(name)) for name, secret in accounts.items()})
    file = _first(layout) / "accounts.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(made, indent=1) + "\n")


def rights(account: str) -> permissions.Permissions:
    """What the account of a service may do."""
    if account.startswith("compute-"):
        return permissions.for_compute(account.removeprefix("compute-"))
    return permissions.for_api() if account == "api" else permissions.for_conductor()


def url(brokers: dict[str, Any] | list[dict[str, Any]], user: str, password: str) -> str:
    """What to write into ``transport_url``, for one broker or for those of a cluster."""
    brokers = brokers if isinstance(brokers, list) else [brokers]
    return "rabbit://" + ",".join(f"{user}:{password}@127.0.0.1:{one['port']}" for one in brokers) + "/"


def stop(process: Process) -> None:
    processes.stop(process, signal.SIGTERM)
