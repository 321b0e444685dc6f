"""Servers that somebody has locked, and how they do that."""

from __future__ import annotations

from typing import Any

from pinfold.api.call import Call
from pinfold.api.starting import Write
from pinfold.db import locks
from pinfold.db.instances import Owned
from pinfold.model import errors
from pinfold.model.work import Bell

_REASONS_SINCE = 73


def require_unlocked(call: Call, server: Owned) -> None:
    """Raise Conflict when the server is locked; an admin is never stopped by a lock."""
    if server.locked_by is not None and not call.is_admin:
        raise errors.Conflict(f"Instance {server.id} is locked", code="locked")


def lock(call: Call, value: Any) -> Write:
    """Keep everybody but admins from changing the server."""
    operation = call.new_id()
    reason = value.get("locked_reason") if call.minor >= _REASONS_SINCE and isinstance(value, dict) else None

    def write(session: Any, server: Owned) -> Bell:
        by = _who(call, server)
        locks.lock(session, server.id, by, reason, call.requester, call.deps.times, operation_id=operation)
        return Bell()

    return write


def unlock(call: Call, value: Any) -> Write:
    """Let everybody change it again; what an admin has locked, only an admin unlocks."""
    operation = call.new_id()

    def write(session: Any, server: Owned) -> Bell:
        if server.locked_by not in (None, _who(call, server)):
            call.require("os-lock-server:unlock:unlock_override", server.project_id, server.user_id)
        locks.unlock(session, server.id, call.requester, call.deps.times, operation_id=operation)
        return Bell()

    return write


def _who(call: Call, server: Owned) -> str:
    return locks.OWNER if call.project == server.project_id else locks.ADMIN
