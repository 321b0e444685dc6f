"""The drawings in the documentation are what the fit does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pinfold.model import numa
from pinfold.model.numa import CellUsage, GuestTopology, HostCell, Placement
from tests.model.numa_worlds import Host, cell, dedicated, host, mixed, shared, smt, split

PAGE = Path(__file__).parents[2] / "doc/source/numa.rst"


def _smt_split() -> Host:
    return host(cell(0, "1-3,9-11", "0,8", threads=2), cell(1, "4-7,12-15", threads=2))


DRAWINGS: dict[str, tuple[Host, Sequence[GuestTopology], bool]] = {
    "shared": (_smt_split(), [shared(2)], False),
    "dedicated": (smt(), [dedicated(4)], False),
    "odd": (host(cell(0, "0-3,8-11", threads=2)), [dedicated(3), dedicated(1)], False),
    "scattered": (host(cell(0, "0-3,8-11", threads=2), pinned="0-2"), [dedicated(4)], False),
    "require": (host(cell(0, "0-3,8-11", threads=2), pinned="0,1"), [dedicated(4, threads="require")], False),
    "isolate": (smt(), [dedicated(3, threads="isolate")], False),
    "emulator": (smt(), [dedicated(3, emulator="isolate")], False),
    "both isolate": (smt(), [dedicated(2, threads="isolate", emulator="isolate")], False),
    "mixed": (split(), [mixed((2, 2))], False),
    "two cells": (smt(), [dedicated(2, 2)], False),
    "unequal": (host(cell(0, "0-3"), cell(1, "4-6")), [dedicated(3, 2)], False),
    "spread": (host(cell(0, "0-3"), cell(1, "4-7")), [dedicated(2)] * 3, False),
    "pack": (host(cell(0, "0-3"), cell(1, "4-7")), [dedicated(2)] * 3, True),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_page_shows_the_host_before_and_after(name: str) -> None:
    on, guests, pack = DRAWINGS[name]
    drawing = draw(on, guests, pack)
    page = "\n".join(line.strip() for line in PAGE.read_text().splitlines())
    assert drawing in page, f"doc/source/numa.rst should have, for {name}:\n\n{drawing}"


def draw(on: Host, guests: Sequence[GuestTopology], pack: bool) -> str:
    """A line for each cell, a bracket for each core, a sign for each thread."""
    topology, usage = on
    placed: list[Placement] = []
    before = usage
    for guest in guests:
        placement = numa.fit(topology, usage, guest, pack=pack)
        assert placement
        usage = numa.add(usage, placement, topology)
        placed.append(placement)
    lines = []
    for at, one in enumerate(topology.cells):
        old, new = _cores(one, before[at], []), _cores(one, before[at], placed)
        lines.append(f"cell {one.id}   {old}   ->   {new}")
    return "\n".join(lines)


def _cores(on: HostCell, use: CellUsage, placed: Sequence[Placement]) -> str:
    signs = dict.fromkeys(on.shared, "~") | dict.fromkeys(on.dedicated, ".")
    signs |= dict.fromkeys(use.pinned, "#")
    for number, placement in enumerate(placed, start=1):
        for one in placement.cells:
            if one.cell == on.id:
                signs |= {cpu: str(number) for cpu in one.pins.values()}
                signs |= dict.fromkeys(one.reserved, "e") | dict.fromkeys(one.held, "x")
    cores = sorted(sorted(core) for core in on.siblings)
    return " ".join("[" + " ".join(signs[cpu] for cpu in core) + "]" for core in cores)
