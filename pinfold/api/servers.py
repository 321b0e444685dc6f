"""Servers: show, delete, change. Lists stand in ``server_lists``, actions in ``server_actions``."""

from __future__ import annotations

from typing import Any

from pinfold.api import server_views as views
from pinfold.api.call import Call, as_uuid, server_not_found
from pinfold.api.locks import require_unlocked
from pinfold.api.places import check_zone, require_host_in_zone
from pinfold.db import instances as book_instances
from pinfold.db import starts
from pinfold.db.instances import Owned, Server
from pinfold.model.work import Bell


def show(call: Call, server: str) -> dict[str, Any]:
    """One server."""
    return {"server": views.full(call, found(call, server))}


def found(call: Call, server: str) -> Server:
    """The server, for which the caller may do this route's rule. Raises NotFound, Forbidden."""
    id_ = as_uuid(server)
    row = book_instances.show_now(call.deps.book, id_) if id_ else None
    if row is None or call.sees_project not in (None, row.project_id):
        raise server_not_found(server)
    call.authorize(row.project_id, row.user_id)
    return row


def owned(session: Any, call: Call, server: str, rule: str, *, lock_matters: bool = True) -> Owned:
    """The server, in a transaction that will act on it. Raises NotFound, Forbidden, Conflict (locked)."""
    id_ = as_uuid(server)
    row = book_instances.owned(session, id_) if id_ else None
    if row is None or call.sees_project not in (None, row.project_id):
        raise server_not_found(server)
    call.require(rule, row.project_id, row.user_id)
    if lock_matters:
        require_unlocked(call, row)
    return row


def delete(call: Call, server: str) -> None:
    """Delete it, here and now if it holds nothing."""
    operation = call.new_id()

    def write(session: Any) -> Bell:
        row = owned(session, call, server, "servers:delete")
        times = call.deps.times
        soft = times.keep_deleted > 0
        return starts.delete(session, row.id, call.requester, times, operation_id=operation, soft=soft)

    call.deps.ring(call.deps.book.write(write), call.context)


_COLUMNS = {
    "name": "name",
    "description": "description",
    "hostname": "hostname",
    "accessIPv4": "access_ip_v4",
    "accessIPv6": "access_ip_v6",
    "OS-DCF:diskConfig": "disk_config",
    "pinned_availability_zone": "availability_zone",
}


def update(call: Call, server: str) -> dict[str, Any]:
    """Change plain fields, in whatever state the server is."""
    values = {_COLUMNS[field]: value for field, value in call.body["server"].items()}
    zone = values.get("availability_zone")
    if zone is not None:
        check_zone(call, zone)

    def write(session: Any) -> Server:
        row = owned(session, call, server, "servers:update", lock_matters=False)
        there = book_instances.show(session, row.id) if zone is not None else None
        if there is not None and there.host is not None and zone is not None:
            require_host_in_zone(session, call, there.host, zone)
        changed = book_instances.update(session, row.id, values) if values else True
        shown = book_instances.show(session, row.id) if changed else None
        if shown is None:
            raise server_not_found(server)
        return shown

    return {"server": views.updated(call, call.deps.book.write(write))}
