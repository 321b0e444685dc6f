"""Named machines, and random small ones for properties."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from pinfold.model import cpuset
from pinfold.model.numa import (
    ANY,
    LARGE,
    SMALL,
    CellUsage,
    GuestCell,
    GuestTopology,
    HostCell,
    HostPages,
    HostTopology,
    Limits,
    Placement,
)

Host = tuple[HostTopology, tuple[CellUsage, ...]]

SMALL_KB, LARGE_KB, HUGE_KB = 4, 2048, 1048576


def cell(
    id_: int,
    dedicated: str = "",
    shared: str = "",
    *,
    threads: int = 1,
    memory_mb: int = 8192,
    pages: Iterable[HostPages] | None = None,
) -> HostCell:
    """A host cell whose memory is in small pages unless ``pages`` are given; with ``threads`` 2 the first half of
    its CPUs are the siblings of the second half, and so on."""
    cpus = sorted(cpuset.parse(dedicated) | cpuset.parse(shared))
    cores = len(cpus) // threads
    return HostCell(
        id=id_,
        shared=cpuset.parse(shared),
        dedicated=cpuset.parse(dedicated),
        siblings=tuple(frozenset(cpus[core::cores]) for core in range(cores)),
        memory_mb=memory_mb,
        pages=(HostPages(SMALL_KB, memory_mb * 256),) if pages is None else tuple(pages),
    )


def host(*cells: HostCell, pinned: str = "") -> Host:
    """A host with nothing in use but the ``pinned`` CPUs."""
    taken = cpuset.parse(pinned)
    usage = (CellUsage(cell.id, pinned=taken & cell.dedicated) for cell in cells)
    return HostTopology(cells), tuple(usage)


def no_smt() -> Host:
    return host(cell(0, "0-3"), cell(1, "4-7"))


def smt() -> Host:
    return host(
        cell(0, "0-3,8-11", threads=2, memory_mb=16384), cell(1, "4-7,12-15", threads=2, memory_mb=16384)
    )


def split() -> Host:
    return host(cell(0, "2-5", "0-1"), cell(1, "8-11", "6-7"))


def shared_only() -> Host:
    return host(cell(0, "", "0-3"), cell(1, "", "4-7"))


def dedicated(
    *vcpus: int,
    memory_mb: int = 1024,
    threads: str | None = None,
    emulator: str | None = None,
    page_size: int | None = None,
) -> GuestTopology:
    """A guest with a cell for each number of dedicated vCPUs, and ``memory_mb`` in each cell."""
    cells, first = [], 0
    for index, count in enumerate(vcpus):
        cpus = frozenset(range(first, first + count))
        cells.append(GuestCell(index, frozenset(), cpus, memory_mb, page_size))
        first += count
    return GuestTopology(tuple(cells), "dedicated", threads, emulator)


def shared(*vcpus: int, memory_mb: int = 1024, page_size: int | None = None) -> GuestTopology:
    """A guest with a cell for each number of floating vCPUs."""
    pinned = dedicated(*vcpus, memory_mb=memory_mb, page_size=page_size)
    cells = (GuestCell(c.id, c.dedicated, frozenset(), c.memory_mb, c.page_size) for c in pinned.cells)
    return GuestTopology(tuple(cells))


def mixed(
    *cells: tuple[int, int], memory_mb: int = 512, threads: str | None = None, emulator: str | None = None
) -> GuestTopology:
    """A guest with a cell for each pair (floating vCPUs, dedicated vCPUs)."""
    made, first = [], 0
    for index, (floating, pinned) in enumerate(cells):
        vcpus = list(range(first, first + floating + pinned))
        made.append(GuestCell(index, frozenset(vcpus[:floating]), frozenset(vcpus[floating:]), memory_mb))
        first += floating + pinned
    return GuestTopology(tuple(made), "mixed", threads, emulator)


def pins(placement: Placement | None) -> list[tuple[int, dict[int, int]]]:
    """For each guest cell the host cell and the pins."""
    assert placement is not None
    return [(placed.cell, placed.pins) for placed in placement.cells]


# Random worlds. Small enough that trying everything is cheap.

_PAGE_TABLES = [
    [],
    [(SMALL_KB, 1 << 18)],
    [(SMALL_KB, 1 << 18)],
    [(SMALL_KB, 1 << 17), (LARGE_KB, 256)],
    [(LARGE_KB, 512)],
    [(SMALL_KB, 0), (LARGE_KB, 256), (HUGE_KB, 1)],
    [(64, 8192), (524288, 1)],
]


@st.composite
def host_cells(draw: st.DrawFn, id_: int, first_cpu: int) -> tuple[HostCell, CellUsage]:
    threads = draw(st.sampled_from([1, 2, 2, 4]))
    count = threads * draw(st.integers(0, 8 // threads))
    cpus = range(first_cpu, first_cpu + count)
    mix = draw(st.sampled_from(["d", "ds", "dddsx"]))
    kinds = draw(st.lists(st.sampled_from(mix), min_size=count, max_size=count))
    by_kind = {kind: frozenset(c for c, k in zip(cpus, kinds, strict=True) if k == kind) for kind in "dsx"}
    if draw(st.integers(0, 5)) == 0:
        # A host of the old kind: the same CPUs are for pinning and for sharing.
        by_kind["d"] = by_kind["s"] = by_kind["d"] | by_kind["s"]
    usable = by_kind["d"] | by_kind["s"]
    cores = (frozenset(cpus[at : at + threads]) for at in range(0, count, threads))
    table = draw(st.sampled_from(_PAGE_TABLES))
    pages = tuple(
        HostPages(size, total, draw(st.integers(0, total // 4) if total else st.just(0)))
        for size, total in table
    )
    memory_mb = sum(size * total for size, total in table) // 1024 or draw(st.sampled_from([0, 1024, 2048]))
    made = HostCell(
        id=id_,
        shared=by_kind["s"],
        dedicated=by_kind["d"],
        siblings=tuple(core & usable for core in cores if core & usable),
        memory_mb=memory_mb,
        pages=pages,
        socket=draw(st.none() | st.integers(0, 1)),
    )
    use = CellUsage(
        cell=id_,
        pinned=frozenset(cpu for cpu in sorted(by_kind["d"]) if draw(st.integers(0, 5)) == 0),
        shared_vcpus=draw(st.integers(0, 4)),
        memory_mb=draw(st.integers(0, memory_mb // 2)),
        pages={p.size_kb: used for p in pages if (used := draw(st.integers(0, (p.total - p.reserved) // 2)))},
    )
    return made, use


@st.composite
def hosts(draw: st.DrawFn) -> Host:
    cells = [draw(host_cells(id_, id_ * 10)) for id_ in range(draw(st.integers(1, 4)))]
    return HostTopology(tuple(made for made, _ in cells)), tuple(use for _, use in cells)


@st.composite
def guests(draw: st.DrawFn) -> GuestTopology:
    policy = draw(st.sampled_from(["dedicated", "dedicated", "mixed", "shared"]))
    page_size = draw(
        st.sampled_from(
            [None, None, None, None, None, None, ANY, SMALL, LARGE, ANY, LARGE_KB, SMALL_KB, HUGE_KB]
        )
    )
    cells, first = [], 0
    for index in range(draw(st.sampled_from([1, 1, 2, 2, 3]))):
        vcpus = list(range(first, first + draw(st.integers(0 if index else 1, 3))))
        floating = {"dedicated": 0, "shared": len(vcpus)}.get(policy)
        if floating is None:
            floating = draw(st.integers(0, len(vcpus)))
        memory_mb = draw(st.sampled_from([64, 64, 64, 128, 256, 512, 63]))
        cells.append(
            GuestCell(index, frozenset(vcpus[:floating]), frozenset(vcpus[floating:]), memory_mb, page_size)
        )
        first += len(vcpus)
    pinned = policy != "shared"
    return GuestTopology(
        cells=tuple(cells),
        cpu_policy=policy,
        thread_policy=draw(st.sampled_from([None, "prefer", "require", "isolate"])) if pinned else None,
        emulator_policy=draw(st.sampled_from([None, None, "share", "isolate"])) if pinned else None,
    )


def limits() -> st.SearchStrategy[Limits | None]:
    ratios = st.sampled_from([0.5, 1.0, 4.0, 16.0])
    return st.none() | st.builds(Limits, cpu_ratio=ratios, memory_ratio=ratios)
