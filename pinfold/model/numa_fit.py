"""The one fit: a guest's NUMA cells onto a host's, as a whole, and why there is no place.

Which demands fit, and which host cells are preferred, follows Nova's ``hw:`` rules (its NUMATopologyFilter and
``nova.virt.hardware``). A pair of a guest cell and a host cell does not depend on the other pairs, since no two
guest cells share a host cell; so the assignment is a bipartite matching (:mod:`pinfold.model.numa_match`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pinfold.model import numa_match, numa_pack
from pinfold.model.numa_types import (
    ANY,
    LARGE,
    SMALL,
    CellUsage,
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
    Limits,
    PlacedCell,
    Placement,
    Refusal,
)

_Shortfall = tuple[str, int, int]


class _Spot:
    """A host cell with its usage, and what follows from the two."""

    __slots__ = ("free", "host", "use")

    def __init__(self, host: HostCell, use: CellUsage) -> None:
        self.host = host
        self.use = use
        self.free = host.dedicated - use.pinned


def fit(
    topology: HostTopology,
    usage: Sequence[CellUsage],
    guest: GuestTopology,
    limits: Limits | None = None,
    *,
    pack: bool = False,
) -> Placement | None:
    """The best place for ``guest`` on a host with that usage, or None.

    With more host cells than guest cells, the emptiest are preferred (spread), or the fullest with ``pack``:
    first by free dedicated CPUs (for a shared guest: shared vCPUs in use), then by free memory, then in the
    topology's order. Guest cells choose in their order. ``limits`` bound what floating vCPUs may overcommit; None
    is no bound.
    """
    cells = guest.cells
    if len(cells) > len(topology.cells):
        return None
    spots = _spots(topology, usage)
    if len(spots) > len(cells):
        spots.sort(key=_fullness(guest), reverse=not pack)
    chosen = numa_match.assign(_rows(spots, guest, limits))
    if chosen is None:
        return None
    return Placement(
        tuple(
            _place(spots[column], cell, guest, _reserve(guest, index))
            for index, (cell, column) in enumerate(zip(cells, chosen, strict=True))
        )
    )


def explain(
    topology: HostTopology,
    usage: Sequence[CellUsage],
    guest: GuestTopology,
    limits: Limits | None = None,
) -> tuple[Refusal, ...]:
    """Why the guest has no place: for each host cell the first constraint that refuses each guest cell, and for
    the host as a whole (``cell`` None) when there are too few cells, or too few at the same time. Empty where
    it fits."""
    cells = guest.cells
    if len(cells) > len(topology.cells):
        return (Refusal(None, "cells", len(cells), len(topology.cells)),)
    spots = _spots(topology, usage)
    rows = _rows(spots, guest, limits)
    together = numa_match.largest(rows)
    if together == len(cells):
        return ()
    reasons: dict[tuple[int | None, str, int, int], Refusal] = {}
    for spot in spots:
        for index, cell in enumerate(cells):
            short = _shortfall(spot, cell, guest, _reserve(guest, index), limits)
            if short:
                key = (spot.host.id, *short)
                reasons.setdefault(key, Refusal(spot.host.id, *short, guest_cell=cell.id))
    if len(cells) > 1:
        reasons[None, "cells-at-once", 0, 0] = Refusal(None, "cells-at-once", len(cells), together)
    return tuple(reasons.values())


def _spots(topology: HostTopology, usage: Sequence[CellUsage]) -> list[_Spot]:
    """Host cells with their usage; a cell that ``usage`` does not name is empty."""
    by_cell = {use.cell: use for use in usage}
    return [_Spot(host, by_cell.get(host.id) or CellUsage(host.id)) for host in topology.cells]


def _fullness(guest: GuestTopology) -> Callable[[_Spot], tuple[int, int]]:
    if guest.cpu_policy == "shared":
        return lambda spot: (-spot.use.shared_vcpus, spot.host.memory_mb - spot.use.memory_mb)
    return lambda spot: (len(spot.free), spot.host.memory_mb - spot.use.memory_mb)


def _rows(spots: list[_Spot], guest: GuestTopology, limits: Limits | None) -> list[int]:
    """For each guest cell the host cells that take it, as a bitmask over ``spots``."""
    known: dict[tuple[int, int, int, int | None, int], int] = {}
    rows = []
    for index, cell in enumerate(guest.cells):
        reserve = _reserve(guest, index)
        shape = (len(cell.dedicated), len(cell.shared), cell.memory_mb, cell.page_size, reserve)
        row = known.get(shape)
        if row is None:
            row = 0
            for column, spot in enumerate(spots):
                if _shortfall(spot, cell, guest, reserve, limits) is None:
                    row |= 1 << column
            known[shape] = row
        rows.append(row)
    return rows


def _reserve(guest: GuestTopology, index: int) -> int:
    """CPUs for emulator threads: one, on the first guest cell (so that it is known where)."""
    return int(index == 0 and guest.emulator_policy == "isolate")


def _shortfall(
    spot: _Spot, cell: GuestCell, guest: GuestTopology, reserve: int, limits: Limits | None
) -> _Shortfall | None:
    """The first constraint with which the host cell refuses the guest cell, or None."""
    pinned = guest.cpu_policy != "shared"
    short = _memory(spot, cell, pinned)[1]
    if short:
        return short
    if pinned:
        short = numa_pack.shortfall(spot.host, spot.free, guest.thread_policy, len(cell.dedicated), reserve)
        if short:
            return short
    if guest.cpu_policy == "dedicated":
        return None
    return _floating(spot, cell, limits)


def _floating(spot: _Spot, cell: GuestCell, limits: Limits | None) -> _Shortfall | None:
    """No guest overcommits against itself; ``limits`` bound what all of them together do."""
    host, use, wanted = spot.host, spot.use, len(cell.shared)
    if wanted > len(host.shared):
        return ("shared-cpus", wanted, len(host.shared))
    if limits is None:
        return None
    most = len(host.shared) * limits.cpu_ratio
    if use.shared_vcpus + wanted > most:
        return ("shared-cpus-ratio", wanted, int(most) - use.shared_vcpus)
    most = host.memory_mb * limits.memory_ratio
    if use.memory_mb + cell.memory_mb > most:
        return ("memory-ratio", cell.memory_mb, int(most) - use.memory_mb)
    return None


def _memory(spot: _Spot, cell: GuestCell, pinned: bool) -> tuple[int | None, _Shortfall | None]:
    """The page size that the guest cell gets on this host cell (None: the cell has no page table), and
    what it lacks."""
    host, use = spot.host, spot.use
    if not host.pages:
        if cell.page_size is not None:
            return None, ("page-size", cell.page_size, 0)
        free = host.memory_mb - use.memory_mb if pinned else host.memory_mb
        return None, ("memory", cell.memory_mb, free) if cell.memory_mb > free else None
    if cell.page_size is None:
        size = min(pages.size_kb for pages in host.pages)
        return size, _pages(spot, cell, size, whole=not pinned)
    short: _Shortfall | None = ("page-size", cell.page_size, 0)
    for size in _sizes(host, cell.page_size):
        short = _pages(spot, cell, size)
        if short is None:
            return size, None
    return None, short


def _sizes(host: HostCell, asked: int) -> list[int]:
    """The page sizes that the request allows, in order of preference: the largest first."""
    sizes = sorted((pages.size_kb for pages in host.pages), reverse=True)
    if asked == SMALL:
        return sizes[-1:]
    if asked == LARGE:
        return sizes[:-1]
    return sizes if asked == ANY else [size for size in sizes if size == asked]


def _pages(spot: _Spot, cell: GuestCell, size: int, whole: bool = False) -> _Shortfall | None:
    """Whether the memory is so many whole pages, of the free ones or (``whole``) of all that there are."""
    count, rest = divmod(cell.memory_mb * 1024, size)
    if rest:
        return ("page-multiple", cell.memory_mb, size)
    for pages in spot.host.pages:
        if pages.size_kb == size:
            free = pages.total
            if not whole:
                free -= pages.reserved + spot.use.pages.get(size, 0)
            return ("pages", count, free) if count > free else None
    return ("page-size", size, 0)


def _place(spot: _Spot, cell: GuestCell, guest: GuestTopology, reserve: int) -> PlacedCell:
    pinned = guest.cpu_policy != "shared"
    vcpus = sorted(cell.dedicated)
    size = _memory(spot, cell, pinned)[0]
    cpus = numa_pack.choose(spot.host, spot.free, guest.thread_policy, len(vcpus), reserve)
    return PlacedCell(
        guest_cell=cell.id,
        cell=spot.host.id,
        shared=cell.shared,
        pins=dict(zip(vcpus, cpus.cpus, strict=True)),
        memory_mb=cell.memory_mb,
        reserved=cpus.reserved,
        held=cpus.held,
        page_size_kb=size,
        pages=cell.memory_mb * 1024 // size if size else 0,
        overcommit=not pinned and cell.page_size is None,
    )
