"""``/servers/{id}/topology``: the NUMA cells of a server, from its claim."""

from __future__ import annotations

from typing import Any

from pinfold.api import servers
from pinfold.api.call import Call
from pinfold.api.listing import allowed
from pinfold.db import claims
from pinfold.model.numa import PlacedCell


def show(call: Call, server: str) -> dict[str, Any]:
    """The cells that it has now; none where it is offloaded, or does not care about cells."""
    allowed(call, {}, 102)
    row = servers.found(call, server)
    placement = call.deps.book.read(lambda session: claims.placement_of(session, row.id))
    hosts = call.allows("compute:server:topology:host:index", row.project_id)
    cells = placement.cells if placement else ()
    sizes = {cell.page_size_kb for cell in cells if cell.page_size_kb}
    return {
        "nodes": [_view(cell, hosts=hosts) for cell in cells],
        "pagesize_kb": max(sizes) if sizes else None,
    }


def _view(cell: PlacedCell, *, hosts: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "vcpu_set": sorted(cell.shared | cell.pins.keys()),
        "siblings": [],
        "memory_mb": cell.memory_mb,
    }
    if hosts:
        pins = {str(vcpu): cpu for vcpu, cpu in sorted(cell.pins.items())}
        shown |= {"host_node": cell.cell, "cpu_pinning": pins}
    return shown
