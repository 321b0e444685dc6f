"""The hypervisors of the simulated world: guests in memory, that outlive the worker.

A request that has been sent goes on although its sender dies (by the seed, as a daemon's would), and a driver of the
next incarnation waits for it (rule R6): ``waits_for_orphans`` is off only to show that this is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from pinfold.model.host import Hypervisor as HypervisorFacts
from pinfold.model.numa import held_cpus
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
from pinfold.virt.guests import Record
from tests.simulation.faults import Faults
from tests.simulation.history import History
from tests.simulation.loop import Loop, Process, Wait

_OFF = (NOSTATE, SHUTDOWN, CRASHED)
_ALLOWED = {
    "pause": (RUNNING, PAUSED),
    "unpause": (PAUSED, RUNNING),
    "suspend": (RUNNING, PAUSED, SUSPENDED),
    "resume": (SUSPENDED, RUNNING),
}


class SimGuest:
    """A guest with its disk. ``boots`` counts its boots; ``written`` is the boot in which it has changed its disk."""

    def __init__(self, record: Record, disk: bytes) -> None:
        self.record = record
        self.disk = disk
        self.boots = 1
        self.written = 0
        cells = record.placement.cells if record.placement else ()
        self.cpus: frozenset[int] = frozenset().union(*(held_cpus(cell) for cell in cells))

    def turn(self, state: PowerState) -> None:
        """Do something else from now on."""
        self.record = msgspec.structs.replace(self.record, power_state=state)

    @property
    def runs(self) -> bool:
        """Whether its CPUs are in use."""
        return self.record.power_state in (RUNNING, PAUSED)


class Machine:
    """A node. ``orphans`` are requests whose sender is dead and that still go on."""

    def __init__(self, node: str, cells: Sequence[MachineCell], disk_gb: int = 500) -> None:
        self.node = node
        self.cells = tuple(cells)
        self.disk_gb = disk_gb
        self.guests: dict[str, SimGuest] = {}
        self.aside: dict[str, SimGuest] = {}
        self.requests: dict[Request, None] = {}

    def power_cut(self) -> None:
        """All guests are off, all requests are gone; the disks stay."""
        for request in self.requests:
            request.cancelled = True
        self.requests.clear()
        for guest in self.guests.values():
            if guest.record.power_state not in _OFF:
                guest.turn(SHUTDOWN)


class Request:
    """A call that the hypervisor carries out, whatever becomes of who sent it."""

    def __init__(self, process: Process, instance: str | None, what: str) -> None:
        self.process = process
        self.instance = instance
        self.what = what
        self.cancelled = False
        self.result: Any = None
        self.error: Exception | None = None


class SimDriver:
    """``Driver`` of one incarnation of a worker. ``on_change`` is told after each change of a guest;
    ``on_refused`` when the machine cannot do what it is asked."""

    def __init__(
        self,
        loop: Loop,
        process: Process,
        faults: Faults,
        history: History,
        machines: Sequence[Machine],
        *,
        on_change: Callable[[], None],
        on_refused: Callable[[str], None],
        waits_for_orphans: bool = True,
    ) -> None:
        self._loop = loop
        self._process = process
        self._faults = faults
        self._history = history
        self._machines = {machine.node: machine for machine in machines}
        self._on_change = on_change
        self._on_refused = on_refused
        self._waits_for_orphans = waits_for_orphans
        process.at_death.append(self._died)

    def _died(self) -> None:
        for machine in self._machines.values():
            for request in list(machine.requests):
                if request.process is self._process and not self._faults.strikes("driver-orphan"):
                    request.cancelled = True
                    del machine.requests[request]

    def _ask(
        self,
        call: str,
        node: str,
        instance: str | None,
        act: Callable[[Machine], Any],
        *,
        changes: bool = True,
    ) -> Any:
        """Send a request and wait for its end."""
        loop, faults = self._loop, self._faults
        machine = self._machine(node)
        loop.point(self._process, f"driver.{call}")
        self._await_orphans(machine, instance)
        faults.driver(self._process, call, "before")
        request = Request(self._process, instance, call)
        machine.requests[request] = None
        assert loop.current is not None
        wait = Wait(loop.current)
        loop.after(faults.driver_takes(), lambda: self._carry_out(machine, request, act, wait, changes))
        loop.wait(wait, None)
        loop.point(self._process, f"driver.{call} returns")
        if request.error is not None:
            raise request.error
        faults.driver(self._process, call, "after")
        return request.result

    def _await_orphans(self, machine: Machine, instance: str | None) -> None:
        while self._waits_for_orphans and any(
            request.process is not self._process and instance in (None, request.instance)
            for request in machine.requests
        ):
            self._loop.sleep(self._process, 0.2)

    def _carry_out(
        self, machine: Machine, request: Request, act: Callable[[Machine], Any], wait: Wait, changes: bool
    ) -> None:
        if request.cancelled:
            return
        del machine.requests[request]
        try:
            request.result = act(machine)
        except DriverError as error:
            request.error = error
        if changes:
            failed = f" fails: {request.error}" if request.error else ""
            self._history.add(
                machine.node, "%s of %s for %s%s", request.what, request.instance, self._process, failed
            )
            self._on_change()
        if not self._process.dead:
            self._loop.wake(wait)

    def _machine(self, node: str) -> Machine:
        try:
            return self._machines[node]
        except KeyError:
            raise DriverError(f"This hypervisor has no node {node}.") from None

    # --- the driver's contract -----------------------------------------------------------------

    def nodes(self) -> tuple[str, ...]:
        return tuple(self._machines)

    def inventory(self, node: str) -> Inventory:
        machine = self._machine(node)
        return Inventory(node, machine.cells, machine.disk_gb)

    def list(self, node: str) -> tuple[Guest, ...]:
        def act(machine: Machine) -> tuple[Guest, ...]:
            return tuple(
                Guest(instance, node, guest.record.power_state, guest.record.name)
                for instance, guest in sorted(machine.guests.items())
            )

        found: tuple[Guest, ...] = self._ask("list", node, None, act, changes=False)
        return found

    def spawn(self, spec: GuestSpec, image: Iterator[bytes]) -> None:
        disk = b"".join(image)
        self._ask("spawn", spec.node, spec.instance, lambda machine: self._boot(machine, spec, disk, RUNNING))

    def shares_disk(self, node: str, instance: str, source: Source) -> bool:
        return False

    def spawn_on_disk(self, spec: GuestSpec, source: Source, *, power_on: bool) -> None:
        raise DriverError("These hypervisors share no storage.")

    def _boot(self, machine: Machine, spec: GuestSpec, disk: bytes, state: PowerState) -> None:
        try:
            witness.check(machine.cells, 1.0, spec, [guest.record for guest in machine.guests.values()])
        except witness.Refused as error:
            self._on_refused(error.message)
            raise
        record = Record(
            instance=spec.instance,
            name=spec.name,
            node=spec.node,
            power_state=state,
            vcpus=spec.vcpus,
            memory_mb=spec.memory_mb,
            disk_gb=spec.disk_gb,
            placement=spec.placement,
        )
        machine.guests[spec.instance] = SimGuest(record, disk)

    def rebuild(self, spec: GuestSpec, image: Iterator[bytes], *, power_on: bool = True) -> PowerState:
        disk, state = b"".join(image), RUNNING if power_on else SHUTDOWN
        self._ask("rebuild", spec.node, spec.instance, lambda machine: self._boot(machine, spec, disk, state))
        return state

    def migrate_disk(self, node: str, instance: str) -> Iterator[bytes]:
        return self.snapshot(node, instance)

    def finish_migration(
        self, spec: GuestSpec, disk: Iterator[bytes], *, power_on: bool, same_node: bool
    ) -> None:
        content = b"".join(disk)

        def act(machine: Machine) -> None:
            old = machine.guests.get(spec.instance)
            if same_node and old is not None and spec.instance not in machine.aside:
                old.turn(SHUTDOWN)
                machine.aside[spec.instance] = old
            self._boot(machine, spec, content, RUNNING if power_on else SHUTDOWN)

        self._ask("finish_migration", spec.node, spec.instance, act)

    def confirm_migration(self, node: str, instance: str, *, same_node: bool) -> None:
        def act(machine: Machine) -> None:
            (machine.aside if same_node else machine.guests).pop(instance, None)

        self._ask("confirm_migration", node, instance, act)

    def revert_migration(self, node: str, instance: str) -> PowerState:
        def act(machine: Machine) -> PowerState:
            if instance in machine.aside:
                machine.guests[instance] = machine.aside.pop(instance)
            return SHUTDOWN

        state: PowerState = self._ask("revert_migration", node, instance, act)
        return state

    def check_live_migration(self, spec: GuestSpec, source: HypervisorFacts) -> None:
        raise DriverError("These hypervisors do not move guests while they run.")

    def admit_live_migration(self, node: str, instance: str, *, admitted: bool) -> None:
        raise DriverError("These hypervisors do not move guests while they run.")

    def live_migrate(self, node: str, instance: str, spec: GuestSpec, host: str, wish: Wish) -> None:
        raise DriverError("These hypervisors do not move guests while they run.")

    def destroy(self, node: str, instance: str) -> None:
        def act(machine: Machine) -> None:
            machine.guests.pop(instance, None)
            machine.aside.pop(instance, None)

        self._ask("destroy", node, instance, act)

    def power_on(self, node: str, instance: str) -> PowerState:
        return self._change("power_on", node, instance, RUNNING)

    def power_off(self, node: str, instance: str, *, clean: bool = True) -> PowerState:
        return self._change("power_off", node, instance, SHUTDOWN)

    def reboot(self, node: str, instance: str, *, hard: bool = False) -> PowerState:
        return self._change("reboot", node, instance, RUNNING, afresh=True)

    def pause(self, node: str, instance: str) -> PowerState:
        return self._change("pause", node, instance, PAUSED)

    def unpause(self, node: str, instance: str) -> PowerState:
        return self._change("unpause", node, instance, RUNNING)

    def suspend(self, node: str, instance: str) -> PowerState:
        return self._change("suspend", node, instance, SUSPENDED)

    def resume(self, node: str, instance: str) -> PowerState:
        return self._change("resume", node, instance, RUNNING)

    def _change(
        self, call: str, node: str, instance: str, to: PowerState, *, afresh: bool = False
    ) -> PowerState:
        def act(machine: Machine) -> PowerState:
            guest = _present(machine, instance)
            before = guest.record.power_state
            if before not in _ALLOWED.get(call, (before,)):
                raise DriverError(f"{call} of {instance} on {node}: it is in state {before}.")
            if to == RUNNING and (before in _OFF or afresh):
                guest.boots += 1
            guest.turn(to)
            return to

        state: PowerState = self._ask(call, node, instance, act)
        return state

    def snapshot(self, node: str, instance: str) -> Iterator[bytes]:
        def act(machine: Machine) -> bytes:
            return _present(machine, instance).disk

        return iter([self._ask("snapshot", node, instance, act, changes=False)])

    def console_log(self, node: str, instance: str, lines: int | None = None) -> str:
        return ""


def _present(machine: Machine, instance: str) -> SimGuest:
    guest = machine.guests.get(instance)
    if guest is None:
        raise GuestNotFound(f"{machine.node} has no guest {instance}.")
    return guest
