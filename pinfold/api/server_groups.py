"""``/os-server-groups``: servers that are to be on one host, or on different ones."""

from __future__ import annotations

from typing import Any

from pinfold.api import query as queries
from pinfold.api.call import Call, as_uuid
from pinfold.api.listing import allowed, limit_of
from pinfold.db import quotas as book_quotas
from pinfold.db import server_groups as book_groups
from pinfold.db.server_groups import GroupRow
from pinfold.db.session import may_be_done
from pinfold.model import errors, quotas
from pinfold.model.groups import ANTI_AFFINITY

LIST_PARAMETERS = {"all_projects": 1, "limit": 1, "offset": 1}
_MOST = "max_server_per_host"


def index(call: Call) -> dict[str, Any]:
    """The groups of the caller's project, or (for an admin) of all."""
    call.authorize(call.project)
    query = allowed(call, LIST_PARAMETERS)
    everybody = "all_projects" in query and call.allows("os-server-groups:index:all_projects")
    project = None if everybody else call.project
    limit, offset = limit_of(call), queries.number(query, "offset") or 0
    rows = call.deps.book.read(lambda session: book_groups.listed(session, project, limit, offset))
    return {"server_groups": [_view(call, row) for row in rows]}


def show(call: Call, group: str) -> dict[str, Any]:
    """One group."""
    allowed(call, {}, 102)
    return {"server_group": _view(call, _found(call, group))}


def _found(call: Call, group: str) -> GroupRow:
    """The group, for which the caller may do this route's rule. Raises NotFound, Forbidden."""
    id_ = as_uuid(group)
    row = call.deps.book.read(lambda session: book_groups.get(session, id_)) if id_ else None
    if row is None or call.sees_project not in (None, row.project_id):
        raise errors.NotFound(f"Instance group {group[:100]} could not be found.", code="group-not-found")
    call.authorize(row.project_id)
    return row


def _view(call: Call, row: GroupRow) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": row.id, "name": row.name, "members": list(row.members)}
    if call.minor >= 64:
        rules = {} if row.most_per_host is None else {_MOST: row.most_per_host}
        shown |= {"policy": row.policy, "rules": rules}
    else:
        shown |= {"policies": [row.policy], "metadata": {}}
    if call.minor >= 13:
        shown |= {"project_id": row.project_id, "user_id": row.user_id}
    return shown


def create(call: Call) -> dict[str, Any]:
    """A new group, without members: servers join when they are made, by the hint ``group``."""
    call.authorize(call.project)
    wanted = call.body["server_group"]
    policy = wanted["policy"] if call.minor >= 64 else wanted["policies"][0]
    rules = wanted.get("rules", {})
    if rules and policy != ANTI_AFFINITY:
        raise errors.InvalidRequest("Only anti-affinity policy supports rules.", code="invalid-field")
    most = int(rules[_MOST]) if rules else None
    row = GroupRow(call.new_id(), call.project, call.user, wanted["name"], policy, most)
    call.deps.book.write(lambda session: _write(session, call, row))
    return {"server_group": _view(call, row)}


def _write(session: Any, call: Call, row: GroupRow) -> None:
    if may_be_done(session) and book_groups.get(session, row.id) is not None:
        return
    project, user = row.project_id, row.user_id
    may = book_quotas.locked_limits(session, call.deps.settings.quotas, project, user)
    one = {"server_groups": 1}
    for scope, limits, owner in (("project", may.project, None), ("user", may.user, user)):
        if "server_groups" in limits:
            used = {"server_groups": book_quotas.groups_of(session, project, owner)}
            quotas.require(scope, limits, used, one)
    book_groups.add(session, row)


def delete(call: Call, group: str) -> None:
    """Remove it; its members go on, free to be anywhere."""
    row = _found(call, group)
    if not call.deps.book.write(lambda session: book_groups.delete(session, row.id)):
        raise errors.NotFound(f"Instance group {group[:100]} could not be found.", code="group-not-found")
