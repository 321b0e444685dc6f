"""What claims hold on the cells of a host: adding and releasing are exact inverses.

Both check everything before they change anything: an AccountingError leaves the usage as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pinfold.model import cpuset
from pinfold.model.errors import AccountingError
from pinfold.model.numa_types import CellUsage, HostCell, HostTopology, PlacedCell, Placement


def empty_usage(topology: HostTopology) -> tuple[CellUsage, ...]:
    """The usage of a host without guests, one entry for each cell, in the topology's order."""
    return tuple(CellUsage(cell.id) for cell in topology.cells)


def held_cpus(cell: PlacedCell) -> frozenset[int]:
    """All host CPUs that nobody else may have: pins, emulator CPUs and held siblings."""
    return frozenset(cell.pins.values()) | cell.reserved | cell.held


def add(usage: Sequence[CellUsage], placement: Placement, topology: HostTopology) -> tuple[CellUsage, ...]:
    """The usage once ``placement`` is held too.

    Raises AccountingError where it takes CPUs that the cell does not dedicate or that are held, shared CPUs
    of a cell that has too few, or pages or memory that are not free (unless it may overcommit them).
    """
    return _apply(usage, placement, topology, _added)


def release(
    usage: Sequence[CellUsage], placement: Placement, topology: HostTopology
) -> tuple[CellUsage, ...]:
    """The usage once ``placement`` is no longer held; raises AccountingError where it was not, in any part."""
    return _apply(usage, placement, topology, _released)


def _apply(
    usage: Sequence[CellUsage],
    placement: Placement,
    topology: HostTopology,
    change: Callable[[CellUsage, PlacedCell, HostCell], CellUsage],
) -> tuple[CellUsage, ...]:
    result = list(usage)
    at = {use.cell: index for index, use in enumerate(result)}
    hosts = {cell.id: cell for cell in topology.cells}
    for placed in placement.cells:
        if placed.cell not in hosts or placed.cell not in at:
            raise AccountingError(f"the host has no NUMA cell {placed.cell}, or its usage is not known")
        index = at[placed.cell]
        result[index] = change(result[index], placed, hosts[placed.cell])
    return tuple(result)


def _added(use: CellUsage, placed: PlacedCell, host: HostCell) -> CellUsage:
    taken = _taken(placed)
    if unknown := taken - host.dedicated:
        raise _error(host, f"does not dedicate CPUs {cpuset.render(unknown)}")
    if twice := taken & use.pinned:
        raise _error(host, f"has CPUs {cpuset.render(twice)} pinned already")
    if len(placed.shared) > len(host.shared):
        raise _error(host, f"shares {len(host.shared)} CPUs, and {len(placed.shared)} were asked for")
    _check_memory(use, placed, host)
    return _changed(use, placed, use.pinned | taken, 1)


def _check_memory(use: CellUsage, placed: PlacedCell, host: HostCell) -> None:
    """What is promised for sure must be there: pages where the claim has some, else the cell's memory.

    What is overcommitted takes nothing from that, so that the order of claims does not matter; but no claim
    overcommits against itself.
    """
    size = placed.page_size_kb
    if size is None:
        asked, total, unit = placed.memory_mb, host.memory_mb, "MB"
        left = total - use.memory_mb + use.overcommitted_mb
    else:
        pages = next((pages for pages in host.pages if pages.size_kb == size), None)
        if pages is None:
            raise _error(host, f"has no pages of {size} KiB")
        asked, total, unit = placed.pages, pages.total, f"pages of {size} KiB"
        left = total - pages.reserved - use.pages.get(size, 0)
        if size == min(pages.size_kb for pages in host.pages):
            left += use.overcommitted_mb * 1024 // size
    if asked > (total if placed.overcommit else left):
        raise _error(host, f"has {total} {unit}, of which {left} are free, and {asked} were asked for")


def _released(use: CellUsage, placed: PlacedCell, host: HostCell) -> CellUsage:
    taken = _taken(placed)
    if absent := taken - use.pinned:
        raise _error(host, f"does not have CPUs {cpuset.render(absent)} pinned")
    size = placed.page_size_kb or 0
    overcommitted = placed.memory_mb if placed.overcommit else 0
    for what, held, given in (
        ("shared vCPUs", use.shared_vcpus, len(placed.shared)),
        ("MB", use.memory_mb, placed.memory_mb),
        ("overcommitted MB", use.overcommitted_mb, overcommitted),
        (f"pages of {size} KiB", use.pages.get(size, 0), placed.pages),
    ):
        if given > held:
            raise _error(host, f"has {held} {what} in use, and {given} were to be released")
    return _changed(use, placed, use.pinned - taken, -1)


def _changed(use: CellUsage, placed: PlacedCell, pinned: frozenset[int], sign: int) -> CellUsage:
    return CellUsage(
        cell=use.cell,
        pinned=pinned,
        shared_vcpus=use.shared_vcpus + sign * len(placed.shared),
        memory_mb=use.memory_mb + sign * placed.memory_mb,
        pages=_pages(use, placed, sign),
        overcommitted_mb=use.overcommitted_mb + (sign * placed.memory_mb if placed.overcommit else 0),
    )


def _pages(use: CellUsage, placed: PlacedCell, sign: int) -> dict[int, int]:
    """Pages in use afterwards. A size of which none is used has no entry, so that release undoes add exactly."""
    if placed.page_size_kb is None or not placed.pages:
        return use.pages
    pages = dict(use.pages)
    count = pages.pop(placed.page_size_kb, 0) + sign * placed.pages
    if count:
        pages[placed.page_size_kb] = count
    return pages


def _taken(placed: PlacedCell) -> frozenset[int]:
    """The CPUs of a claim, which must not name one twice."""
    parts = (list(placed.pins.values()), placed.reserved, placed.held)
    taken = held_cpus(placed)
    if len(taken) != sum(map(len, parts)):
        cpus = sorted(cpu for part in parts for cpu in part)
        raise AccountingError(f"a claim on NUMA cell {placed.cell} names a CPU twice: {cpus}")
    return taken


def _error(host: HostCell, what: str) -> AccountingError:
    return AccountingError(f"NUMA cell {host.id} {what}")
