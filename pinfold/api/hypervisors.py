"""``/os-hypervisors``: nodes as the compute API shows them. All is read from the book; no worker is asked."""

from __future__ import annotations

from typing import Any

import msgspec

from pinfold.api import query as queries
from pinfold.api.call import Call, as_uuid
from pinfold.api.faults import NotBuilt
from pinfold.api.listing import allowed, limit_of, next_link
from pinfold.db import hypervisors as book_hypervisors
from pinfold.db.hypervisors import HypervisorRow, OnHost
from pinfold.model import errors

Shown = dict[str, Any]

_UUIDS_SINCE = 53
_NO_SIZES_SINCE = 88
LIST_PARAMETERS = {"limit": 33, "marker": 33, "hypervisor_hostname_pattern": 53, "with_servers": 53}
SHOW_PARAMETERS = {"with_servers": 53}


def index(call: Call) -> Shown:
    """All nodes, briefly."""
    return _list(call, "/v2.1/os-hypervisors", detailed=False)


def detail(call: Call) -> Shown:
    """All nodes, with what they are and have."""
    return _list(call, "/v2.1/os-hypervisors/detail", detailed=True)


def _list(call: Call, path: str, *, detailed: bool) -> Shown:
    call.authorize(call.project)
    query = allowed(call, LIST_PARAMETERS, _UUIDS_SINCE)
    pattern = queries.last(query, "hypervisor_hostname_pattern")
    with_servers = _with_servers(query)
    if pattern is not None and ("limit" in query or "marker" in query):
        raise errors.InvalidRequest(
            "Paging over hypervisors with the hypervisor_hostname_pattern query parameter is not supported.",
            code="invalid-parameter",
        )
    limit = limit_of(call) if call.minor >= 33 and pattern is None else None
    marker = queries.last(query, "marker")
    rows, servers = call.deps.book.read(
        lambda session: _page(session, call, pattern, marker, limit, with_servers=with_servers)
    )
    if pattern is not None and not rows:
        raise _nothing_matches(pattern)
    views = [_view(call, row, detailed=detailed, servers=_of(servers, row)) for row in rows]
    shown: Shown = {"hypervisors": views}
    if rows and len(rows) == limit:
        shown["hypervisors_links"] = [next_link(call, path, str(views[-1]["id"]))]
    return shown


def _page(
    session: Any,
    call: Call,
    pattern: str | None,
    marker: str | None,
    limit: int | None,
    *,
    with_servers: bool,
) -> tuple[list[HypervisorRow], list[OnHost] | None]:
    after: int | None = 0
    if marker is not None:
        id_ = as_uuid(marker)
        if call.minor >= _UUIDS_SINCE:
            after = book_hypervisors.number_of(session, id_) if id_ else None
        else:
            after = _number(marker)
        if after is None:
            raise errors.InvalidRequest(f"marker [{marker[:100]}] not found", code="marker-not-found")
    down = call.deps.times.service_down
    rows = book_hypervisors.listed(session, down, name_part=pattern, after=after or 0, limit=limit)
    servers = book_hypervisors.servers_on(session, [row.number for row in rows]) if with_servers else None
    return rows, servers


def _with_servers(query: queries.Query) -> bool:
    value = queries.last(query, "with_servers")
    return value is not None and queries.boolean("with_servers", value)


def _of(servers: list[OnHost] | None, row: HypervisorRow) -> list[OnHost] | None:
    return None if servers is None else [server for server in servers if server.node == row.number]


def _nothing_matches(pattern: str) -> errors.NotFound:
    return errors.NotFound(
        f"No hypervisor matching '{pattern[:100]}' could be found.", code="hypervisor-not-found"
    )


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def show(call: Call, hypervisor: str) -> Shown:
    """One node."""
    call.authorize(call.project)
    query = allowed(call, SHOW_PARAMETERS, _UUIDS_SINCE)
    row = _found(call, hypervisor)
    servers = None
    if _with_servers(query):
        servers = call.deps.book.read(lambda session: book_hypervisors.servers_on(session, [row.number]))
    return {"hypervisor": _view(call, row, detailed=True, servers=servers)}


def _found(call: Call, hypervisor: str) -> HypervisorRow:
    """By UUID from 2.53 on, by number before. Names are looked for in the list by clients, which count on the 400."""
    id_, number = as_uuid(hypervisor), _number(hypervisor)
    if call.minor >= _UUIDS_SINCE:
        if id_ is None:
            raise errors.InvalidRequest(f"Invalid uuid {hypervisor[:100]}", code="invalid-id")
        number = None
    elif number is None:
        raise _no_such(hypervisor)
    else:
        id_ = None
    down = call.deps.times.service_down
    rows = call.deps.book.read(lambda session: book_hypervisors.listed(session, down, number=number, id_=id_))
    if not rows:
        raise _no_such(hypervisor)
    return rows[0]


def _no_such(hypervisor: str) -> errors.NotFound:
    return errors.NotFound(
        f"Hypervisor with ID '{hypervisor[:100]}' could not be found.", code="hypervisor-not-found"
    )


def uptime(call: Call, hypervisor: str) -> Shown:
    """A node with how long it has run (until 2.87; then it is in the details)."""
    call.authorize(call.project)
    row = _found(call, hypervisor)
    since = _uptime(call, row)
    if since is None:
        raise NotBuilt("The requested functionality is not supported: its hypervisor does not tell.")
    if not row.up:
        raise errors.InvalidRequest(
            f"Compute service of {row.host} is unavailable at this time.", code="host-down"
        )
    return {"hypervisor": _view(call, row, detailed=False) | {"uptime": since}}


def search(call: Call, hypervisor: str) -> Shown:
    """The nodes with this text in their names (until 2.52; then it is a parameter of the list)."""
    return _search(call, hypervisor, with_servers=False)


def servers(call: Call, hypervisor: str) -> Shown:
    """The same, with their servers (until 2.52)."""
    return _search(call, hypervisor, with_servers=True)


def _search(call: Call, pattern: str, *, with_servers: bool) -> Shown:
    call.authorize(call.project)
    if "\0" in pattern:
        raise _nothing_matches(pattern.replace("\0", "\\0"))
    rows, found = call.deps.book.read(
        lambda session: _page(session, call, pattern, None, None, with_servers=with_servers)
    )
    if not rows:
        raise _nothing_matches(pattern)
    return {"hypervisors": [_view(call, row, detailed=False, servers=_of(found, row)) for row in rows]}


def statistics(call: Call) -> Shown:
    """The sums of all enabled nodes (until 2.87)."""
    call.authorize(call.project)
    down = call.deps.times.service_down
    rows = call.deps.book.read(lambda session: book_hypervisors.listed(session, down))
    sizes = [_sizes(row) for row in rows if not row.disabled]
    names = list(_sizes(rows[0])) if rows else _NOTHING
    totals = {name: sum(size[name] or 0 for size in sizes) for name in names}
    return {"hypervisor_statistics": {"count": len(sizes), **totals}}


# --- views ------------------------------------------------------------------------------------------


def _view(call: Call, row: HypervisorRow, *, detailed: bool, servers: list[OnHost] | None = None) -> Shown:
    uuids = call.minor >= _UUIDS_SINCE
    shown: Shown = {
        "id": row.id if uuids else row.number,
        "hypervisor_hostname": row.name,
        "state": "up" if row.up else "down",
        "status": "disabled" if row.disabled else "enabled",
    }
    if detailed:
        service = row.service if uuids else int(row.service[:7], 16)
        shown |= {
            "hypervisor_type": row.report.hypervisor.type,
            "hypervisor_version": row.report.hypervisor.version,
            "host_ip": row.report.address,
            "service": {"id": service, "host": row.host, "disabled_reason": row.disabled_reason},
        }
        if call.minor >= _NO_SIZES_SINCE:
            shown["uptime"] = _uptime(call, row)
        else:
            shown |= _sizes(row)
            cpus = _cpu_info(row)
            shown["cpu_info"] = cpus if call.minor >= 28 else msgspec.json.encode(cpus).decode()
    if servers or (servers is not None and call.minor >= 75):
        shown["servers"] = [{"name": server.name, "uuid": server.id} for server in servers]
    return shown


def _sizes(row: HypervisorRow) -> dict[str, int | None]:
    report = row.report
    cpus = sum(len(cell.shared) + len(cell.dedicated) for cell in report.topology.cells)
    return {
        "vcpus": cpus,
        "memory_mb": report.memory_mb,
        "local_gb": report.disk_gb,
        "vcpus_used": row.shared_vcpus + row.pinned_cpus,
        "memory_mb_used": row.memory_mb,
        "local_gb_used": row.disk_gb,
        "free_ram_mb": report.memory_mb - row.memory_mb,
        "free_disk_gb": report.disk_gb - row.disk_gb,
        "current_workload": row.operations,
        "running_vms": row.servers,
        "disk_available_least": None,
    }


_NOTHING = [
    *("vcpus", "memory_mb", "local_gb", "vcpus_used", "memory_mb_used", "local_gb_used", "free_ram_mb"),
    *("free_disk_gb", "current_workload", "running_vms", "disk_available_least"),
]


def _cpu_info(row: HypervisorRow) -> Shown:
    cells = row.report.topology.cells
    cores = [core for cell in cells for core in cell.siblings]
    return {
        "topology": {
            "cells": len(cells),
            "cores": len(cores),
            "threads": max((len(core) for core in cores), default=1),
        }
    }


def _uptime(call: Call, row: HypervisorRow) -> str | None:
    """As the command of that name says it; None where the hypervisor does not tell, or nobody is there to."""
    booted = row.report.hypervisor.booted_at
    if booted is None or not row.up:
        return None
    now = call.deps.runtime.now()
    minutes = max(0, int(now.timestamp() - booted)) // 60
    days, (hours, rest) = minutes // 1440, divmod(minutes % 1440, 60)
    return f" {now:%H:%M:%S} up {days} days, {hours:2d}:{rest:02d}"
