"""A hypervisor without a machine: guests are folders that outlive the worker, as a real one's guests do.

It keeps the driver's contract as the real ones do, refuses what a machine could not run (see ``witness``),
and fails to order (see ``faults``). The layout on disk is told in ``guests``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import FileIO

import msgspec

from pinfold.model import cpuset, errors
from pinfold.model.host import Hypervisor
from pinfold.model.numa import held_cpus
from pinfold.runtime import Runtime
from pinfold.virt import witness
from pinfold.virt.driver import (
    CRASHED,
    NOSTATE,
    PAUSED,
    RUNNING,
    SHUTDOWN,
    SUSPENDED,
    DriverError,
    Guest,
    GuestNotFound,
    GuestSpec,
    Inventory,
    MachineCell,
    PowerState,
    Source,
    Wish,
)
from pinfold.virt.faults import Faults
from pinfold.virt.guests import Build, GuestFolder, Record, disk_pieces, read_console, write_console
from pinfold.virt.topology import default_machine

HYPERVISOR = Hypervisor("fake", 1000)
_NAMES = {
    NOSTATE: "in no state",
    RUNNING: "running",
    PAUSED: "paused",
    SHUTDOWN: "shut down",
    CRASHED: "crashed",
    SUSPENDED: "suspended",
}
_ANY = frozenset(_NAMES)


_OFF = frozenset({NOSTATE, SHUTDOWN, CRASHED})


class _Change(msgspec.Struct, frozen=True):
    """A change of power state, from those that are ``allowed`` or that it leads ``to`` anyway.

    The guest's system starts afresh when it comes from one in ``boots``.
    """

    to: PowerState
    allowed: frozenset[PowerState]
    boots: frozenset[PowerState] = frozenset()


_POWER_ON = _Change(RUNNING, _ANY, boots=_OFF)
_POWER_OFF = _Change(SHUTDOWN, _ANY)
_SOFT_REBOOT = _Change(RUNNING, frozenset({RUNNING}), boots=_ANY)
_HARD_REBOOT = _Change(RUNNING, _ANY, boots=_ANY)
_PAUSE = _Change(PAUSED, frozenset({RUNNING}))
_UNPAUSE = _Change(RUNNING, frozenset({PAUSED}))
_SUSPEND = _Change(SUSPENDED, frozenset({RUNNING, PAUSED}))
_RESUME = _Change(RUNNING, frozenset({SUSPENDED}))


class FakeDriver:
    """All nodes of one host, each a machine of the shape ``topology`` with ``disk_gb``.

    ``memory_ratio`` is how far the configuration lets memory be overcommitted. Several drivers, in one
    process or many, may be open on one ``state_path``. ``shared_storage``: the disks of this host's guests can be
    reached by the other hosts beside it that have the same. Running guests are taken from hosts of the same
    ``cpu_model``.

    Raises errors.ConfigurationError when that cannot be used.
    """

    def __init__(
        self,
        runtime: Runtime,
        host: str,
        nodes: Sequence[str],
        state_path: str,
        fault_file: str | None = None,
        topology: Sequence[MachineCell] | None = None,
        *,
        disk_gb: int = 500,
        memory_ratio: float = 1.0,
        shared_storage: bool = False,
        cpu_model: str = "fake",
    ) -> None:
        self._runtime = runtime
        self._cpu = cpu_model
        self._shared_storage = shared_storage
        self._cells = tuple(topology) if topology is not None else default_machine().cells
        self._disk_gb = disk_gb
        self._memory_ratio = memory_ratio
        state_path = os.path.abspath(state_path)
        self._state_path = state_path
        self._folders = {node: _opened(runtime, state_path, node, shared_storage) for node in nodes}
        counts = os.path.join(os.path.dirname(state_path), ".faults-used.json")
        self._faults = Faults(runtime, host, fault_file, counts)

    def nodes(self) -> tuple[str, ...]:
        """The names of its nodes."""
        return tuple(self._folders)

    def inventory(self, node: str) -> Inventory:
        """The machine of a node."""
        with self._call("inventory", node):
            hypervisor = msgspec.structs.replace(HYPERVISOR, cpu=self._cpu)
            return Inventory(node, self._cells, self._disk_gb, hypervisor)

    def list(self, node: str) -> tuple[Guest, ...]:
        """All guests of the node, in order of instance."""
        with self._call("list", node) as folder:
            with folder.locked():
                records = folder.all()
            return tuple(Guest(record.instance, node, record.power_state, record.name) for record in records)

    def spawn(self, spec: GuestSpec, image: Iterator[bytes]) -> None:
        """Define and start. Raises witness.Refused for what the machine cannot run."""
        with self._call("spawn", spec.node, spec.instance) as folder:
            self._make(folder, spec, lambda build: build.fill(spec, image), RUNNING)

    def shares_disk(self, node: str, instance: str, source: Source) -> bool:
        """Whether both hosts have shared storage, and the disk is there."""
        self._folder(node)
        _check_name(instance)
        if not self._shared_storage:
            return False
        with _files("shares_disk", node, instance):
            there = self._found_beside(source.host, source.node)
            return there is not None and there.shares(instance)

    def spawn_on_disk(self, spec: GuestSpec, source: Source, *, power_on: bool) -> None:
        """As ``spawn`` (and a ``spawn`` to faults), on a disk that is there. Raises witness.Refused as that does."""
        with self._call("spawn", spec.node, spec.instance) as folder:
            there = self._beside(source.host, source.node)

            def share(build: Build) -> None:
                with there.locked():
                    if not there.shares(spec.instance):
                        raise DriverError(
                            f"The disk of {spec.instance} at {source.node} cannot be reached from {spec.node}."
                        )
                    build.share(there.disk(spec.instance))

            self._make(folder, spec, share, RUNNING if power_on else SHUTDOWN)

    def rebuild(self, spec: GuestSpec, image: Iterator[bytes], *, power_on: bool = True) -> PowerState:
        """Replace. The old guest is there until the new one is. Raises witness.Refused as ``spawn`` does."""
        state = RUNNING if power_on else SHUTDOWN
        with self._call("rebuild", spec.node, spec.instance) as folder:
            self._make(folder, spec, lambda build: build.fill(spec, image), state)
        return state

    def _make(
        self,
        folder: GuestFolder,
        spec: GuestSpec,
        fill: Callable[[Build], None],
        state: PowerState,
        *,
        aside: bool = False,
    ) -> None:
        with folder.locked():
            self._check(spec, folder)
            build = folder.begin(spec.instance)
        try:
            fill(build)
            if state == RUNNING:
                self._boot(os.path.join(build.path, "console.log"), spec)
            with folder.locked():
                self._check(spec, folder)  # others may have come while the disk was filled
                if aside:
                    folder.put_aside(spec.instance)
                folder.commit(build, _record(spec, state))
        finally:
            build.discard()

    def _check(self, spec: GuestSpec, folder: GuestFolder) -> None:
        witness.check(self._cells, self._memory_ratio, spec, folder.all())

    def destroy(self, node: str, instance: str) -> None:
        """End and remove."""
        with self._call("destroy", node, instance) as folder:
            with folder.locked():
                folder.remove(instance)

    def power_on(self, node: str, instance: str) -> PowerState:
        """Run, whatever it did before."""
        return self._change("power_on", node, instance, _POWER_ON)

    def power_off(self, node: str, instance: str, *, clean: bool = True) -> PowerState:
        """Stop; a fake guest's system always stops at once."""
        return self._change("power_off", node, instance, _POWER_OFF)

    def reboot(self, node: str, instance: str, *, hard: bool = False) -> PowerState:
        """Start afresh."""
        return self._change("reboot", node, instance, _HARD_REBOOT if hard else _SOFT_REBOOT)

    def pause(self, node: str, instance: str) -> PowerState:
        """Stop a running guest's CPUs."""
        return self._change("pause", node, instance, _PAUSE)

    def unpause(self, node: str, instance: str) -> PowerState:
        """Let a paused guest go on."""
        return self._change("unpause", node, instance, _UNPAUSE)

    def suspend(self, node: str, instance: str) -> PowerState:
        """Save a running or paused guest and stop it."""
        return self._change("suspend", node, instance, _SUSPEND)

    def resume(self, node: str, instance: str) -> PowerState:
        """Let a suspended guest go on."""
        return self._change("resume", node, instance, _RESUME)

    def _change(self, call: str, node: str, instance: str, change: _Change) -> PowerState:
        with self._call(call, node, instance) as folder:
            with folder.locked():
                record = _present(folder, node, instance)
                self._apply(call, folder, record, change)
        return change.to

    def _apply(self, call: str, folder: GuestFolder, record: Record, change: _Change) -> None:
        state = record.power_state
        if state not in change.allowed and state != change.to:
            right = " or ".join(_NAMES[allowed] for allowed in sorted(change.allowed))
            raise DriverError(
                f"{call} of {record.instance} on {record.node}: the guest is {_NAMES[state]}, not {right}."
            )
        if state in change.boots:
            self._boot(folder.console(record.instance), record)
        if state != change.to:
            folder.save(msgspec.structs.replace(record, power_state=change.to))

    def snapshot(self, node: str, instance: str) -> Iterator[bytes]:
        """The disk, without the hole at its end where its size is the flavor's."""
        return self._read("snapshot", node, instance)

    def migrate_disk(self, node: str, instance: str) -> Iterator[bytes]:
        """The disk, likewise."""
        return self._read("migrate_disk", node, instance)

    def _read(self, call: str, node: str, instance: str) -> Iterator[bytes]:
        folder = self._folder(node)
        self._faults.strike(call, instance, "before")
        with _files(call, node, instance), folder.locked():
            record = _present(folder, node, instance)
            return self._pieces(call, open(folder.disk(instance), "rb", buffering=0), record)

    def _pieces(self, call: str, disk: FileIO, record: Record) -> Iterator[bytes]:
        with disk, _files(call, record.node, record.instance):
            yield from disk_pieces(disk.fileno(), trim=record.disk_gb > 0)
        self._faults.strike(call, record.instance, "after")

    def finish_migration(
        self, spec: GuestSpec, disk: Iterator[bytes], *, power_on: bool, same_node: bool
    ) -> None:
        """Define, and start if so asked; one that moves on this node is put aside."""
        with self._call("finish_migration", spec.node, spec.instance) as folder:
            state = RUNNING if power_on else SHUTDOWN
            self._make(folder, spec, lambda build: build.fill(spec, disk), state, aside=same_node)

    def confirm_migration(self, node: str, instance: str, *, same_node: bool) -> None:
        """Remove the guest that was moved away, or the one that was put aside."""
        with self._call("confirm_migration", node, instance) as folder:
            with folder.locked():
                if same_node:
                    folder.forget_aside(instance)
                else:
                    folder.remove(instance)

    def check_live_migration(self, spec: GuestSpec, source: Hypervisor) -> None:
        """The same kind of hypervisor, the same CPU where it is told, and room beside the guests that are here."""
        with self._call("check_live_migration", spec.node, spec.instance) as folder:
            # workers of the releases before this one do not tell it
            if source.type != HYPERVISOR.type or source.cpu not in ("", self._cpu):
                raise DriverError(
                    f"{spec.node} cannot go on with guest {spec.instance}: it runs on {source.type} with CPU "
                    f"{source.cpu}, and here is {HYPERVISOR.type} with CPU {self._cpu}."
                )
            with folder.locked():
                self._check(spec, folder)

    def admit_live_migration(self, node: str, instance: str, *, admitted: bool) -> None:
        """A note in the node's folder, which is looked at under the locks of both nodes."""
        with self._call("admit_live_migration", node, instance) as folder, folder.locked():
            folder.admit(instance, admitted)

    def live_migrate(self, node: str, instance: str, spec: GuestSpec, host: str, wish: Wish) -> None:
        """Move the guest's folder to that of the other host, which stands beside this one's."""
        folder = self._folder(node)
        _check_name(instance)
        self._faults.strike("live_migrate", instance, "before", lambda: wish.is_aborted() or wish.is_forced())
        if wish.is_aborted():
            raise DriverError(f"live_migrate of {instance} on {node} was aborted.")
        with _files("live_migrate", node, instance):
            there = self._beside(host, spec.node)
            first, second = (folder, there) if node < spec.node else (there, folder)
            with first.locked(), second.locked():
                self._hand_over(folder, there, node, spec)
        self._faults.strike("live_migrate", instance, "after")

    def _hand_over(self, folder: GuestFolder, there: GuestFolder, node: str, spec: GuestSpec) -> None:
        record = folder.get(spec.instance)
        if record is not None:
            if record.power_state not in (RUNNING, PAUSED):
                raise DriverError(
                    f"live_migrate of {spec.instance} on {node}: the guest is {_NAMES[record.power_state]}."
                )
            if not there.admits(spec.instance):
                raise DriverError(f"{spec.node} does not admit guest {spec.instance} any more.")
            self._check(spec, there)
            folder.move_to(there, spec.instance)
        moved = _present(there, spec.node, spec.instance)
        there.save(_record(spec, moved.power_state))

    def _beside(self, host: str, node: str) -> GuestFolder:
        """The folder of another host's node."""
        found = self._found_beside(host, node)
        if found is None:
            raise DriverError(f"Node {node} of host {host} cannot be reached from here.")
        return found

    def _found_beside(self, host: str, node: str) -> GuestFolder | None:
        path = os.path.join(os.path.dirname(self._state_path), host)
        return GuestFolder(self._runtime, path, node) if os.path.isdir(os.path.join(path, node)) else None

    def revert_migration(self, node: str, instance: str) -> PowerState:
        """The guest that was put aside, if any, is the guest again."""
        with self._call("revert_migration", node, instance) as folder:
            with folder.locked():
                folder.take_back(instance)
                return _present(folder, node, instance).power_state

    def console_log(self, node: str, instance: str, lines: int | None = None) -> str:
        """A line for each boot, and what tests append to the guest's console.log."""
        with self._call("console_log", node, instance) as folder:
            with folder.locked():
                _present(folder, node, instance)
                text = read_console(folder.console(instance))
        if lines is None:
            return text
        return "".join(text.splitlines(keepends=True)[-lines:]) if lines > 0 else ""

    @contextmanager
    def _call(self, call: str, node: str, instance: str | None = None) -> Iterator[GuestFolder]:
        """What is around the work of a call."""
        folder = self._folder(node)
        if instance is not None:
            _check_name(instance)
        self._faults.strike(call, instance, "before")
        with _files(call, node, instance):
            yield folder
        self._faults.strike(call, instance, "after")

    def _boot(self, console: str, guest: GuestSpec | Record) -> None:
        placed = () if guest.placement is None else guest.placement.cells
        pins = frozenset().union(*(held_cpus(cell) for cell in placed))
        where = f"CPUs {cpuset.render(pins)}" if pins else "shared CPUs"
        now = self._runtime.now().isoformat(timespec="seconds")
        write_console(console, f"{now} {guest.name}: boot, {guest.vcpus} vCPUs on {where} of {guest.node}\n")

    def _folder(self, node: str) -> GuestFolder:
        try:
            return self._folders[node]
        except KeyError:
            names = ", ".join(self._folders)
            raise DriverError(f"This hypervisor has no node {node}; it has {names}.") from None


@contextmanager
def _files(call: str, node: str, instance: str | None) -> Iterator[None]:
    """What the file system refuses is the hypervisor's failure."""
    try:
        yield
    except OSError as error:
        what = f"{call} of {instance} on {node}" if instance else f"{call} on {node}"
        raise DriverError(f"{what} failed: {error}.") from error


def _opened(runtime: Runtime, state_path: str, node: str, shared: bool) -> GuestFolder:
    _check_name(node)
    try:
        folder = GuestFolder(runtime, state_path, node)
        folder.share(shared)
        return folder
    except OSError as error:
        raise errors.ConfigurationError(
            f"The fake hypervisor cannot keep guests under {state_path} ([fake] state_path): {error}."
        ) from error


def _present(folder: GuestFolder, node: str, instance: str) -> Record:
    _check_name(instance)
    record = folder.get(instance)
    if record is None:
        raise GuestNotFound(f"{node} has no guest {instance}.")
    return record


def _record(spec: GuestSpec, power_state: PowerState) -> Record:
    return Record(
        instance=spec.instance,
        name=spec.name,
        node=spec.node,
        power_state=power_state,
        vcpus=spec.vcpus,
        memory_mb=spec.memory_mb,
        disk_gb=spec.disk_gb,
        placement=spec.placement,
    )


def _check_name(name: str) -> None:
    """Names become folders."""
    if not name or name.startswith(".") or "/" in name or "\0" in name:
        raise DriverError(f"'{name}' cannot be the name of a node or guest.")
