"""The recorded lines: hosts, requests, and what Nova answered."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pinfold.model.numa import (
    CellUsage,
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
    Limits,
    PlacedCell,
    Placement,
)
from pinfold.model.numa_lines import host_of

Line = Mapping[str, Any]

DATA = Path(__file__).parent / "data"


@cache
def lines(name: str) -> tuple[Line, ...]:
    """All lines of ``random``, ``nova_is_wrong``, ``found`` or ``vectors``."""
    with gzip.open(DATA / f"numa_{name}.jsonl.gz", "rt") as stream:
        return tuple(map(json.loads, stream))


def fits(name: str) -> Iterator[Line]:
    """The lines of a file that got as far as a host."""
    return (line for line in lines(name) if not line["error"] and line.get("request"))


def code_of(error: str) -> str:
    """Pinfold's code for an exception of Nova: the same words in kebab-case."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", error.replace("CPUs", "Cpus"))
    return words.lower()


def host(line: Line) -> tuple[HostTopology, tuple[CellUsage, ...]]:
    return host_of(line["host"])


def limits(line: Line) -> Limits | None:
    ratios = line["limits"]
    return ratios and Limits(ratios["cpu_allocation_ratio"], ratios["ram_allocation_ratio"])


def guest(line: Line) -> GuestTopology:
    """The request as Nova had it, once constraints were applied."""
    cells = line["request"]["cells"]
    return GuestTopology(
        cells=tuple(
            GuestCell(
                id=index,
                shared=frozenset(cell["cpuset"]),
                dedicated=frozenset(cell["pcpuset"]),
                memory_mb=cell["memory"],
                page_size=cell["pagesize"] or None,
            )
            for index, cell in enumerate(cells)
        ),
        cpu_policy=cells[0]["cpu_policy"] or "shared",
        thread_policy=cells[0]["cpu_thread_policy"],
        emulator_policy=line["request"]["emulator_threads_policy"],
    )


def nova_placement(line: Line) -> Placement:
    """Nova's answer to a line as a placement."""
    ordinary = guest(line).cells[0].page_size is None
    return placement_of(host(line)[0], line["result"], ordinary=ordinary)


def placement_of(topology: HostTopology, answer: Line, *, ordinary: bool) -> Placement:
    """A placed guest of Nova's; what its accounting holds beside the pins is held. ``ordinary`` is for memory
    that no page size was asked for, which floating guests may overcommit."""
    hosts = {cell.id: cell for cell in topology.cells}
    cells = enumerate(answer["cells"])
    return Placement(tuple(_placed(index, cell, hosts.get(cell["id"]), ordinary) for index, cell in cells))


def _placed(index: int, cell: Line, on: HostCell | None, ordinary: bool) -> PlacedCell:
    reserved = frozenset(cell["cpuset_reserved"] or ())
    pins = {int(vcpu): cpu for vcpu, cpu in (cell["cpu_pinning"] or {}).items()}
    touched = reserved | frozenset(pins.values())
    held: frozenset[int] = frozenset()
    if on and cell["cpu_thread_policy"] == "isolate":
        held = held.union(*(core for core in on.siblings if core & touched)) - touched
    size = cell["pagesize"] or None
    if size is None and on and on.pages:
        size = min(pages.size_kb for pages in on.pages)
    return PlacedCell(
        guest_cell=index,
        cell=cell["id"],
        shared=frozenset(cell["cpuset"]),
        pins=pins,
        memory_mb=cell["memory"],
        reserved=reserved,
        held=held,
        page_size_kb=size,
        pages=cell["memory"] * 1024 // size if size else 0,
        overcommit=ordinary and (cell["cpu_policy"] or "shared") == "shared",
    )
