"""``/os-simple-tenant-usage``: how long servers of what size ran in a period, by project."""

from __future__ import annotations

import datetime
from typing import Any

from pinfold.api import query as queries
from pinfold.api.call import Call, as_uuid
from pinfold.api.listing import allowed, limit_of, next_link
from pinfold.api.server_views import micros
from pinfold.db import usage as book_usage
from pinfold.db.usage import Ran
from pinfold.model import errors

SHOW_PARAMETERS = {"start": 1, "end": 1, "limit": 40, "marker": 40}
LIST_PARAMETERS = {**SHOW_PARAMETERS, "detailed": 1}
_FORMS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%d %H:%M:%S.%f")
_TOTALS = ("total_local_gb_usage", "total_vcpus_usage", "total_memory_mb_usage", "total_hours")

Shown = dict[str, Any]


class _Period:
    def __init__(self, call: Call, query: queries.Query) -> None:
        self.now = call.deps.runtime.now().timestamp()
        self.begin = _moment(query, "start", self.now)
        # without either, the time is that between two looks at the clock: nothing, and no error
        end = _moment(query, "end", self.now + 1e-6)
        if not self.begin < end:
            raise errors.InvalidRequest(
                "Invalid start time. The start time cannot occur after the end time.",
                code="invalid-parameter",
            )
        self.end = min(end, self.now)


def _moment(query: queries.Query, name: str, otherwise: float) -> float:
    value = (query.get(name) or [""])[0]
    if not value:
        return otherwise
    for form in _FORMS:
        try:
            return datetime.datetime.strptime(value, form).replace(tzinfo=datetime.UTC).timestamp()
        except (ValueError, OverflowError):
            continue
    raise queries.bad(name, value, "a date and time such as 2026-01-31T12:00:00")


def index(call: Call) -> Shown:
    """All projects."""
    call.authorize(call.project)
    query = allowed(call, LIST_PARAMETERS)
    detailed = (query.get("detailed") or [""])[0] == "1"
    found, link = _summaries(call, query, None, detailed=detailed)
    return {"tenant_usages": found} | ({"tenant_usages_links": [link]} if link else {})


def show(call: Call, project: str) -> Shown:
    """One project, server by server."""
    call.authorize(project)
    query = allowed(call, SHOW_PARAMETERS)
    found, link = _summaries(call, query, project, detailed=True)
    shown: Shown = {"tenant_usage": found[0] if found else {}}
    return shown | ({"tenant_usage_links": [link]} if link else {})


def _summaries(
    call: Call, query: queries.Query, project: str | None, *, detailed: bool
) -> tuple[list[Shown], dict[str, str] | None]:
    period = _Period(call, query)
    limit = limit_of(call) if call.minor >= 40 else call.deps.settings.max_limit
    marker = queries.last(query, "marker")
    after = as_uuid(marker) or "-" if marker is not None else None
    rows = call.deps.book.read(
        lambda session: book_usage.ran(session, period.begin, period.end, project, limit, after)
    )
    if rows is None:
        raise errors.InvalidRequest(f"marker [{str(marker)[:100]}] not found", code="marker-not-found")
    path = "/v2.1/os-simple-tenant-usage" + (f"/{project}" if project is not None else "")
    more = call.minor >= 40 and rows and len(rows) == limit
    return _by_project(period, rows, detailed=detailed), next_link(call, path, rows[-1].id) if more else None


def _by_project(period: _Period, rows: list[Ran], *, detailed: bool) -> list[Shown]:
    found: dict[str, Shown] = {}
    for row in rows:
        if row.project_id not in found:
            found[row.project_id] = {
                "tenant_id": row.project_id,
                **({"server_usages": []} if detailed else {}),
                **dict.fromkeys(_TOTALS, 0.0),
                "start": micros(period.begin),
                "stop": micros(period.end),
            }
        summary, server = found[row.project_id], _server(period, row)
        hours = server["hours"]
        for name in ("local_gb", "vcpus", "memory_mb"):
            summary[f"total_{name}_usage"] += server[name] * hours
        summary["total_hours"] += hours
        if detailed:
            summary["server_usages"].append(server)
    return list(found.values())


def _server(period: _Period, row: Ran) -> Shown:
    flavor: Any = row.flavor
    ended = row.terminated_at
    until = period.end if ended is None else min(period.end, ended)
    return {
        "hours": max(0.0, until - max(row.launched_at, period.begin)) / 3600,
        "flavor": flavor["name"],
        "instance_id": row.id,
        "name": row.name,
        "tenant_id": row.project_id,
        "memory_mb": flavor["memory_mb"],
        "local_gb": flavor["root_gb"] + flavor["ephemeral_gb"],
        "vcpus": flavor["vcpus"],
        "started_at": micros(row.launched_at),
        "ended_at": micros(ended),
        "state": row.vm_state if ended is None else "terminated",
        "uptime": max(0, int((period.now if ended is None else ended) - row.launched_at)),
    }
