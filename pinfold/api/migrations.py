"""``/os-migrations`` and ``/servers/{id}/migrations``: moves of servers between hosts.

A move is an operation, of which ``view`` makes what clients know.
"""

from __future__ import annotations

from typing import Any, Literal

from pinfold.api import query as queries
from pinfold.api import servers
from pinfold.api.call import Call
from pinfold.api.listing import allowed, limit_of, next_link
from pinfold.api.server_views import micros
from pinfold.db import moves, moves_read
from pinfold.db.moves_read import MoveRow
from pinfold.model import errors
from pinfold.rpcapi.messages import Control

LIST_PARAMETERS = {
    **dict.fromkeys(("hidden", "host", "instance_uuid", "source_compute", "status", "migration_type"), 1),
    **dict.fromkeys(("limit", "marker", "changes-since"), 59),
    "changes-before": 66,
    "user_id": 80,
    "project_id": 80,
}
_PAGED_SINCE = 59
_OWNERS_SINCE = 80


def index(call: Call) -> dict[str, Any]:
    """The moves of all servers, newest first."""
    call.authorize(call.project)
    query = allowed(call, LIST_PARAMETERS, _PAGED_SINCE)
    if queries.last(query, "project_id") != call.project:
        call.require("os-migrations:index:all_projects")
    times = [
        queries.moment(name, query[name][-1]) for name in ("changes-since", "changes-before") if name in query
    ]
    queries.require_order(times[0] if times else None, times[-1] if times else None)
    if call.minor >= _PAGED_SINCE:
        return _page(call, query, times)
    return {"migrations": [view(call, move) for move in _found(call, query, times)]}


def _found(call: Call, query: queries.Query, times: list[float]) -> list[MoveRow]:
    """The moves that the filters let through, newest first."""
    asked = {name: queries.last(query, name) for name in LIST_PARAMETERS}
    moment = {name: times.pop(0) for name in ("changes-since", "changes-before") if name in query}
    rows = call.deps.book.read(
        lambda session: moves_read.listed(
            session,
            server=asked["instance_uuid"],
            project=asked["project_id"] if call.minor >= _OWNERS_SINCE else None,
            user=asked["user_id"] if call.minor >= _OWNERS_SINCE else None,
            since=moment.get("changes-since"),
            before=moment.get("changes-before"),
        )
    )
    return [
        row
        for row in rows
        if (not asked["status"] or row.status == asked["status"])
        and (not asked["migration_type"] or row.type == asked["migration_type"])
        and (not asked["source_compute"] or row.place("source")[0] == asked["source_compute"])
        and (not asked["host"] or asked["host"] in (row.place("source")[0], row.place("target")[0]))
    ]


def _page(call: Call, query: queries.Query, times: list[float]) -> dict[str, Any]:
    limit, rows = limit_of(call), _found(call, query, times)
    if "marker" in query:
        marker = query["marker"][-1]
        ids = [row.id for row in rows]
        if marker not in ids:
            raise errors.InvalidRequest(f"Marker {marker[:100]} could not be found.", code="marker-not-found")
        rows = rows[ids.index(marker) + 1 :]
    page = rows[:limit]
    link = {}
    if page and len(rows) > len(page):
        link = {"migrations_links": [next_link(call, "/v2.1/os-migrations", page[-1].id)]}
    return {"migrations": [view(call, move) for move in page]} | link


def view(call: Call, move: MoveRow) -> dict[str, Any]:
    """A move at the microversion asked for; hosts are for those who may know them."""
    hosts = call.allows("os-migrations:index:host")
    (source, source_node), (target, target_node) = move.place("source"), move.place("target")
    old, new = move.flavors
    shown: dict[str, Any] = {
        "id": move.number,
        "instance_uuid": move.instance_id,
        "status": move.status,
        "source_compute": source if hosts else None,
        "source_node": source_node if hosts else None,
        "dest_compute": target if hosts else None,
        "dest_node": target_node if hosts else None,
        "dest_host": move.address if hosts else None,
        "old_instance_type_id": old,
        "new_instance_type_id": new,
        "created_at": micros(move.created_at),
        "updated_at": micros(move.updated_at),
    }
    if call.minor >= 23:
        shown["migration_type"] = move.type
    if call.minor >= _PAGED_SINCE:
        shown["uuid"] = move.id
    if call.minor >= _OWNERS_SINCE:
        shown |= {"user_id": move.user_id, "project_id": move.project_id}
    return shown


def of_server(call: Call, server: str) -> dict[str, Any]:
    """The live moves of a server that are under way."""
    return {"migrations": [_live_view(call, move) for move in _live(call, server)]}


def _live(call: Call, server: str) -> list[MoveRow]:
    found = servers.found(call, server)
    rows = call.deps.book.read(lambda session: moves_read.listed(session, server=found.id))
    return [row for row in rows if row.kind == "live_migrate" and row.result is None]


def _live_view(call: Call, move: MoveRow) -> dict[str, Any]:
    """With the progress of memory and disk, which the book does not have."""
    shown = view(call, move)
    shown["server_uuid"] = shown.pop("instance_uuid")
    for gone in ("old_instance_type_id", "new_instance_type_id", "migration_type"):
        shown.pop(gone, None)
    progress = [
        f"{what}_{how}_bytes" for what in ("memory", "disk") for how in ("total", "processed", "remaining")
    ]
    return shown | dict.fromkeys(progress)


def show(call: Call, server: str, migration: str) -> dict[str, Any]:
    """One of them."""
    for move in _live(call, server):
        if migration in (move.id, str(move.number)):
            return {"migration": _live_view(call, move)}
    raise errors.NotFound(
        f"In-progress live migration {migration[:100]} is not found for server {server[:100]}.",
        code="migration-not-found",
    )


def abort(call: Call, server: str, migration: str) -> None:
    """End one of them, with the guest where it was, unless that has gone already."""
    _wish(call, server, migration, "abort")


def force(call: Call, server: str, migration: str) -> None:
    """Let one of them end at any price."""
    _wish(call, server, migration, "force")


def _wish(call: Call, server: str, migration: str, wish: Literal["abort", "force"]) -> None:
    found = servers.found(call, server)
    operation, host = call.deps.book.write(
        lambda session: moves.wish(session, found.id, migration, wish == "abort")
    )
    if host:
        call.deps.tell(host, Control(operation, wish), call.context)
