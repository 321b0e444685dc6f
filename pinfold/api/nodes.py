"""``/pinfold/v1/nodes``: what each node has, what is used of it, and who holds which CPU. From the book."""

from __future__ import annotations

from typing import Any

import msgspec

from pinfold.api.call import Call
from pinfold.db import nodes as book_nodes
from pinfold.db.nodes import NodeRow
from pinfold.model import errors
from pinfold.model.host import NodeUsage, usage_of
from pinfold.model.numa import CellUsage, HostCell


def index(call: Call) -> dict[str, Any]:
    """All nodes."""
    call.authorize(call.project)
    down = call.deps.times.service_down
    rows = call.deps.book.snapshot(lambda session: book_nodes.listed(session, down))
    return {"nodes": [_view(row) for row in rows]}


def show(call: Call, node: str) -> dict[str, Any]:
    """One node."""
    call.authorize(call.project)
    down = call.deps.times.service_down
    rows = []
    if "\0" not in node and len(node) <= 255:
        rows = call.deps.book.snapshot(lambda session: book_nodes.listed(session, down, node))
    if not rows:
        raise errors.NotFound(f"Node {node[:100]} could not be found.", code="node-not-found")
    return _view(rows[0])


def _view(row: NodeRow) -> dict[str, Any]:
    report = row.report
    usage = usage_of(report, row.claims)
    return {
        "node": row.name,
        "host": row.host,
        "generation": row.generation,
        "state": "up" if row.up else "down",
        "memory_mb": report.memory_mb,
        "memory_used_mb": usage.memory_mb,
        "disk_gb": report.disk_gb,
        "disk_used_gb": usage.disk_gb,
        "vcpus_shared": int(report.shared_cpus * report.cpu_ratio),
        "vcpus_shared_used": usage.shared_vcpus,
        "cells": _cells(row, usage),
        "claims": [
            {
                "server": claim.instance,
                "role": claim.role,
                "cells": msgspec.to_builtins(claim.placement.cells, str_keys=True) if claim.placement else [],
            }
            for claim in row.claims
        ],
    }


def _cells(row: NodeRow, usage: NodeUsage) -> list[dict[str, Any]]:
    used = {cell.cell: cell for cell in usage.cells}
    return [_cell(cell, used[cell.id], row.pins) for cell in row.report.topology.cells]


def _cell(cell: HostCell, used: CellUsage, pins: dict[int, str]) -> dict[str, Any]:
    cpus = cell.shared | cell.dedicated | frozenset().union(*cell.siblings)
    return {
        "id": cell.id,
        "cpus": sorted(cpus),
        "dedicated": sorted(cell.dedicated),
        "shared": sorted(cell.shared),
        "siblings": sorted(sorted(core) for core in cell.siblings),
        "memory_mb": cell.memory_mb,
        "memory_used_mb": used.memory_mb,
        "pages": [
            {
                "size_kb": pages.size_kb,
                "total": pages.total,
                "used": used.pages.get(pages.size_kb, 0),
                "reserved": pages.reserved,
            }
            for pages in cell.pages
        ],
        "pins": {str(cpu): server for cpu, server in sorted(pins.items()) if cpu in cpus},
        "shared_used": used.shared_vcpus,
    }
