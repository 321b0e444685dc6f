"""``/os-quota-class-sets``: default limits. Only the class named ``default`` counts for anybody."""

from __future__ import annotations

from typing import Any

from pinfold.api.call import Call
from pinfold.api.listing import allowed
from pinfold.api.quota_sets import limit_from
from pinfold.api.schemas_around import shown_quotas
from pinfold.db import quotas as book_quotas
from pinfold.model import errors

_GROUPS_SINCE = 50


def show(call: Call, quota_class: str) -> dict[str, Any]:
    """The limits of a class; what it does not set is as the options have it."""
    call.authorize(call.project)
    allowed(call, {}, 102)
    _check(quota_class)
    return {"quota_class_set": {"id": quota_class} | _limits(call, quota_class)}


def update(call: Call, quota_class: str) -> dict[str, Any]:
    """Change limits of a class."""
    call.authorize(call.project)
    _check(quota_class)
    changes = {name: limit_from(name, value) for name, value in call.body["quota_class_set"].items()}
    call.deps.book.write(lambda session: book_quotas.set_class_limits(session, quota_class, changes))
    return {"quota_class_set": _limits(call, quota_class)}


def _check(name: str) -> None:
    if len(name) > 255 or not name.isprintable():
        raise errors.InvalidRequest(
            "quota_class_name must be printable and at most 255 characters long.", code="invalid-field"
        )


def _limits(call: Call, name: str) -> dict[str, int]:
    own = call.deps.book.read(lambda session: book_quotas.class_limits(session, name))
    limits = call.deps.settings.quotas | own
    shown = shown_quotas(call.minor, 50)
    if call.minor < _GROUPS_SINCE:
        shown = [name for name in shown if name not in ("server_groups", "server_group_members")]
    return {name: limits[name] for name in shown}
