"""A rebuild whose new image asks for something else: what is held while nobody can say which guest is there.

The new place is planned as if the server's own were free, because its guest goes. Until the new guest is there the
claim holds both places, each part that they share once: whichever guest runs, it runs on what is its own, and both a
failure and a success can be written without asking whether something is still free.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pinfold.model.numa import PlacedCell, Placement, held_cpus
from pinfold.model.request import Demand

BOTH = -1
"""Stands for the guest's cell in those cells of a placement that only hold what another place needs."""


class Sizes(msgspec.Struct, frozen=True):
    """What a claim holds."""

    memory_mb: int
    disk_gb: int
    shared_vcpus: int
    placement: Placement | None = None


class Rebuild(msgspec.Struct, frozen=True):
    """What a rebuild is about.

    ``fields`` are columns of the server to set with the image. ``refit``: it needs a new place on its node; then
    ``before`` is what its claim held and ``after`` what it will hold, once that is planned. ``begun``: the old disk
    may be gone, and the server is what the new image makes of it.
    """

    image: str
    image_properties: dict[str, str]
    demand: Demand
    fields: dict[str, Any] = {}
    refit: bool = False
    before: Sizes | None = None
    after: Sizes | None = None
    begun: bool = False


def holds_both(placement: Placement | None) -> bool:
    """Whether a placement holds more than its guest is placed on: a rebuild has failed in the middle."""
    return placement is not None and any(cell.guest_cell == BOTH for cell in placement.cells)


def both(before: Sizes, after: Sizes) -> Sizes:
    """What holds both places."""
    return Sizes(
        memory_mb=max(before.memory_mb, after.memory_mb),
        disk_gb=max(before.disk_gb, after.disk_gb),
        shared_vcpus=max(before.shared_vcpus, after.shared_vcpus),
        placement=_both(before.placement, after.placement),
    )


def _both(before: Placement | None, after: Placement | None) -> Placement | None:
    if before is None:
        return after
    cells = after.cells if after is not None else ()
    held = frozenset().union(*(held_cpus(cell) for cell in cells)) if cells else frozenset()
    extra = [_rest(cell, cells, held) for cell in _merged(before)]
    return Placement((*cells, *(cell for cell in extra if cell is not None)))


def _key(cell: PlacedCell) -> tuple[int, int | None, bool]:
    return cell.cell, cell.page_size_kb, cell.overcommit


def _merged(placement: Placement) -> list[PlacedCell]:
    """What a placement holds, one entry for each host cell and kind of memory."""
    merged: dict[tuple[int, int | None, bool], PlacedCell] = {}
    for cell in placement.cells:
        known = merged.get(_key(cell))
        merged[_key(cell)] = PlacedCell(
            guest_cell=BOTH,
            cell=cell.cell,
            shared=frozenset(range(len(cell.shared) + (len(known.shared) if known else 0))),
            pins={},
            memory_mb=cell.memory_mb + (known.memory_mb if known else 0),
            held=held_cpus(cell) | (known.held if known else frozenset()),
            page_size_kb=cell.page_size_kb,
            pages=cell.pages + (known.pages if known else 0),
            overcommit=cell.overcommit,
        )
    return list(merged.values())


def _rest(cell: PlacedCell, cells: tuple[PlacedCell, ...], held: frozenset[int]) -> PlacedCell | None:
    """What ``cell`` holds beyond ``cells``, or None."""
    same = [other for other in cells if _key(other) == _key(cell)]
    rest = msgspec.structs.replace(
        cell,
        held=cell.held - held,
        shared=frozenset(range(max(0, len(cell.shared) - sum(len(other.shared) for other in same)))),
        memory_mb=max(0, cell.memory_mb - sum(other.memory_mb for other in same)),
        pages=max(0, cell.pages - sum(other.pages for other in same)),
    )
    return rest if rest.held or rest.shared or rest.memory_mb or rest.pages else None
