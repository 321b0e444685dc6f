"""Servers that somebody has locked."""

from __future__ import annotations

from pinfold.api.call import Call
from pinfold.db.instances import Owned
from pinfold.model import errors


def require_unlocked(call: Call, server: Owned) -> None:
    """Raise Conflict when the server is locked; an admin is never stopped by a lock."""
    if server.locked_by is not None and not call.is_admin:
        raise errors.Conflict(f"Instance {server.id} is locked", code="locked")
