"""Choosing host CPUs on one host cell, under the guest's thread policy.

A core is a set of sibling threads. The rules about which demands fit are Nova's (``hw:cpu_thread_policy``); which
of the CPUs that the policy allows are taken is ours: cores that are already broken come first, so that whole free
cores survive.

- None and ``prefer``: ``n`` threads of each core, for the largest ``n`` with which the free cores suffice; else any
  free threads.
- ``require``: the same, but ``n`` is at least 2, and a host without sibling threads is refused.
- ``isolate``: one thread of each wholly free core; its siblings are held, so that nobody shares the core.

The CPU for emulator threads (``hw:emulator_threads_policy=isolate``) is one more free thread; with ``isolate`` it has
a core of its own as well.
"""

from __future__ import annotations

from typing import NamedTuple

from pinfold.model.numa_types import HostCell


class Pinned(NamedTuple):
    """Host CPUs for the vCPUs (in their order), for emulator threads, and held siblings."""

    cpus: list[int]
    reserved: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()


_Shortfall = tuple[str, int, int]


def shortfall(
    cell: HostCell, free: frozenset[int], policy: str | None, wanted: int, reserve: int
) -> _Shortfall | None:
    """What ``wanted`` vCPUs and ``reserve`` emulator CPUs lack among the ``free`` CPUs of ``cell``:
    (constraint, asked, free), or None where they fit."""
    if not wanted and (reserve or policy == "isolate"):
        return ("dedicated-vcpus", 1, 0)
    total = wanted + reserve
    if total > len(cell.dedicated):
        return ("dedicated-cpus", total, len(cell.dedicated))
    if total > len(free):
        return ("free-dedicated-cpus", total, len(free))
    if policy == "isolate":
        whole = len(whole_cores(cell, free))
        return ("whole-free-cores", total, whole) if total > whole else None
    if policy == "require":
        most = _most_with_siblings(cell, free)
        if wanted > most or not most:
            return ("sibling-threads", wanted, most)
    return None


def whole_cores(cell: HostCell, free: frozenset[int]) -> list[list[int]]:
    """The cores of which every thread is dedicated and free, smallest first, then by CPU number."""
    cores = [sorted(core) for core in cell.siblings if core and core <= free]
    alone = free.difference(*cell.siblings)
    cores.extend([cpu] for cpu in alone)
    cores.sort(key=lambda core: (len(core), core))
    return cores


def choose(cell: HostCell, free: frozenset[int], policy: str | None, wanted: int, reserve: int) -> Pinned:
    """CPUs for a demand that has no shortfall."""
    if policy == "isolate":
        return _isolate(whole_cores(cell, free), wanted, reserve)
    cores = _free_threads(cell, free)
    least = 2 if policy == "require" else 1
    groups = _groups(cores, wanted, least)
    cpus = [cpu for group in groups for cpu in group]
    if not reserve:
        return Pinned(cpus)
    return Pinned(cpus, frozenset(_take(cores, reserve)))


def _isolate(cores: list[list[int]], wanted: int, reserve: int) -> Pinned:
    cores = sorted(cores[: wanted + reserve])
    first = [core[0] for core in cores]
    held = frozenset(cpu for core in cores for cpu in core[1:])
    return Pinned(first[:wanted], frozenset(first[wanted:]), held)


def _free_threads(cell: HostCell, free: frozenset[int]) -> list[list[int]]:
    """The free threads of each core that has some, in order of CPU number."""
    cores = [sorted(core & free) for core in cell.siblings if not core.isdisjoint(free)]
    if sum(map(len, cores)) < len(free):
        cores.extend([cpu] for cpu in free.difference(*cell.siblings))
    cores.sort()
    return cores


def _most_with_siblings(cell: HostCell, free: frozenset[int]) -> int:
    """How many vCPUs `require` can place: the most over all n >= 2 of n threads of each core that has them."""
    counts = sorted((len(core & free) for core in cell.siblings), reverse=True)
    return max((n * (at + 1) for at, count in enumerate(counts) for n in (count,) if n >= 2), default=0)


def _groups(cores: list[list[int]], wanted: int, least: int) -> list[list[int]]:
    """Take ``wanted`` threads out of ``cores`` (which is changed), as groups of siblings."""
    if not wanted:
        return []
    size = _group_size(cores, wanted, least)
    if not size:
        return _scatter(cores, wanted)
    full, rest = divmod(wanted, size)
    chosen = sorted((core for core in cores if len(core) >= size), key=len)[:full]
    chosen.sort()
    groups = [_cut(core, size) for core in chosen]
    if rest:
        groups.append(_cut(_best(cores, rest, least, chosen), rest))
    return groups


def _group_size(cores: list[list[int]], wanted: int, least: int) -> int:
    """The largest n >= ``least`` with n threads on each core that has them enough for all, or 0."""
    for size in range(max(map(len, cores)), least - 1, -1):
        if size * sum(len(core) >= size for core in cores) >= wanted:
            return size
    return 0


def _best(cores: list[list[int]], wanted: int, least: int, used: list[list[int]]) -> list[int]:
    """The core with the fewest free threads that has ``wanted`` of them. Under `require` a vCPU left over
    joins siblings of its own guest, or a core on which it has a free sibling."""

    def fits(core: list[int]) -> bool:
        return len(core) >= wanted and (len(core) >= least or any(core is mine for mine in used))

    return min((core for core in cores if fits(core)), key=len)


def _scatter(cores: list[list[int]], wanted: int) -> list[list[int]]:
    """Any free threads: whole groups from the fullest cores on, the rest where it breaks least."""
    groups = []
    for core in sorted(cores, key=len, reverse=True):
        if len(core) > wanted:
            continue
        wanted -= len(core)
        groups.append(_cut(core, len(core)))
    if wanted:
        groups.append(_cut(_best(cores, wanted, 1, []), wanted))
    return groups


def _take(cores: list[list[int]], count: int) -> list[int]:
    """``count`` more threads, each from the core with the fewest left."""
    return [_cut(_best(cores, 1, 1, []), 1)[0] for _ in range(count)]


def _cut(core: list[int], count: int) -> list[int]:
    """Take the first ``count`` threads off ``core``."""
    group = core[:count]
    del core[:count]
    return group
