"""The values of NUMA placement: host cells, guest cells, and what a claim takes of them.

All values are frozen and carry no behaviour; :mod:`pinfold.model.numa` has the functions over them.
CPU numbers are integers without an upper bound; memory is in MB, page sizes in KiB.
"""

from __future__ import annotations

import msgspec

# ``dict=True``: the fit keeps what it works out of a host with the host (:mod:`pinfold.model.numa_view`).


class HostPages(msgspec.Struct, frozen=True):
    """Pages of one size on a host cell: ``total`` and ``reserved`` are numbers of pages."""

    size_kb: int
    total: int
    reserved: int = 0


class HostCell(msgspec.Struct, frozen=True, dict=True):
    """A NUMA cell of a host, as the machine is (no usage).

    ``shared`` and ``dedicated`` are the host CPUs that guests may float over or be pinned to;
    ``siblings`` are the cores (sets of threads), restricted to CPUs of this cell.
    """

    id: int
    shared: frozenset[int]
    dedicated: frozenset[int]
    siblings: tuple[frozenset[int], ...]
    memory_mb: int
    pages: tuple[HostPages, ...] = ()
    socket: int | None = None


class HostTopology(msgspec.Struct, frozen=True, dict=True):
    """All cells of one node, in order of id."""

    cells: tuple[HostCell, ...]


class CellUsage(msgspec.Struct, frozen=True):
    """What claims hold on one host cell.

    ``pinned`` are host CPUs (pins, emulator CPUs and siblings held by isolate alike);
    ``pages`` maps a page size in KiB to the number of pages used. ``overcommitted_mb`` is the part of
    ``memory_mb`` (and so of the smallest pages) that is promised to guests with ``overcommit``.
    """

    cell: int
    pinned: frozenset[int] = frozenset()
    shared_vcpus: int = 0
    memory_mb: int = 0
    pages: dict[int, int] = {}
    overcommitted_mb: int = 0


class GuestCell(msgspec.Struct, frozen=True):
    """A NUMA cell that a guest asks for; CPUs are guest CPU numbers.

    ``page_size`` is in KiB, or SMALL, LARGE or ANY, or None where the guest does not care.
    """

    id: int
    shared: frozenset[int]
    dedicated: frozenset[int]
    memory_mb: int
    page_size: int | None = None


SMALL, LARGE, ANY = -1, -2, -3


class GuestTopology(msgspec.Struct, frozen=True):
    """The NUMA demand of a guest. ``cpu_policy``: shared, dedicated, mixed; ``thread_policy``:
    None, prefer, isolate, require; ``emulator_policy``: None, share, isolate."""

    cells: tuple[GuestCell, ...]
    cpu_policy: str = "shared"
    thread_policy: str | None = None
    emulator_policy: str | None = None
    realtime: frozenset[int] = frozenset()


class PlacedCell(msgspec.Struct, frozen=True):
    """One guest cell on one host cell.

    ``shared`` are the guest CPUs that float; ``pins`` maps guest CPU to host CPU; ``reserved`` are
    host CPUs for emulator threads; ``held`` are siblings that nobody else may have (isolate);
    ``pages`` is how many pages of ``page_size_kb`` it takes. ``overcommit`` says that these pages, or
    the memory of a cell without a page table, are ordinary memory, of which more may be promised than
    there is (a floating guest that names no page size).
    """

    guest_cell: int
    cell: int
    shared: frozenset[int]
    pins: dict[int, int]
    memory_mb: int
    reserved: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    page_size_kb: int | None = None
    pages: int = 0
    overcommit: bool = False


class Placement(msgspec.Struct, frozen=True):
    """A whole guest on a host; its cells in order of the guest's cells."""

    cells: tuple[PlacedCell, ...]


class Limits(msgspec.Struct, frozen=True):
    """Overcommit of shared CPUs and memory per cell."""

    cpu_ratio: float = 1.0
    memory_ratio: float = 1.0


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why a host cell does not take the guest: which ``constraint``, how much was ``asked`` and is ``free``.

    ``cell`` is None where the reason is the host as a whole; ``guest_cell`` is the guest cell that was
    tried on it.
    """

    cell: int | None
    constraint: str
    asked: int
    free: int
    guest_cell: int | None = None
