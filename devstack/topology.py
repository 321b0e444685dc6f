"""The shape of the fake hosts, and how the configuration divides their CPUs."""

from __future__ import annotations

from typing import Any

from devstack.layout import StackError
from pinfold.model import cpuset, errors
from pinfold.virt import topology


def machine(path: str | None) -> topology.Machine:
    """The default machine, or the one in a file."""
    if path is None:
        return topology.default_machine()
    try:
        return topology.read_machine(path)
    except errors.ConfigurationError as error:
        raise StackError(f"--topology: {error}") from error


def partition(path: str | None) -> tuple[str, str]:
    """The CPU lists for ``cpu_shared_set`` and ``cpu_dedicated_set``."""
    shape = machine(path)
    return cpuset.render(shape.shared), cpuset.render(shape.dedicated)


def big_cells(dedicated: int = 128, cells: int = 2) -> list[dict[str, Any]]:
    """Cells for load: ``dedicated`` CPUs, two threads a core; the first core of each cell is shared."""
    each = dedicated // cells + 2
    return [_big_cell(cell, range(cell * each, (cell + 1) * each)) for cell in range(cells)]


def _big_cell(cell: int, cpus: range) -> dict[str, Any]:
    cores = [list(cpus[place : place + 2]) for place in range(0, len(cpus), 2)]
    return {"id": cell, "socket": cell, "cpuset": cores[0], "pcpuset": list(cpus[2:]), "siblings": cores,
            "memory": 262144, "mempages": [{"size_kb": 4, "total": 262144 * 256}]}  # fmt: skip
