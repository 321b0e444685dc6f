"""What a hypervisor driver does. Every call is blocking and safe to repeat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from pinfold.model import errors
from pinfold.model.numa import HostPages, Placement

NOSTATE, RUNNING, PAUSED, SHUTDOWN, CRASHED, SUSPENDED = 0, 1, 3, 4, 6, 7


class DriverError(errors.PinfoldError):
    """A hypervisor call failed; the message says which and why."""

    code = "driver"


class Guest(msgspec.Struct, frozen=True):
    """A guest that a node's hypervisor has defined. ``power_state`` as in the compute API."""

    instance: str
    node: str
    power_state: int
    name: str = ""


class GuestSpec(msgspec.Struct, frozen=True):
    """What to run. ``placement`` has the pins; without one the guest floats over the node's shared CPUs."""

    instance: str
    name: str
    node: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    placement: Placement | None = None


class MachineCell(msgspec.Struct, frozen=True):
    """A NUMA cell as the machine reports it, before the configuration divides its CPUs."""

    id: int
    cpus: frozenset[int]
    siblings: tuple[frozenset[int], ...]
    memory_mb: int
    pages: tuple[HostPages, ...] = ()
    socket: int | None = None


class Inventory(msgspec.Struct, frozen=True):
    """A node's machine: cells and disk."""

    node: str
    cells: tuple[MachineCell, ...]
    disk_gb: int


class Driver(Protocol):
    """One hypervisor (connection) with one or more nodes."""

    def nodes(self) -> tuple[str, ...]:
        """The names of its nodes."""

    def inventory(self, node: str) -> Inventory: ...

    def list(self, node: str) -> tuple[Guest, ...]:
        """All guests of the node, running or not."""

    def spawn(self, spec: GuestSpec, image: Iterator[bytes]) -> None:
        """Define the guest, fill its disk from ``image``, start it. A guest that is there already is replaced."""

    def destroy(self, node: str, instance: str) -> None:
        """End the guest and remove its disk; nothing happens when it is not there."""

    def power_on(self, node: str, instance: str) -> None: ...

    def power_off(self, node: str, instance: str, *, clean: bool = True) -> None: ...

    def snapshot(self, node: str, instance: str) -> Iterator[bytes]:
        """The guest's disk as the bytes of an image."""
