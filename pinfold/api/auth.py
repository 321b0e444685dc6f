"""Who is calling: ``noauth`` takes the caller's word, ``keystone`` asks keystonemiddleware."""

from __future__ import annotations

from collections.abc import Callable

import falcon

from pinfold.api.faults import Unauthorized
from pinfold.conf import checks
from pinfold.rpcapi.context import Context

Authenticate = Callable[[falcon.Request, str], Context]
"""Who makes this request (whose id is given). Raises Unauthorized."""

_IMPLIED = {"admin": ("manager", "member", "reader"), "manager": ("member", "reader"), "member": ("reader",)}
_ADMIN = (None, "", "notused")
LONGEST = 255


def noauth(req: falcon.Request, request_id: str) -> Context:
    """``X-Auth-Token: USER:PROJECT[:ROLE,...]``; user ``admin`` has role admin; without a token, admin of admin."""
    token = req.get_header("X-Auth-Token")
    if token in _ADMIN:
        token = "admin:admin"
    user, _, rest = (token or "").partition(":")
    project, _, roles = rest.partition(":")
    if (
        not (user and project and rest.isprintable() and user.isprintable())
        or max(len(user), len(project)) > LONGEST
    ):
        raise Unauthorized("X-Auth-Token must be USER:PROJECT[:ROLE,...] with auth_strategy noauth.")
    given = {role.strip().lower() for role in roles.split(",") if role.strip()}
    if user == "admin":
        given.add("admin")
    return Context(request_id, user, project, _with_implied(given or {"member"}))


def _with_implied(roles: set[str]) -> tuple[str, ...]:
    return tuple(sorted(roles.union(*(_IMPLIED.get(role, ()) for role in roles))))


def keystone(req: falcon.Request, request_id: str) -> Context:
    """From the headers that keystonemiddleware's ``auth_token`` sets, and clears when a client sends them."""
    if req.get_header("X-Identity-Status") != "Confirmed":
        raise Unauthorized("The request you have made requires authentication.")
    user, project = req.get_header("X-User-Id"), req.get_header("X-Project-Id")
    if not user or not project:
        raise Unauthorized("A token scoped to a project is required.")
    roles = {role.strip().lower() for role in (req.get_header("X-Roles") or "").split(",") if role.strip()}
    return Context(request_id, user, project, tuple(sorted(roles)))


STRATEGIES: dict[str, Authenticate] = {"noauth": noauth, "keystone": keystone}


def check_bind(strategy: str, host: str) -> None:
    """Raise errors.ConfigurationError when anybody on the network could say that they are admin."""
    checks.require(checks.reachable(strategy, host))
