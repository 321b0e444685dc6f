"""``pinfold-manage numa fit``: one JSON object in, one out, to ask what the fit would answer.

A line names a flavor, image properties, a host with its usage, and limits; the answer is an error (the
request is refused before any host is looked at), a placement, or the reasons why there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pinfold.model.errors import InvalidRequest
from pinfold.model.numa_fit import explain, fit
from pinfold.model.numa_types import (
    CellUsage,
    GuestTopology,
    HostCell,
    HostPages,
    HostTopology,
    Limits,
    Placement,
    Refusal,
)
from pinfold.model.request import demand_for

Line = Mapping[str, Any]


def fit_line(line: Line) -> dict[str, Any]:
    """The answer to one line. Raises KeyError, TypeError or ValueError where the line is not of the form."""
    flavor = line["flavor"]
    answer: dict[str, Any] = {"id": line.get("id"), "error": None, "result": None, "reasons": []}
    try:
        demand = demand_for(
            vcpus=flavor["vcpus"],
            memory_mb=flavor["memory_mb"],
            disk_gb=flavor.get("disk_gb", 0),
            extra_specs=_texts(flavor.get("extra_specs")),
            image_properties=_texts(line.get("image_properties")),
        )
    except InvalidRequest as error:
        return answer | {"error": error.code, "message": error.message}
    if demand.numa is None:
        return answer | {"result": {"cells": []}}
    topology, usage = host_of(line["host"])
    limits = _limits(line.get("limits"))
    placement = fit(topology, usage, demand.numa, limits, pack=bool(line.get("pack")))
    if placement is not None:
        return answer | {"result": _result(placement, demand.numa)}
    refusals = explain(topology, usage, demand.numa, limits)
    return answer | {"reasons": [_reason(refusal) for refusal in refusals]}


def host_of(cells: list[Line]) -> tuple[HostTopology, tuple[CellUsage, ...]]:
    """The host and its usage out of a line's cells."""
    hosts, usage = [], []
    for cell in cells:
        pages = cell.get("mempages") or []
        hosts.append(
            HostCell(
                id=cell["id"],
                shared=frozenset(cell["cpuset"]),
                dedicated=frozenset(cell["pcpuset"]),
                siblings=tuple(map(frozenset, cell.get("siblings") or [])),
                memory_mb=cell["memory"],
                pages=tuple(HostPages(p["size_kb"], p["total"], p.get("reserved", 0)) for p in pages),
                socket=cell.get("socket"),
            )
        )
        usage.append(
            CellUsage(
                cell=cell["id"],
                pinned=frozenset(cell.get("pinned_cpus") or []),
                shared_vcpus=cell.get("cpu_usage", 0),
                memory_mb=cell.get("memory_usage", 0),
                pages={p["size_kb"]: p["used"] for p in pages if p.get("used")},
            )
        )
    return HostTopology(tuple(hosts)), tuple(usage)


def _texts(values: Mapping[str, Any] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (values or {}).items()}


def _limits(limits: Mapping[str, float] | None) -> Limits | None:
    if limits is None:
        return None
    return Limits(limits["cpu_allocation_ratio"], limits["ram_allocation_ratio"])


def _result(placement: Placement, guest: GuestTopology) -> dict[str, Any]:
    cells = []
    for placed, asked in zip(placement.cells, guest.cells, strict=True):
        cells.append(
            {
                "id": placed.cell,
                "cpuset": sorted(asked.shared),
                "pcpuset": sorted(asked.dedicated),
                "cpu_pinning": {str(vcpu): cpu for vcpu, cpu in sorted(placed.pins.items())},
                "cpuset_reserved": sorted(placed.reserved) or None,
                "held": sorted(placed.held),
                "memory": placed.memory_mb,
                # The size that was asked for; pages that merely follow from the memory are not shown.
                "pagesize": None if asked.page_size is None else placed.page_size_kb,
            }
        )
    return {"cells": cells, "emulator_threads_policy": guest.emulator_policy}


def _reason(refusal: Refusal) -> dict[str, Any]:
    return {
        "cell": refusal.cell,
        "constraint": refusal.constraint,
        "asked": refusal.asked,
        "free": refusal.free,
    }
