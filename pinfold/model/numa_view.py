"""A host with its usage, as the fit looks at it.

``HostFacts`` is what follows from a host cell alone, ``CellView`` what follows from the cell and its usage.
Both are worked out once and kept with the (frozen) topology, since one host is asked about many guests
between two changes of its usage. Nothing here can be seen from outside but by its speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter

from pinfold.model.numa_types import ANY, LARGE, SMALL, CellUsage, HostCell, HostPages, HostTopology

Core = tuple[int, ...]


class HostFacts:
    """What follows from a host cell alone: its smallest pages, and all of its memory that a guest cell may have
    that names no page size. The rest is worked out when it is first asked for."""

    __slots__ = ("_cores", "_dedicated", "_pages", "_siblings", "_table", "loose_mb", "odd", "smallest")

    def __init__(self, host: HostCell) -> None:
        self._siblings = host.siblings
        self._dedicated = host.dedicated
        self._table = host.pages
        self._cores: list[tuple[frozenset[int], Core]] | None = None
        self._pages: dict[int, tuple[HostPages, ...]] | None = None
        self.loose_mb = host.memory_mb
        self.smallest = min(host.pages, key=_size_kb) if host.pages else None
        # Whether some number of MB is not a number of whole pages of the smallest size.
        self.odd = False
        if self.smallest is not None:
            self.loose_mb = self.smallest.total * self.smallest.size_kb // 1024
            self.odd = 1024 % self.smallest.size_kb != 0

    @property
    def cores(self) -> list[tuple[frozenset[int], Core]]:
        """The cores, and their threads in order. CPUs that no core names are cores of one thread."""
        if self._cores is None:
            cores = [(core, tuple(sorted(core))) for core in self._siblings if core]
            cores += [(frozenset((cpu,)), (cpu,)) for cpu in self._dedicated.difference(*self._siblings)]
            self._cores = sorted(cores, key=itemgetter(1))
        return self._cores

    @property
    def threads(self) -> int:
        """Threads of the largest core: above 1 where the cell has siblings."""
        return max(map(len, self._siblings), default=1)

    @property
    def pages(self) -> dict[int, tuple[HostPages, ...]]:
        """The pages by what a guest cell may ask for (a size, SMALL, LARGE or ANY), the largest first."""
        if self._pages is None:
            table = tuple(sorted(self._table, key=_size_kb, reverse=True))
            self._pages = {pages.size_kb: (pages,) for pages in table}
            self._pages |= {ANY: table, LARGE: table[:-1], SMALL: table[-1:]}
        return self._pages


class CellView:
    """A host cell with its usage: what is free, in CPUs, cores and MB.

    ``strict_mb`` bounds the memory of a guest cell that names no page size where memory may not be
    overcommitted.
    """

    __slots__ = ("_cores", "_whole", "facts", "free", "free_mb", "host", "strict_mb", "use")

    def __init__(self, host: HostCell, use: CellUsage) -> None:
        self.host = host
        self.use = use
        self.facts = facts_of(host)
        self.free = host.dedicated - use.pinned
        self.free_mb = self.strict_mb = host.memory_mb - use.memory_mb
        smallest = self.facts.smallest
        if smallest is not None:
            size = smallest.size_kb
            free = smallest.total - smallest.reserved - use.pages.get(size, 0)
            self.strict_mb = free * size // 1024
        self._cores: FreeCores | None = None
        self._whole: list[Core] | None = None

    @property
    def cores(self) -> FreeCores:
        """The free threads, core by core."""
        if self._cores is None:
            self._cores = FreeCores(self._free_threads())
        return self._cores

    @property
    def whole_cores(self) -> list[Core]:
        """The cores of which every thread is dedicated and free, smallest first, then by CPU number."""
        if self._whole is None:
            free = self.free
            whole = [threads for core, threads in self.facts.cores if core <= free]
            self._whole = sorted(whole, key=len)
        return self._whole

    def _free_threads(self) -> list[Core]:
        free = self.free
        cores = []
        for core, threads in self.facts.cores:
            if core <= free:
                cores.append(threads)
            elif left := core & free:
                cores.append(tuple(sorted(left)))
        return cores


class FreeCores:
    """Cores with free threads: ``by_fit`` has those with the fewest free threads first, then by CPU number;
    ``at_least[n]`` is how many have ``n`` or more; ``flat`` is all threads in order where each core has as
    many free, else None."""

    __slots__ = ("at_least", "by_fit", "flat")

    def __init__(self, cores: list[Core]) -> None:
        # Sorted twice, since sorting by (length, core) would call back for each core.
        cores.sort()
        cores.sort(key=len)
        self.by_fit = cores
        self.flat: list[int] | None = None
        if cores and len(cores[0]) == len(cores[-1]):
            self.flat = list(chain.from_iterable(cores))
            self.at_least = [len(cores)] * (len(cores[0]) + 1)
            return
        self.at_least = [len(cores)]
        for at, core in enumerate(cores):
            while len(self.at_least) <= len(core):
                self.at_least.append(len(cores) - at)

    def most_with_siblings(self) -> int:
        """The most vCPUs that get a sibling: n threads of each core that has n, for the best n >= 2."""
        return max((n * cores for n, cores in enumerate(self.at_least) if n >= 2), default=0)


class HostView:
    """All cells of a host with their usage, and the orders in which they are preferred."""

    __slots__ = ("_orders", "cells", "usage")

    def __init__(self, topology: HostTopology, usage: Sequence[CellUsage], old: HostView | None) -> None:
        self.usage = usage
        self.cells: list[CellView] = _views(topology.cells, usage, old.cells if old else [])
        self._orders: list[list[CellView] | None] = [None, None, None, None]

    def preferred(self, shared: bool, pack: bool) -> list[CellView]:
        """The emptiest cells first, or the fullest (``pack``): by free dedicated CPUs, or for a ``shared``
        guest by shared vCPUs in use; then by free memory; then in the topology's order."""
        which = 2 * shared + pack
        order = self._orders[which]
        if order is None:
            order = sorted(self.cells, key=_shared_key if shared else _dedicated_key, reverse=not pack)
            self._orders[which] = order
        return order


def view_of(topology: HostTopology, usage: Sequence[CellUsage]) -> HostView:
    """The view of a host. The last one is kept with the topology, for as long as the usage is the same tuple."""
    view: HostView | None = topology.__dict__.get("view")
    if view is None or view.usage is not usage:
        view = HostView(topology, usage, view)
        # A list could change under a kept view; a tuple of frozen values cannot.
        if type(usage) is tuple:
            topology.__dict__["view"] = view
    return view


def facts_of(host: HostCell) -> HostFacts:
    """The facts of a host cell, kept with it."""
    facts: HostFacts | None = host.__dict__.get("facts")
    if facts is None:
        facts = host.__dict__["facts"] = HostFacts(host)
    return facts


def _views(hosts: Sequence[HostCell], usage: Sequence[CellUsage], old: Sequence[CellView]) -> list[CellView]:
    """Each cell with its own usage; one that ``usage`` does not name is empty. A cell whose usage has not
    changed keeps its view."""
    if [host.id for host in hosts] != [use.cell for use in usage]:
        by_cell = {use.cell: use for use in usage}
        usage = [by_cell.get(host.id) or CellUsage(host.id) for host in hosts]
    if not old:
        return list(map(CellView, hosts, usage))
    return [
        was if was.use is use else CellView(host, use)
        for host, use, was in zip(hosts, usage, old, strict=True)
    ]


def _size_kb(pages: HostPages) -> int:
    return pages.size_kb


def _dedicated_key(view: CellView) -> tuple[int, int]:
    return (len(view.free), view.free_mb)


def _shared_key(view: CellView) -> tuple[int, int]:
    return (-view.use.shared_vcpus, view.free_mb)
