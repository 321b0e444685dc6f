"""Who asks: travels with every message and stands in every log line."""

from __future__ import annotations

import msgspec


class Context(msgspec.Struct, frozen=True):
    """The caller of a request. ``request_id`` is ``req-<uuid>``; services themselves have no user."""

    request_id: str
    user_id: str | None = None
    project_id: str | None = None
    roles: tuple[str, ...] = ()

    @property
    def is_admin(self) -> bool:
        """Whether the caller has the role admin."""
        return "admin" in self.roles
