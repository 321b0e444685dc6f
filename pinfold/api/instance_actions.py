"""``/servers/{id}/os-instance-actions``: what was done with a server, from its operations."""

from __future__ import annotations

from typing import Any

from pinfold.api import query as queries
from pinfold.api.call import Call, as_uuid, server_not_found
from pinfold.api.listing import allowed, limit_of, next_link
from pinfold.api.server_views import host_id, micros
from pinfold.db import instance_actions as book_actions
from pinfold.db.instance_actions import ActionRow, Owner
from pinfold.model import actions, errors
from pinfold.model.actions import ActionEvent

LIST_PARAMETERS = {"limit": 58, "marker": 58, "changes-since": 58, "changes-before": 66}
_PAGED_SINCE = 58


def index(call: Call, server: str) -> dict[str, Any]:
    """A server's actions, newest first."""
    query = allowed(call, LIST_PARAMETERS, _PAGED_SINCE)
    times = {
        name: None if (value := queries.last(query, name)) is None else queries.moment(name, value)
        for name in ("changes-since", "changes-before")
    }
    since, before = times.values()
    queries.require_order(since, before)
    limit = limit_of(call) if call.minor >= _PAGED_SINCE else None
    marker = queries.last(query, "marker")
    id_ = _seen(call, server)[0]
    rows = call.deps.book.read(
        lambda session: book_actions.listed(
            session, id_, limit=limit, after=marker, since=since, before=before
        )
    )
    if rows is None:
        raise errors.InvalidRequest(f"marker [{str(marker)[:100]}] not found", code="marker-not-found")
    shown: dict[str, Any] = {"instanceActions": [_view(call, id_, row) for row in rows]}
    if rows and len(rows) == limit:
        path = f"/v2.1/servers/{id_}/os-instance-actions"
        shown["links"] = [next_link(call, path, rows[-1].request_id)]
    return shown


def show(call: Call, server: str, request: str) -> dict[str, Any]:
    """What one request did, with its events."""
    allowed(call, {}, 102)
    id_, owner = _seen(call, server)
    row = None
    if len(request) <= 64 and "\0" not in request:
        row = call.deps.book.read(lambda session: book_actions.get(session, id_, request))
    if row is None:
        raise errors.NotFound(f"Action {request[:100]} not found", code="action-not-found")
    shown = _view(call, id_, row)
    everything = call.allows("os-instance-actions:events", owner.project_id)
    if everything or call.minor >= 51:
        shown["events"] = [_event(call, owner, event, everything=everything) for event in _events(row)]
    return {"instanceAction": shown}


def _seen(call: Call, server: str) -> tuple[str, Owner]:
    """The server's id and owner, for which the caller may do this route's rule; from 2.21 on it may be deleted."""
    id_ = as_uuid(server)
    owner = call.deps.book.read(lambda session: book_actions.owner(session, id_)) if id_ else None
    if owner is None or id_ is None or call.sees_project not in (None, owner.project_id):
        raise server_not_found(server)
    if owner.deleted and call.minor < 21:
        raise server_not_found(server)
    call.authorize(owner.project_id)
    return id_, owner


def _events(row: ActionRow) -> tuple[ActionEvent, ...]:
    return actions.events(row.kind, row.log, row.created_at, row.error)


def _view(call: Call, server: str, row: ActionRow) -> dict[str, Any]:
    failed = any(event.error is not None for event in _events(row))
    shown: dict[str, Any] = {
        "action": actions.action(row.kind),
        "instance_uuid": server,
        "request_id": row.request_id,
        "user_id": row.user_id,
        "project_id": row.project_id,
        "start_time": micros(row.created_at),
        "message": "Error" if failed or row.error is not None else None,
    }
    return shown | ({"updated_at": micros(row.updated_at)} if call.minor >= _PAGED_SINCE else {})


def _event(call: Call, owner: Owner, event: ActionEvent, *, everything: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "event": event.name,
        "start_time": micros(event.start),
        "finish_time": micros(event.end),
        "result": event.result,
    }
    if everything:
        shown["traceback"] = event.error
    if call.minor >= 62:
        shown["hostId"] = host_id(owner.project_id, event.host) if event.host else ""
        shown |= {"host": event.host or ""} if everything else {}
    if call.minor >= 84 and call.allows("os-instance-actions:events:details", owner.project_id):
        shown["details"] = event.error
    return shown
