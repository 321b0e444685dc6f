"""``/os-migrations`` and ``/servers/{id}/migrations``: moves of servers between hosts.

There are none yet: servers go elsewhere by shelve and unshelve. A move that comes is an operation, of which ``view``
makes what clients know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pinfold.api import query as queries
from pinfold.api import servers
from pinfold.api.call import Call
from pinfold.api.listing import allowed, limit_of
from pinfold.api.server_views import micros
from pinfold.model import errors

LIST_PARAMETERS = {
    **dict.fromkeys(("hidden", "host", "instance_uuid", "source_compute", "status", "migration_type"), 1),
    **dict.fromkeys(("limit", "marker", "changes-since"), 59),
    "changes-before": 66,
    "user_id": 80,
    "project_id": 80,
}
_PAGED_SINCE = 59


class Move(msgspec.Struct, frozen=True):
    """A move, as it is shown. Times are seconds since 1970."""

    id: int
    uuid: str
    server: str
    type: str
    status: str
    source: str | None
    source_node: str | None
    target: str | None
    target_node: str | None
    old_flavor: int | None
    new_flavor: int | None
    user_id: str
    project_id: str
    created_at: float
    updated_at: float | None
    target_address: str | None = None


def index(call: Call) -> dict[str, Any]:
    """The moves of all servers, newest first."""
    call.authorize(call.project)
    query = allowed(call, LIST_PARAMETERS, _PAGED_SINCE)
    if queries.last(query, "project_id") != call.project:
        call.require("os-migrations:index:all_projects")
    times = [
        queries.moment(name, query[name][-1]) for name in ("changes-since", "changes-before") if name in query
    ]
    if times != sorted(times):
        raise errors.InvalidRequest(
            "The value of changes-since must be less than or equal to changes-before.",
            code="invalid-parameter",
        )
    if call.minor >= _PAGED_SINCE:
        limit_of(call)
        if "marker" in query:
            marker = query["marker"][-1][:100]
            raise errors.InvalidRequest(f"Marker {marker} could not be found.", code="marker-not-found")
    moves: Sequence[Move] = ()
    return {"migrations": [view(call, move) for move in moves]}


def view(call: Call, move: Move) -> dict[str, Any]:
    """A move at the microversion asked for; hosts are for those who may know them."""
    hosts = call.allows("os-migrations:index:host")
    shown: dict[str, Any] = {
        "id": move.id,
        "instance_uuid": move.server,
        "status": move.status,
        "source_compute": move.source if hosts else None,
        "source_node": move.source_node if hosts else None,
        "dest_compute": move.target if hosts else None,
        "dest_node": move.target_node if hosts else None,
        "dest_host": move.target_address if hosts else None,
        "old_instance_type_id": move.old_flavor,
        "new_instance_type_id": move.new_flavor,
        "created_at": micros(move.created_at),
        "updated_at": micros(move.updated_at),
    }
    if call.minor >= 23:
        shown["migration_type"] = move.type
    if call.minor >= _PAGED_SINCE:
        shown["uuid"] = move.uuid
    if call.minor >= 80:
        shown |= {"user_id": move.user_id, "project_id": move.project_id}
    return shown


def of_server(call: Call, server: str) -> dict[str, Any]:
    """The live moves of a server that are under way."""
    servers.found(call, server)
    return {"migrations": []}


def show(call: Call, server: str, migration: str) -> None:
    """One of them."""
    found = servers.found(call, server)
    raise errors.NotFound(
        f"In-progress live migration {migration[:100]} is not found for server {found.id}.",
        code="migration-not-found",
    )


def abort(call: Call, server: str, migration: str) -> None:
    """End one of them."""
    show(call, server, migration)


def force(call: Call, server: str, migration: str) -> None:
    """Let one of them end at any price."""
    show(call, server, migration)
