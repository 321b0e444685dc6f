"""Projects that may see and use a flavor which is not public."""

from __future__ import annotations

from typing import Any

from oslo_db import exception as db_errors

from pinfold.api.call import Call
from pinfold.api.flavors import found, not_found
from pinfold.api.listing import allowed
from pinfold.db import flavors as book_flavors
from pinfold.model import errors

ADD, REMOVE = "addTenantAccess", "removeTenantAccess"
_RULES = {ADD: "os-flavor-access:add_tenant_access", REMOVE: "os-flavor-access:remove_tenant_access"}


def index(call: Call, flavor: str) -> dict[str, Any]:
    """Who may use it; everybody may use a public one, which therefore has no list."""
    call.authorize(call.project)
    allowed(call, {}, 102)
    row = found(call, flavor)
    if row.is_public:
        raise errors.NotFound("Access list not available for public flavors.", code="flavor-is-public")
    return _view(call, row.flavorid)


def act(call: Call, flavor: str) -> dict[str, Any]:
    """Let a project use it, or no more: the one thing that the body names."""
    ((action, value),) = call.body.items()
    call.require(_RULES[action])
    row, project = found(call, flavor), value["tenant"]
    if action == REMOVE:
        if not call.deps.book.write(lambda session: book_flavors.take_back(session, row.flavorid, project)):
            raise errors.NotFound(
                f"Flavor access not found for {row.flavorid} / {project[:100]} combination.",
                code="flavor-access-not-found",
            )
        return _view(call, row.flavorid)
    if row.is_public and call.minor >= 7:
        raise errors.Conflict("Can not add access to a public flavor.", code="flavor-is-public")
    try:
        given = call.deps.book.write(lambda session: book_flavors.give(session, row.flavorid, project))
    except db_errors.DBDuplicateEntry:
        raise errors.Conflict(
            f"Flavor access already exists for flavor {row.flavorid} and project {project[:100]} combination.",
            code="flavor-access-exists",
        ) from None
    if not given:
        raise not_found(flavor)
    return _view(call, row.flavorid)


def _view(call: Call, flavor: str) -> dict[str, Any]:
    projects = call.deps.book.read(lambda session: book_flavors.access(session, flavor))
    return {"flavor_access": [{"flavor_id": flavor, "tenant_id": project} for project in projects]}
