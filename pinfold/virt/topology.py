"""The shape of a fake machine: the default one, or one read from a file.

The file is a JSON list of cells: ``id``, ``cpuset`` (shared CPUs), ``pcpuset`` (dedicated CPUs),
``siblings`` (lists of CPUs), ``socket``, ``memory`` (MB), ``mempages`` (``size_kb``, ``total``,
``reserved``). Other fields are ignored. A machine has the CPUs of both sets; the sets themselves are a
proposal for the configuration.
"""

from __future__ import annotations

import msgspec

from pinfold.model import cpuset, errors
from pinfold.model.numa import HostPages
from pinfold.virt.driver import MachineCell


class Machine(msgspec.Struct, frozen=True):
    """Cells, and which CPUs guests are to float over (``shared``) or be pinned to (``dedicated``)."""

    cells: tuple[MachineCell, ...]
    shared: frozenset[int]
    dedicated: frozenset[int]


class _Pages(msgspec.Struct, frozen=True):
    size_kb: int
    total: int
    reserved: int = 0


class _Cell(msgspec.Struct, frozen=True):
    id: int
    memory: int
    cpuset: frozenset[int] = frozenset()
    pcpuset: frozenset[int] = frozenset()
    siblings: tuple[frozenset[int], ...] = ()
    mempages: tuple[_Pages, ...] = ()
    socket: int | None = None


def default_machine() -> Machine:
    """2 cells of 4 cores with 2 threads, 16384 MB, 2048 of them as pages of 2 MiB; CPUs 0 and 8 shared."""
    cells = tuple(
        MachineCell(
            id=cell,
            cpus=frozenset([*range(first, first + 4), *range(first + 8, first + 12)]),
            siblings=tuple(frozenset({core, core + 8}) for core in range(first, first + 4)),
            memory_mb=16384,
            pages=(HostPages(4, (16384 - 2048) * 256), HostPages(2048, 1024)),
            socket=cell,
        )
        for cell, first in enumerate((0, 4))
    )
    shared = frozenset({0, 8})
    return Machine(cells, shared, frozenset(range(16)) - shared)


def read_machine(path: str) -> Machine:
    """The machine in a topology file. Raises errors.ConfigurationError saying what is wrong with it."""
    try:
        with open(path, "rb") as file:
            cells = msgspec.json.decode(file.read(), type=tuple[_Cell, ...])
        return _machine(cells)
    except OSError as error:
        why = error.strerror or str(error)
    except (msgspec.DecodeError, ValueError) as error:
        why = str(error)
    raise errors.ConfigurationError(f"The topology file {path} ([fake] topology) cannot be used: {why}.")


def _machine(cells: tuple[_Cell, ...]) -> Machine:
    _check(cells)
    return Machine(
        tuple(_machine_cell(cell) for cell in sorted(cells, key=lambda cell: cell.id)),
        frozenset().union(*(cell.cpuset for cell in cells)),
        frozenset().union(*(cell.pcpuset for cell in cells)),
    )


def _machine_cell(cell: _Cell) -> MachineCell:
    cpus = cell.cpuset | cell.pcpuset
    known = frozenset().union(*cell.siblings)
    # A CPU in no core is a core of its own.
    cores = [core for core in cell.siblings if core] + [frozenset({cpu}) for cpu in sorted(cpus - known)]
    return MachineCell(
        id=cell.id,
        cpus=cpus,
        siblings=tuple(cores),
        memory_mb=cell.memory,
        pages=tuple(HostPages(pages.size_kb, pages.total, pages.reserved) for pages in cell.mempages),
        socket=cell.socket,
    )


def _check(cells: tuple[_Cell, ...]) -> None:
    """Raises ValueError."""
    if not cells:
        raise ValueError("it has no cells")
    ids = [cell.id for cell in cells]
    if len(set(ids)) != len(ids):
        raise ValueError(f"two cells have one id, in {sorted(ids)}")
    seen: set[int] = set()
    for cell in cells:
        cpus = cell.cpuset | cell.pcpuset
        if seen & cpus:
            raise ValueError(f"cell {cell.id} has CPUs {cpuset.render(seen & cpus)} of another cell")
        seen |= cpus
        _check_cell(cell, cpus)


def _check_cell(cell: _Cell, cpus: frozenset[int]) -> None:
    if any(cpu < 0 for cpu in cpus) or cell.memory < 0:
        raise ValueError(f"cell {cell.id} has a negative number")
    known: set[int] = set()
    for core in cell.siblings:
        if known & core:
            raise ValueError(f"cell {cell.id} has CPUs {cpuset.render(known & core)} in two cores")
        known |= core
    if known - cpus:
        raise ValueError(f"cell {cell.id} has siblings {cpuset.render(known - cpus)} outside its CPUs")
    for pages in cell.mempages:
        if pages.size_kb <= 0 or not 0 <= pages.reserved <= pages.total:
            raise ValueError(f"cell {cell.id} has impossible pages of {pages.size_kb} KiB")
