"""The last witness: whether a machine can run one more guest beside those that it has.

The book has decided already; a hypervisor that is asked for the impossible says so, whoever was wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pinfold.model import cpuset
from pinfold.model.numa import PlacedCell, held_cpus
from pinfold.virt.driver import DriverError, GuestSpec, MachineCell
from pinfold.virt.guests import Record


class Refused(DriverError):
    """The machine cannot run this guest beside its others."""

    code = "refused-by-hypervisor"


def check(
    cells: Sequence[MachineCell], memory_ratio: float, spec: GuestSpec, others: Iterable[Record]
) -> None:
    """Raises Refused naming CPUs, cells and guests.

    ``memory_ratio`` is how far the node's memory may be overcommitted.
    """
    others = [other for other in others if other.instance != spec.instance]
    _check_total(cells, memory_ratio, spec, others)
    if spec.placement is None:
        return
    machine = {cell.id: cell for cell in cells}
    _check_pins(machine, spec, others)
    for cell in {placed.cell for placed in spec.placement.cells}:
        _check_cell(machine[cell], spec, others)


def _check_total(
    cells: Sequence[MachineCell], memory_ratio: float, spec: GuestSpec, others: Sequence[Record]
) -> None:
    total = int(sum(cell.memory_mb for cell in cells) * memory_ratio)
    free = total - sum(other.memory_mb for other in others)
    if spec.memory_mb > free:
        raise Refused(f"{spec.node} has {free} MB free, and guest {spec.instance} needs {spec.memory_mb} MB.")


def _check_pins(machine: dict[int, MachineCell], spec: GuestSpec, others: Sequence[Record]) -> None:
    taken: set[int] = set()
    for placed in _placed(spec):
        if placed.cell not in machine:
            raise Refused(
                f"{spec.node} has no NUMA cell {placed.cell}, where guest {spec.instance} is placed."
            )
        wanted = held_cpus(placed)
        if outside := wanted - machine[placed.cell].cpus:
            raise Refused(
                f"CPUs {cpuset.render(outside)} of guest {spec.instance} are not in cell {placed.cell} of "
                f"{spec.node}."
            )
        if twice := (taken & wanted) | _doubled(placed):
            raise Refused(f"Guest {spec.instance} has CPUs {cpuset.render(twice)} of {spec.node} twice.")
        taken |= wanted
    for other in others:
        if double := taken & _held(other):
            raise Refused(
                f"CPUs {cpuset.render(double)} of {spec.node}, asked for by guest {spec.instance}, are run "
                f"by guest {other.instance}."
            )


def _doubled(placed: PlacedCell) -> set[int]:
    pins = list(placed.pins.values())
    return {cpu for cpu in pins if pins.count(cpu) > 1} | (set(pins) & placed.reserved)


def _check_cell(cell: MachineCell, spec: GuestSpec, others: Sequence[Record]) -> None:
    """Memory without a page size against the cell's, and pages of each size against the cell's pages."""
    wanted, used = _memory([spec], cell.id), _memory(others, cell.id)
    free = {pages.size_kb: pages.total - pages.reserved for pages in cell.pages}
    for size, amount in wanted.items():
        if size is None:
            left, unit = cell.memory_mb - used.get(None, 0), "MB"
        else:
            left, unit = free.get(size, 0) - used.get(size, 0), f"pages of {size} KiB"
        if amount > left:
            raise Refused(
                f"Cell {cell.id} of {spec.node} has {left} {unit} free, and guest {spec.instance} needs "
                f"{amount}."
            )


def _memory(guests: Iterable[GuestSpec | Record], cell: int) -> dict[int | None, int]:
    """What guests have for sure of a cell: MB under None, numbers of pages under their size in KiB."""
    total: dict[int | None, int] = {}
    for guest in guests:
        for placed in _placed(guest):
            if placed.cell == cell and not placed.overcommit:
                size = placed.page_size_kb
                amount = placed.memory_mb if size is None else placed.pages
                total[size] = total.get(size, 0) + amount
    return total


def _placed(guest: GuestSpec | Record) -> tuple[PlacedCell, ...]:
    return () if guest.placement is None else guest.placement.cells


def _held(guest: Record) -> frozenset[int]:
    return frozenset().union(*(held_cpus(placed) for placed in _placed(guest)))
