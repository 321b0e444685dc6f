"""``/os-hosts``, which ended with 2.43: hosts with their services, and what is used there by whom."""

from __future__ import annotations

from typing import Any

from pinfold.api import query as queries
from pinfold.api import services
from pinfold.api.call import Call
from pinfold.api.faults import NotBuilt
from pinfold.api.listing import allowed
from pinfold.db import hosts as book_hosts
from pinfold.db import hypervisors as book_hypervisors
from pinfold.db import services as book_services
from pinfold.db.hypervisors import HypervisorRow, OnHost
from pinfold.model import errors

LIST_PARAMETERS = {"zone": 1}
Amounts = dict[str, int]


def index(call: Call) -> dict[str, Any]:
    """Each service's host, with its zone; disabled ones are left out."""
    call.authorize(call.project)
    zone = queries.last(allowed(call, LIST_PARAMETERS), "zone")
    rows = [
        {
            "host_name": row.host,
            "service": services.binary(row).removeprefix("nova-"),
            "zone": services.zone(call, row),
        }
        for row in services.shown(call)
        if not row.disabled
    ]
    return {"hosts": [row for row in rows if not zone or row["zone"] == zone]}


def show(call: Call, host: str) -> dict[str, Any]:
    """What a host has, and what of it is used by each project."""
    call.authorize(call.project)
    down = call.deps.times.service_down

    def read(session: Any) -> tuple[list[HypervisorRow], list[OnHost]]:
        rows = book_hypervisors.listed(session, down, host=host) if _is_name(host) else []
        return rows, book_hypervisors.servers_on(session, [row.number for row in rows])

    rows, servers = call.deps.book.read(read)
    if not rows:
        raise _not_found(host)
    projects: dict[str, list[OnHost]] = {}
    for server in servers:
        projects.setdefault(server.project_id, []).append(server)
    shown = {
        "(total)": _total(rows),
        "(used_now)": _used(rows),
        "(used_max)": _asked(servers),
        **{project: _asked(theirs) for project, theirs in projects.items()},
    }
    return {
        "host": [{"resource": {"host": host, "project": who, **amounts}} for who, amounts in shown.items()]
    }


def _is_name(host: str) -> bool:
    return len(host) <= 255 and "\0" not in host


def _not_found(host: str) -> errors.NotFound:
    return errors.NotFound(f"Compute host {host[:100]} could not be found.", code="unknown-host")


def _total(rows: list[HypervisorRow]) -> Amounts:
    cells = [cell for row in rows for cell in row.report.topology.cells]
    return {
        "cpu": sum(len(cell.shared) + len(cell.dedicated) for cell in cells),
        "memory_mb": sum(row.report.memory_mb for row in rows),
        "disk_gb": sum(row.report.disk_gb for row in rows),
    }


def _used(rows: list[HypervisorRow]) -> Amounts:
    return {
        "cpu": sum(row.shared_vcpus + row.pinned_cpus for row in rows),
        "memory_mb": sum(row.memory_mb for row in rows),
        "disk_gb": sum(row.disk_gb for row in rows),
    }


def _asked(servers: list[OnHost]) -> Amounts:
    return {
        "cpu": sum(server.vcpus for server in servers),
        "memory_mb": sum(server.memory_mb for server in servers),
        "disk_gb": sum(server.disk_gb for server in servers),
    }


def update(call: Call, host: str) -> dict[str, Any]:
    """Let a host take servers, or not."""
    call.authorize(call.project)
    if "maintenance_mode" in call.body:
        _require(call, host)
        raise NotBuilt("This cloud has no maintenance mode: disable the host, and move its servers away.")
    enabled = call.body["status"].lower() == "enable"

    def write(session: Any) -> None:
        worker = book_hosts.worker(session, host, lock=True) if _is_name(host) else None
        if worker is None:
            raise _not_found(host)
        book_services.update(session, worker, {"disabled": not enabled, "disabled_reason": None})

    call.deps.book.write(write)
    return {"host": host, "status": "enabled" if enabled else "disabled"}


def startup(call: Call, host: str) -> None:
    """Start a host: nobody here can."""
    _cannot(call, host)


def shutdown(call: Call, host: str) -> None:
    """Stop a host: nobody here can."""
    _cannot(call, host)


def reboot(call: Call, host: str) -> None:
    """Start a host afresh: nobody here can."""
    _cannot(call, host)


def _cannot(call: Call, host: str) -> None:
    call.authorize(call.project)
    _require(call, host)
    raise NotBuilt("This cloud does not switch hosts on or off.")


def _require(call: Call, host: str) -> None:
    known = _is_name(host) and call.deps.book.read(lambda session: book_hosts.worker(session, host))
    if not known:
        raise _not_found(host)
