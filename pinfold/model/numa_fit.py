"""The one fit: a guest's NUMA cells onto a host's, as a whole, and why there is no place.

Which demands fit, and which host cells are preferred, follows Nova's ``hw:`` rules (its NUMATopologyFilter
and ``nova.virt.hardware``). A pair of a guest cell and a host cell does not depend on the other pairs, since
no two guest cells share a host cell; so the assignment is a bipartite matching
(:mod:`pinfold.model.numa_match`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pinfold.model import numa_match, numa_pack
from pinfold.model.numa_types import (
    CellUsage,
    GuestCell,
    GuestTopology,
    HostTopology,
    Limits,
    PlacedCell,
    Placement,
    Refusal,
)
from pinfold.model.numa_view import CellView, view_of

_Shortfall = tuple[str, int, int]


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
    topology's order. Guest cells choose in their order. ``limits`` bound what floating vCPUs may overcommit;
    None is no bound.
    """
    cells = guest.cells
    host = view_of(topology, usage)
    views = host.cells
    if len(cells) != len(views):
        if len(cells) > len(views):
            return None
        views = host.preferred(guest.cpu_policy == "shared", pack)
    reserve = 1 if guest.emulator_policy == "isolate" else 0
    if len(cells) == 1:
        cell = cells[0]
        for view in views:
            if _shortfall(view, cell, guest, reserve, limits) is None:
                return Placement((_place(view, cell, guest, reserve),))
        return None
    rows = _rows(views, guest, reserve, limits)
    chosen = numa_match.assign(rows)
    if chosen is None:
        return None
    if guest.cpu_policy != "shared":
        chosen = _keep_largest(views, guest, rows, chosen)
    placed = []
    for index, cell in enumerate(cells):
        placed.append(_place(views[chosen[index]], cell, guest, reserve))
        reserve = 0
    return Placement(tuple(placed))


def explain(
    topology: HostTopology,
    usage: Sequence[CellUsage],
    guest: GuestTopology,
    limits: Limits | None = None,
) -> tuple[Refusal, ...]:
    """Why the guest has no place: for each host cell the first constraint that refuses each guest cell, and
    for the host as a whole (``cell`` None) when there are too few cells, or too few at the same time. Empty
    where it fits."""
    cells = guest.cells
    if len(cells) > len(topology.cells):
        return (Refusal(None, "cells", len(cells), len(topology.cells)),)
    views = view_of(topology, usage).cells
    reserve = 1 if guest.emulator_policy == "isolate" else 0
    if len(cells) == 1:
        return _explain_one(views, guest, reserve, limits)
    rows = _rows(views, guest, reserve, limits)
    together = numa_match.largest(rows)
    if together == len(cells):
        return ()
    reasons: dict[tuple[int | None, str, int, int], Refusal] = {}
    for view in views:
        for index, cell in enumerate(cells):
            short = _shortfall(view, cell, guest, 0 if index else reserve, limits)
            if short:
                key = (view.host.id, *short)
                reasons.setdefault(key, Refusal(view.host.id, *short, guest_cell=cell.id))
    reasons[None, "cells-at-once", 0, 0] = Refusal(None, "cells-at-once", len(cells), together)
    return tuple(reasons.values())


def _explain_one(
    views: list[CellView], guest: GuestTopology, reserve: int, limits: Limits | None
) -> tuple[Refusal, ...]:
    cell, reasons = guest.cells[0], []
    for view in views:
        short = _shortfall(view, cell, guest, reserve, limits)
        if short is None:
            return ()
        reasons.append(Refusal(view.host.id, *short, guest_cell=cell.id))
    return tuple(reasons)


def _rows(views: list[CellView], guest: GuestTopology, reserve: int, limits: Limits | None) -> list[int]:
    """For each guest cell the host cells that take it, as a bitmask over ``views``. ``reserve`` emulator CPUs
    go with the first guest cell, so that it is known where they are."""
    known: dict[tuple[int, int, int, int | None, int], int] = {}
    rows = []
    for cell in guest.cells:
        shape = (len(cell.dedicated), len(cell.shared), cell.memory_mb, cell.page_size, reserve)
        row = known.get(shape)
        if row is None:
            row, bit = 0, 1
            for view in views:
                if _shortfall(view, cell, guest, reserve, limits) is None:
                    row |= bit
                bit <<= 1
            known[shape] = row
        rows.append(row)
        reserve = 0
    return rows


def _keep_largest(
    views: list[CellView], guest: GuestTopology, rows: list[int], chosen: list[int]
) -> list[int]:
    """Preference has settled which host cells are used. Which of them a guest cell gets is still open where
    they ask for unequal numbers of CPUs: so that the largest free cell survives."""
    wanted = [len(cell.dedicated) for cell in guest.cells]
    if len(set(wanted)) == 1:
        return chosen
    isolate = guest.thread_policy == "isolate"

    def left(row: int, column: int) -> int:
        view = views[column]
        return len(view.free) - wanted[row] * (view.facts.threads if isolate else 1)

    return numa_match.spare(rows, chosen, left)


def _shortfall(
    view: CellView, cell: GuestCell, guest: GuestTopology, reserve: int, limits: Limits | None
) -> _Shortfall | None:
    """The first constraint with which the host cell refuses the guest cell, or None."""
    policy = guest.cpu_policy
    if cell.page_size is not None:
        short = _page_size(view, cell.memory_mb, cell.page_size)[1]
    elif cell.memory_mb > (view.facts.loose_mb if policy == "shared" else view.strict_mb) or view.facts.odd:
        short = _ordinary_memory(view, cell.memory_mb, policy != "shared")
    else:
        short = None
    if short is None and policy != "shared":
        short = numa_pack.shortfall(view, guest.thread_policy, len(cell.dedicated), reserve)
    if short is None and policy != "dedicated":
        short = _floating(view, cell, limits)
    return short


def _ordinary_memory(view: CellView, memory_mb: int, strict: bool) -> _Shortfall | None:
    """What memory a guest cell lacks that names no page size: ``strict`` is without overcommit."""
    facts = view.facts
    most = view.strict_mb if strict else facts.loose_mb
    if memory_mb > most:
        return ("memory", memory_mb, most)
    if facts.smallest and memory_mb * 1024 % facts.smallest.size_kb:
        return ("page-multiple", memory_mb, facts.smallest.size_kb)
    return None


def _page_size(view: CellView, memory_mb: int, asked: int) -> tuple[int, _Shortfall | None]:
    """The page size that the guest cell gets on this host cell, or what it lacks (the last that was tried)."""
    short: _Shortfall = ("page-size", max(asked, 0), 0)
    memory_kb, used = memory_mb * 1024, view.use.pages
    for pages in view.facts.pages.get(asked, ()):
        size = pages.size_kb
        free = pages.total - pages.reserved - used.get(size, 0)
        if memory_kb % size:
            short = ("page-multiple", memory_mb, size)
        elif memory_kb > free * size:
            short = ("pages", memory_kb // size, free)
        else:
            return size, None
    return 0, short


def _floating(view: CellView, cell: GuestCell, limits: Limits | None) -> _Shortfall | None:
    """No guest overcommits against itself; ``limits`` bound what all of them together do."""
    host, use, wanted = view.host, view.use, len(cell.shared)
    have = len(host.shared)
    if wanted > have:
        return ("shared-cpus", wanted, have)
    if limits is None:
        return None
    most = have * limits.cpu_ratio
    if use.shared_vcpus + wanted > most:
        return ("shared-cpus-ratio", wanted, int(most) - use.shared_vcpus)
    most = host.memory_mb * limits.memory_ratio
    if use.memory_mb + cell.memory_mb > most:
        return ("memory-ratio", cell.memory_mb, int(most) - use.memory_mb)
    return None


def _place(view: CellView, cell: GuestCell, guest: GuestTopology, reserve: int) -> PlacedCell:
    """What the guest cell takes on a host cell that has no shortfall for it."""
    memory, asked = cell.memory_mb, cell.page_size
    smallest = view.facts.smallest
    if asked is not None:
        size: int | None = _page_size(view, memory, asked)[0]
    else:
        size = smallest.size_kb if smallest else None
    pages = memory * 1024 // size if size else 0
    if guest.cpu_policy == "shared":
        return PlacedCell(
            guest_cell=cell.id,
            cell=view.host.id,
            shared=cell.shared,
            pins={},
            memory_mb=memory,
            page_size_kb=size,
            pages=pages,
            overcommit=asked is None,
        )
    vcpus = sorted(cell.dedicated)
    cpus, reserved, held = numa_pack.choose(view, guest.thread_policy, len(vcpus), reserve)
    return PlacedCell(
        guest_cell=cell.id,
        cell=view.host.id,
        shared=cell.shared,
        pins=dict(zip(vcpus, cpus)),  # noqa: B905
        memory_mb=memory,
        reserved=reserved,
        held=held,
        page_size_kb=size,
        pages=pages,
    )
