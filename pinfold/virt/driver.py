"""What a hypervisor driver does. Every call is blocking and safe to repeat.

Calls about one guest raise GuestNotFound when the node has no such guest, except ``spawn`` and ``destroy``.
All raise DriverError when the hypervisor refuses or fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from pinfold.model import errors, power
from pinfold.model.host import Hypervisor
from pinfold.model.numa import HostPages, Placement

NOSTATE, RUNNING, PAUSED = power.NOSTATE, power.RUNNING, power.PAUSED
SHUTDOWN, CRASHED, SUSPENDED = power.SHUTDOWN, power.CRASHED, power.SUSPENDED

PowerState = power.PowerState
"""One of the numbers above, as in the compute API."""


class DriverError(errors.PinfoldError):
    """A hypervisor call failed; the message says which and why."""

    code = "driver"


class GuestNotFound(DriverError):
    """The node's hypervisor has no guest of this instance."""

    code = "guest-not-found"


class Guest(msgspec.Struct, frozen=True):
    """A guest that a node's hypervisor has defined. ``power_state`` as in the compute API."""

    instance: str
    node: str
    power_state: PowerState
    name: str = ""


class GuestSpec(msgspec.Struct, frozen=True):
    """What to run. ``placement`` has the pins; without one the guest floats over the node's shared CPUs.

    ``disk_gb`` 0 means a disk as large as the image.
    """

    instance: str
    name: str
    node: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    placement: Placement | None = None


class Source(msgspec.Struct, frozen=True):
    """Where a guest was before."""

    host: str
    node: str


class MachineCell(msgspec.Struct, frozen=True):
    """A NUMA cell as the machine reports it, before the configuration divides its CPUs."""

    id: int
    cpus: frozenset[int]
    siblings: tuple[frozenset[int], ...]
    memory_mb: int
    pages: tuple[HostPages, ...] = ()
    socket: int | None = None


class Inventory(msgspec.Struct, frozen=True):
    """A node's machine: cells and disk, and what runs guests on it."""

    node: str
    cells: tuple[MachineCell, ...]
    disk_gb: int
    hypervisor: Hypervisor = Hypervisor()


class Wish(Protocol):
    """What is wished of a live migration while it goes on."""

    def is_aborted(self) -> bool: ...
    def is_forced(self) -> bool: ...


class Driver(Protocol):
    """One hypervisor (connection) with one or more nodes."""

    def nodes(self) -> tuple[str, ...]:
        """The names of its nodes."""

    def inventory(self, node: str) -> Inventory: ...

    def list(self, node: str) -> tuple[Guest, ...]:
        """All guests of the node, running or not."""

    def spawn(self, spec: GuestSpec, image: Iterator[bytes]) -> None:
        """Define the guest, fill its disk from ``image``, start it. One that is there already is replaced."""

    def shares_disk(self, node: str, instance: str, source: Source) -> bool:
        """Whether the disk that the guest has at ``source`` can be reached from ``node``, because it stands on
        storage that both share. Nothing is asked of ``source``, which may be dead."""

    def spawn_on_disk(self, spec: GuestSpec, source: Source, *, power_on: bool) -> None:
        """Define the guest on the disk that it has at ``source``, with its content, and start it if so asked.

        Both ends have that disk from then on: when one guest is destroyed, the other keeps it. One that is there
        already is replaced.
        """

    def rebuild(self, spec: GuestSpec, image: Iterator[bytes], *, power_on: bool = True) -> PowerState:
        """Give the guest a new disk and the place of ``spec``, and start it if ``power_on``. One that is not there is
        made. When this fails the old guest may be gone, or the new one be there."""

    def destroy(self, node: str, instance: str) -> None:
        """End the guest and remove its disk; nothing happens when it is not there."""

    def power_on(self, node: str, instance: str) -> PowerState:
        """Run, whatever it did before."""

    def power_off(self, node: str, instance: str, *, clean: bool = True) -> PowerState:
        """Stop, whatever it did before; ``clean`` asks the guest's system first."""

    def reboot(self, node: str, instance: str, *, hard: bool = False) -> PowerState:
        """Start afresh. A soft reboot asks the guest's system, so it must be running; a hard one need not."""

    def pause(self, node: str, instance: str) -> PowerState:
        """Stop a running guest's CPUs; its memory stays."""

    def unpause(self, node: str, instance: str) -> PowerState: ...

    def suspend(self, node: str, instance: str) -> PowerState:
        """Save a running or paused guest's memory to disk and stop it."""

    def resume(self, node: str, instance: str) -> PowerState: ...

    def snapshot(self, node: str, instance: str) -> Iterator[bytes]:
        """The guest's disk as the bytes of an image. Errors are raised at the call or at any piece."""

    def migrate_disk(self, node: str, instance: str) -> Iterator[bytes]:
        """The disk of a guest that is shut down, to be moved. Errors are raised at the call or at any piece."""

    def finish_migration(
        self, spec: GuestSpec, disk: Iterator[bytes], *, power_on: bool, same_node: bool
    ) -> None:
        """Define a guest with a moved disk, grown to ``disk_gb`` with its content kept; start it if so asked.

        On the ``same_node`` the guest that moves is there already: it is put aside, off, until ``confirm_migration``
        or ``revert_migration``. Elsewhere what is there was made by an earlier try, and goes. Repeated, the new one
        is made again, and one that was put aside stays.
        """

    def confirm_migration(self, node: str, instance: str, *, same_node: bool) -> None:
        """Remove the guest as it was before a move away, or, on the ``same_node``, the one put aside; nothing happens
        when it is not there."""

    def revert_migration(self, node: str, instance: str) -> PowerState:
        """Be as before the move: a guest that was put aside, off, takes the place of the new one; nothing happens
        when none was."""

    def check_live_migration(self, spec: GuestSpec, source: Hypervisor) -> None:
        """Whether a guest that runs on ``source`` could go on here as ``spec``, as far as can be said before it is
        moved: raises DriverError if not. Nothing is changed."""

    def admit_live_migration(self, node: str, instance: str, *, admitted: bool) -> None:
        """Whether the guest may come to ``node`` by a live migration from now on, one that is under way included:
        where it may not, that fails at its source. It may until something else is said."""

    def live_migrate(self, node: str, instance: str, spec: GuestSpec, host: str, wish: Wish) -> None:
        """Move a running (or paused) guest with its disk to node ``spec.node`` of ``host``, where it is ``spec``; it
        does not stop for more than a moment. After it the guest is at one end only, whatever is raised; repeated,
        nothing happens once it is there."""

    def console_log(self, node: str, instance: str, lines: int | None = None) -> str:
        """What the guest wrote to its console: the last ``lines`` lines, or all that is kept."""
