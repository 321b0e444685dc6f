"""What makes a placement valid, as equations; and a search over everything for small hosts.

Written without a look at the product: it shares only the value types with it. ``broken`` names the equations that
a placement does not satisfy; ``possible`` tries all assignments and all sets of CPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

from pinfold.model.numa import (
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
)

Host = tuple[HostTopology, Sequence[CellUsage]]


def broken(host: Host, guest: GuestTopology, limits: Limits | None, placement: Placement) -> list[str]:
    """The names of the equations that do not hold; none for a valid placement."""
    topology, usage = host
    hosts = {cell.id: cell for cell in topology.cells}
    used = {use.cell: use for use in usage}
    chosen = [placed.cell for placed in placement.cells]
    whole = {
        "as many cells as the guest": len(placement.cells) == len(guest.cells),
        "each guest cell on a host cell of its own": len(set(chosen)) == len(chosen),
        "host cells exist": set(chosen) <= set(hosts),
        "cells in order of the guest": [placed.guest_cell for placed in placement.cells]
        == [cell.id for cell in guest.cells],
    }
    names = [name for name, holds in whole.items() if not holds]
    if names:
        return names
    for index, (cell, placed) in enumerate(zip(guest.cells, placement.cells, strict=True)):
        reserve = int(index == 0 and guest.emulator_policy == "isolate")
        one = _Cell(hosts[placed.cell], used[placed.cell], guest, cell, placed, reserve, limits)
        names += [f"guest cell {cell.id}: {name}" for name, holds in one.equations() if not holds]
    return names


class _Cell:
    """The equations of one guest cell on one host cell."""

    def __init__(
        self,
        host: HostCell,
        use: CellUsage,
        guest: GuestTopology,
        cell: GuestCell,
        placed: PlacedCell,
        reserve: int,
        limits: Limits | None,
    ) -> None:
        self.host, self.use, self.guest, self.cell, self.placed = host, use, guest, cell, placed
        self.reserve, self.limits = reserve, limits
        self.pins = set(placed.pins.values())
        self.free = host.dedicated - use.pinned

    def equations(self) -> Iterator[tuple[str, bool]]:
        yield from self.cpus()
        yield from self.threads()
        yield from self.memory()
        yield from self.floating()

    def cpus(self) -> Iterator[tuple[str, bool]]:
        placed, taken = self.placed, self.pins | self.placed.reserved | self.placed.held
        yield "exactly the dedicated vCPUs are pinned", set(placed.pins) == self.cell.dedicated
        yield "exactly the shared vCPUs float", placed.shared == self.cell.shared
        yield "as many emulator CPUs as asked", len(placed.reserved) == self.reserve
        yield (
            "no CPU is taken twice",
            len(taken) == len(placed.pins) + len(placed.reserved) + len(placed.held),
        )
        yield "only free dedicated CPUs are taken", taken <= self.free

    def threads(self) -> Iterator[tuple[str, bool]]:
        touched = self.pins | self.placed.reserved
        if self.guest.thread_policy == "isolate":
            cores = [core for core in cores_of(self.host) if core & touched]
            whole = set().union(*cores)
            yield "isolate: one CPU of the guest on a core", len(cores) == len(touched)
            yield "isolate: all threads of its cores are held", self.placed.held == whole - touched
            return
        yield "nothing is held without isolate", not self.placed.held
        if self.guest.thread_policy == "require" and self.pins:
            counts = Counter(len(core & self.pins) for core in cores_of(self.host))
            alone = {core for core in cores_of(self.host) if len(core & self.pins) == 1}
            yield "require: at most one vCPU without a sibling", counts[1] <= 1
            yield "require: it has a free thread beside it", all(len(core & self.free) > 1 for core in alone)

    def memory(self) -> Iterator[tuple[str, bool]]:
        size, pages = self.placed.page_size_kb, self.placed.pages
        table = {entry.size_kb: entry for entry in self.host.pages}
        strict = self.guest.cpu_policy != "shared" or self.cell.page_size is not None
        yield "the memory asked for", self.placed.memory_mb == self.cell.memory_mb
        yield "overcommit only where it is allowed", self.placed.overcommit == (not strict)
        if not table:
            used = self.use.memory_mb if strict else 0
            yield "no pages without a page table", (size, pages, self.cell.page_size) == (None, 0, None)
            yield "memory that is there", self.cell.memory_mb <= self.host.memory_mb - used
            return
        yield "a page size of the host cell", size in table
        if size not in table:
            return
        free = table[size].total - (table[size].reserved + self.use.pages.get(size, 0) if strict else 0)
        yield "pages are exactly the memory", pages * size == self.cell.memory_mb * 1024
        yield "pages that are there", pages <= free
        yield "the largest size that the request allows and that has room", size == self.best_size()

    def best_size(self) -> int | None:
        """The right page size: the smallest where nothing is asked, else the largest allowed one with room."""
        sizes = sorted((entry.size_kb for entry in self.host.pages), reverse=True)
        asked = self.cell.page_size
        if asked is None:
            return min(sizes)
        allowed = {SMALL: sizes[-1:], LARGE: sizes[:-1], ANY: sizes}.get(asked, [asked])
        return next((size for size in allowed if self.has_room(size)), None)

    def has_room(self, size: int) -> bool:
        entry = next((entry for entry in self.host.pages if entry.size_kb == size), None)
        if entry is None or self.cell.memory_mb * 1024 % size:
            return False
        free = entry.total - entry.reserved - self.use.pages.get(size, 0)
        return self.cell.memory_mb * 1024 <= free * size

    def floating(self) -> Iterator[tuple[str, bool]]:
        if self.guest.cpu_policy == "dedicated":
            return
        vcpus, have = len(self.cell.shared), len(self.host.shared)
        yield "no more floating vCPUs than shared CPUs", vcpus <= have
        if self.limits:
            cpus = self.use.shared_vcpus + vcpus
            memory = self.use.memory_mb + self.cell.memory_mb
            yield "shared vCPUs within the ratio", cpus <= have * self.limits.cpu_ratio
            yield "memory within the ratio", memory <= self.host.memory_mb * self.limits.memory_ratio


def cores_of(host: HostCell) -> list[frozenset[int]]:
    """The cores of a host cell; CPUs that no core names are cores of one thread."""
    named = frozenset().union(*host.siblings)
    return [*host.siblings, *(frozenset({cpu}) for cpu in host.dedicated - named)]


def possible(host: Host, guest: GuestTopology, limits: Limits | None) -> bool:
    """Whether any assignment with any CPUs fits, by trying them all."""
    topology, usage = host
    used = {use.cell: use for use in usage}
    fits = [
        [
            _fits(
                cell, used[cell.id], guest, asked, index == 0 and guest.emulator_policy == "isolate", limits
            )
            for cell in topology.cells
        ]
        for index, asked in enumerate(guest.cells)
    ]
    return any(
        all(fits[row][column] for row, column in enumerate(columns))
        for columns in permutations(range(len(topology.cells)), len(guest.cells))
    )


def _fits(
    host: HostCell,
    use: CellUsage,
    guest: GuestTopology,
    cell: GuestCell,
    reserve: bool,
    limits: Limits | None,
) -> bool:
    placed = PlacedCell(cell.id, host.id, cell.shared, {}, cell.memory_mb)
    one = _Cell(host, use, guest, cell, placed, int(reserve), limits)
    if not all(holds for _, holds in one.floating()) or not _memory_fits(one):
        return False
    return guest.cpu_policy == "shared" or any(_policy_allows(one, taken) for taken in _choices(one))


def _memory_fits(one: _Cell) -> bool:
    strict = one.guest.cpu_policy != "shared"
    if one.cell.page_size is not None:
        return bool(one.host.pages) and one.best_size() is not None
    if not one.host.pages:
        return one.cell.memory_mb <= one.host.memory_mb - (one.use.memory_mb if strict else 0)
    size = min(entry.size_kb for entry in one.host.pages)
    total = sum(entry.total for entry in one.host.pages if entry.size_kb == size)
    return one.has_room(size) if strict else one.cell.memory_mb * 1024 in range(0, total * size + 1, size)


def _choices(one: _Cell) -> Iterator[tuple[set[int], set[int]]]:
    """All ways to take CPUs for the pins, and for the emulator threads."""
    for pins in combinations(sorted(one.free), len(one.cell.dedicated)):
        for reserved in combinations(sorted(one.free - set(pins)), one.reserve):
            yield set(pins), set(reserved)


def _policy_allows(one: _Cell, taken: tuple[set[int], set[int]]) -> bool:
    """The thread policies as Nova has them: `require` fills cores with n threads each (n >= 2), the last one
    perhaps with fewer; and neither `isolate` nor an emulator CPU goes without a pinned vCPU."""
    pins, reserved = taken
    policy = one.guest.thread_policy
    if not pins and (reserved or policy == "isolate"):
        return False
    if policy == "isolate":
        touched = pins | reserved
        cores = [core for core in cores_of(one.host) if core & touched]
        return len(cores) == len(touched) and all(core <= one.free for core in cores)
    if policy == "require":
        return any(
            _grouped(one, pins, size) for size in range(2, max(map(len, cores_of(one.host)), default=1) + 1)
        )
    return True


def _grouped(one: _Cell, pins: set[int], size: int) -> bool:
    able = [core for core in cores_of(one.host) if len(core & one.free) >= size]
    counts = [len(core & pins) for core in able if core & pins]
    partial = [count for count in counts if count != size]
    return bool(able) and sum(counts) == len(pins) and len(partial) <= 1 and all(n < size for n in partial)
