"""Who asks: travels with every message and stands in every log line."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

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


class _LogContext(oslo_context.RequestContext):
    """What oslo.log's formatters look up: oslo.context's own values, and the operation."""

    def __init__(self, context: Context, operation: str | None) -> None:
        self.operation = operation
        super().__init__(
            request_id=context.request_id,
            user_id=context.user_id,
            project_id=context.project_id,
            roles=list(context.roles),
            overwrite=True,
        )

    def get_logging_values(self) -> dict[str, Any]:
        """With ``-`` for what there is not, as lines of text have it."""
        values: dict[str, Any] = super().get_logging_values()
        named = {"user_id": self.user_id, "project_id": self.project_id, "operation": self.operation}
        return values | {name: value or "-" for name, value in named.items()}


_standing: ContextVar[Context | None] = ContextVar("standing", default=None)


def stand_in_logs(context: Context, operation: str | None = None) -> None:
    """From here on, the log lines of this thread name ``context`` and the operation that it is about."""
    _LogContext(context, operation)
    _standing.set(context)


def leave_logs() -> None:
    """From here on, the log lines of this thread name nobody."""
    _LogContext(Context("-"), None)
    _standing.set(None)


def standing() -> Context | None:
    """Whom the log lines of this thread name."""
    return _standing.get()
