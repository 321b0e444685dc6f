"""What a cloud was asked to be, and where everything of it stands."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec


class StackError(Exception):
    """Something the user can act on; printed as it is, without a traceback."""


class Options(msgspec.Struct, frozen=True):
    """The options of stack.sh that shape a cloud."""

    multi: bool = False
    hosts: int = 3
    conductors: int = 2
    brokers: int = 1
    database: str = "postgresql"
    driver: str = "fake"
    topology: str | None = None
    transport_url: str | None = None
    database_url: str | None = None
    port: int = 8774
    settings: tuple[str, ...] = ()

    @property
    def host_names(self) -> list[str]:
        return [f"host-{number}" for number in range(1, self.hosts + 1)]

    @property
    def services(self) -> list[str]:
        """The names of the service processes, in the order in which they start."""
        if not self.multi:
            return ["all-in-one"]
        conductors = [f"conductor-{number}" for number in range(1, self.conductors + 1)]
        return [*conductors, *(f"compute-{host}" for host in self.host_names), "api"]

    def keeps_data_of(self, old: Options) -> bool:
        """Whether the data of a stopped cloud ``old`` fits this one."""
        return self.hosts >= old.hosts and all(
            getattr(self, name) == getattr(old, name)
            for name in (
                "multi",
                "brokers",
                "database",
                "driver",
                "topology",
                "transport_url",
                "database_url",
            )
        )


class Process(msgspec.Struct, frozen=True):
    """A process that was started: the first of its session, told from a namesake by its start time."""

    pid: int
    started: str
    command: tuple[str, ...]


class State(msgspec.Struct):
    """What stands in DIR/stack.json."""

    options: Options
    processes: dict[str, Process] = {}
    #: Ports, passwords and folders of the private servers, by server.
    servers: dict[str, dict[str, Any]] = {}
    #: The passwords of the broker accounts, by account.
    accounts: dict[str, str] = {}


class Layout:
    """The paths of one cloud; ``shelf`` is for data that root may not own."""

    def __init__(self, root: Path, shelf: Path = Path("/var/lib/pinfold-stack")) -> None:
        self.root, self.shelf = root, shelf
        self.etc, self.run, self.log = root / "etc", root / "run", root / "log"
        self.hypervisor = root / "hypervisor"
        self.images = root / "images"
        self.faults = root / "faults.json"
        self.clouds = root / "clouds.yaml"
        self.openrc = root / "openrc"
        self.topology = root / "topology.json"
        self.state_file = root / "stack.json"

    def config(self, name: str) -> Path:
        return self.etc / f"{name}.conf"

    def log_file(self, name: str) -> Path:
        return self.log / f"{name}.log"

    def pid_file(self, name: str) -> Path:
        return self.run / f"{name}.pid"

    @property
    def key(self) -> str:
        """Names this cloud among all of the machine: for broker nodes and folders elsewhere."""
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:10]

    def make(self) -> None:
        for folder in (self.root, self.etc, self.run, self.log, self.hypervisor, self.images):
            folder.mkdir(parents=True, exist_ok=True)
        # The configuration files hold passwords.
        self.etc.chmod(0o700)
        if not self.faults.exists():
            self.faults.write_text("[]\n")

    def load(self) -> State | None:
        """What was recorded, or None for a folder that never held a cloud."""
        try:
            return msgspec.json.decode(self.state_file.read_bytes(), type=State)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise StackError(f"{self.state_file} cannot be read: {error}") from error

    def save(self, state: State) -> None:
        """Written whole or not at all: unstack.sh relies on it."""
        beside = self.state_file.with_suffix(".new")
        with open(beside, "wb", opener=_private) as file:
            file.write(msgspec.json.format(msgspec.json.encode(state)) + b"\n")
        beside.replace(self.state_file)

    def set_aside(self) -> Path:
        """Move the data of a stopped cloud of another shape out of the way; nothing is lost."""
        number = 1
        while (shelf := self.root / "set-aside" / str(number)).exists():
            number += 1
        shelf.mkdir(parents=True)
        for entry in list(self.root.iterdir()):
            if entry.name != "set-aside":
                entry.rename(shelf / entry.name)
        return shelf


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
