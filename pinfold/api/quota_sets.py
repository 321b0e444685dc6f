"""``/os-quota-sets``: limits of projects and of users in them, and what is used of them."""

from __future__ import annotations

from typing import Any

from pinfold.api import query as queries
from pinfold.api.call import Call
from pinfold.api.listing import allowed
from pinfold.api.schemas_around import shown_quotas
from pinfold.db import quotas as book_quotas
from pinfold.model import errors
from pinfold.model.quotas import UNLIMITED

USER_PARAMETERS = {"user_id": 1}
Amounts = dict[str, int]


def show(call: Call, project: str) -> dict[str, Any]:
    """The limits of a project, or of the user in it that ``user_id`` names."""
    user = _user(call, project)
    limits = call.deps.book.read(lambda session: _limits(session, call, project, user))
    return {"quota_set": {"id": project} | _shown(call, limits)}


def detail(call: Call, project: str) -> dict[str, Any]:
    """The limits, each with what is used."""
    user = _user(call, project)

    def read(session: Any) -> tuple[Amounts, Amounts]:
        return _limits(session, call, project, user), in_use(session, project, user)

    limits, used = call.deps.book.read(read)
    shown = {
        name: {"limit": limit, "in_use": used.get(name, 0), "reserved": 0}
        for name, limit in _shown(call, limits).items()
    }
    return {"quota_set": {"id": project} | shown}


def defaults(call: Call, project: str) -> dict[str, Any]:
    """What a project has that has no limits of its own."""
    _check_project(project)
    call.authorize(project)
    allowed(call, {}, 102)
    limits = call.deps.settings.quotas | call.deps.book.read(
        lambda session: book_quotas.class_limits(session, book_quotas.DEFAULT_CLASS)
    )
    return {"quota_set": {"id": project} | _shown(call, limits)}


def _user(call: Call, project: str) -> str:
    _check_project(project)
    call.authorize(project)
    user = queries.last(allowed(call, USER_PARAMETERS), "user_id") or ""
    if len(user) > 255:
        raise queries.bad("user_id", user, "at most 255 characters long")
    return user


def _check_project(project: str) -> None:
    if len(project) > 255 or not project.isprintable():
        raise errors.InvalidRequest(
            f"Project ID {project[:100]!r} is not a valid project.", code="invalid-project"
        )


def _limits(session: Any, call: Call, project: str, user: str) -> Amounts:
    """What counts for the user, if one is named, or else for the project."""
    may = book_quotas.limits(session, call.deps.settings.quotas, project, user)
    return may.project | may.user


def in_use(session: Any, project: str, user: str = "") -> Amounts:
    """What is used, counted now; of a user, if one is named."""
    servers = book_quotas.used_by_servers(session, project, user)
    groups = book_quotas.groups_of(session, project, user or None)
    return (servers.user if user else servers.project) | {"server_groups": groups}


def _shown(call: Call, limits: Amounts) -> Amounts:
    return {name: limits[name] for name in shown_quotas(call.minor, 36)}


# --- changes ----------------------------------------------------------------------------------------


def update(call: Call, project: str) -> dict[str, Any]:
    """Change limits; without ``force`` to no less than is used, and for a user to no more than the project has."""
    user = _user(call, project)
    wanted = dict(call.body["quota_set"])
    force = queries.boolean("force", str(wanted.pop("force", False)))
    changes = {name: limit_from(name, value) for name, value in wanted.items()}

    def write(session: Any) -> Amounts:
        book_quotas.lock(session, project)
        if not force:
            _check(session, call, project, user, changes)
        book_quotas.set_limits(session, project, user, changes)
        session.flush()
        return _limits(session, call, project, user)

    return {"quota_set": _shown(call, call.deps.book.write(write))}


def limit_from(name: str, value: Any) -> int:
    """The limit that a body gives. Raises InvalidRequest."""
    limit = int(value)
    if not UNLIMITED <= limit <= queries.BIGGEST:
        raise queries.bad(name, value, f"a number from -1 to {queries.BIGGEST}")
    return limit


def _check(session: Any, call: Call, project: str, user: str, changes: Amounts) -> None:
    used = in_use(session, project, user)
    others = book_quotas.users_limits(session, project, but=user)
    whole = book_quotas.limits(session, call.deps.settings.quotas, project).project
    for name, limit in changes.items():
        given = sum(max(0, limits.get(name, 0)) for limits in others)
        least = used.get(name, 0) if user else max(used.get(name, 0), given)
        if limit != UNLIMITED and limit < least:
            raise errors.InvalidRequest(
                f"Quota limit {limit} for {name} must be greater than or equal to already used and reserved {least}.",
                code="quota-in-use",
            )
        most = whole[name] - given
        if user and whole[name] != UNLIMITED and (limit == UNLIMITED or limit > most):
            raise errors.InvalidRequest(
                f"Quota limit {limit} for {name} must be less than or equal to {most}.",
                code="quota-too-large",
            )


def delete(call: Call, project: str) -> None:
    """Back to the defaults, for a user or for the project with all its users."""
    user = _user(call, project)
    call.deps.book.write(lambda session: book_quotas.drop_limits(session, project, user))
