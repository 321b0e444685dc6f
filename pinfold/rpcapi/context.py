"""Who asks: travels with every message and stands in every log line."""

from __future__ import annotations

import msgspec
from oslo_context import context as oslo_context


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


def stand_in_logs(context: Context) -> None:
    """From here on, the log lines of this thread name ``context`` (oslo.log's formatter looks it up)."""
    oslo_context.RequestContext(
        request_id=context.request_id,
        user_id=context.user_id,
        project_id=context.project_id,
        roles=list(context.roles),
        overwrite=True,
    )
