"""``/pinfold/v1/operations``: what was and is being done with a server, step by step."""

from __future__ import annotations

import datetime
from typing import Any

from pinfold.api import query as queries
from pinfold.api.call import Call, as_uuid, server_not_found
from pinfold.db import instances as book_instances
from pinfold.db import operations_read
from pinfold.db.operations_read import OperationRow
from pinfold.model import errors, timeline
from pinfold.model.timeline import Span


def index(call: Call) -> dict[str, Any]:
    """The operations of ``?server=ID``, newest first; the server may be deleted."""
    server = queries.last(call.query, "server")
    if not server:
        raise queries.bad("server", server, "given: the id of a server")
    limit = queries.number(call.query, "limit")
    most = call.deps.settings.max_limit
    id_ = as_uuid(server)

    def read(session: Any) -> tuple[str | None, list[OperationRow]]:
        project = book_instances.project_ever(session, id_) if id_ else None
        if project is None or call.sees_project not in (None, project):
            return None, []
        rows = operations_read.of_server(session, id_ or "", most if limit is None else min(limit, most))
        return project, rows

    project, rows = call.deps.book.read(read)
    if project is None:
        raise server_not_found(server)
    call.authorize(project)
    return {"operations": [_view(call, row) for row in rows]}


def show(call: Call, operation: str) -> dict[str, Any]:
    """One operation."""
    id_ = as_uuid(operation)
    row = call.deps.book.read(lambda session: operations_read.get(session, id_)) if id_ else None
    if row is None or call.sees_project not in (None, row.owner_project):
        raise errors.NotFound(f"Operation {operation[:100]} could not be found.", code="operation-not-found")
    call.authorize(row.owner_project)
    return _view(call, row)


def _view(call: Call, row: OperationRow) -> dict[str, Any]:
    """Hosts, and why each was refused, are for admins."""
    privileged = call.allows("pinfold:operations:refusals", row.owner_project)
    shown: dict[str, Any] = {
        "id": row.id,
        "server": row.instance_id,
        "kind": row.kind,
        "state": row.result or "running",
        "step": row.step,
        "task_state": row.task_state,
        "attempt": row.attempt,
        "owner": row.owner_host if privileged else None,
        "deadline": _time(row.deadline_at),
        "created": _time(row.created_at),
        "updated": _time(row.updated_at),
        "ended": _time(row.ended_at),
        "error": row.error,
        "request_id": row.request_id,
        "project_id": row.project_id,
        "user_id": row.user_id,
        "steps": [_step(entry, privileged=privileged) for entry in row.log],
        "seconds": round((row.ended_at or row.now) - row.created_at, 3),
        "timeline": [_span(span, privileged=privileged) for span in _spans(row)],
    }
    if privileged:
        shown |= {"targets": row.targets, "refusals": row.refusals, "left_leftover": row.left_leftover}
    return shown


def _step(entry: dict[str, Any], *, privileged: bool) -> dict[str, Any]:
    shown = entry | {"start": _time(entry["start"]), "end": _time(entry["end"])}
    return shown if privileged else {name: value for name, value in shown.items() if name != "host"}


def _spans(row: OperationRow) -> list[Span]:
    return timeline.spans(row.created_at, row.ended_at, row.log, row.now)


def _span(span: Span, *, privileged: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "what": span.what,
        "name": span.name,
        "start": _time(span.start),
        "seconds": round(span.seconds, 3),
        "attempt": span.attempt,
        "error": span.error,
        "open": span.open,
    }
    return shown | {"host": span.host} if privileged else shown


def _time(moment: float | None) -> str | None:
    if moment is None:
        return None
    parsed = datetime.datetime.fromtimestamp(moment, datetime.UTC)
    return parsed.isoformat(timespec="milliseconds").replace("+00:00", "Z")
