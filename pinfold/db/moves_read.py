"""Moves as the API lists them: operations that bring a server from one host to another."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db.models import Base
from pinfold.model import states

TYPES = {
    "resize": "resize",
    "migrate": "migration",
    "evacuate": "evacuation",
    "live_migrate": "live-migration",
}
_DURING = {states.SEND: "migrating", states.RECEIVE: "post-migrating", states.HAND_OVER: "running"}
_DONE = {"resize": "finished", "migrate": "finished", "evacuate": "done", "live_migrate": "completed"}
_ENDING = {"confirm_resize": "confirming", "revert_resize": "reverting"}


class MoveRow(msgspec.Struct, frozen=True):
    """A move. ``source`` and ``target`` are host and node, None until they are known.

    ``ending`` is the kind of the server's open operation, if it is this move that it is about to end.
    """

    id: str
    kind: str
    instance_id: str
    result: str | None
    arguments: dict[str, Any]
    request_id: str
    user_id: str
    project_id: str
    created_at: float
    updated_at: float | None
    ending: str | None = None

    @property
    def number(self) -> int:
        """The id where clients expect a number."""
        return int(self.id[:7], 16)

    @property
    def type(self) -> str:
        """The kind, by the name that clients know."""
        return TYPES[self.kind]

    @property
    def status(self) -> str:
        """How far it is, or how it ended, in the words that clients know."""
        if self.result is None:
            return _DURING.get(self.arguments.get("leg", ""), "pre-migrating")
        if self.result != "succeeded":
            return "cancelled" if self.arguments.get("aborted") else "error"
        if "outcome" in self.arguments:
            return str(self.arguments["outcome"])
        return _ENDING.get(self.ending or "", _DONE[self.kind])

    def place(self, end: str) -> tuple[str | None, str | None]:
        """Host and node of an end, ``source`` or ``target``."""
        host, node = self.arguments.get(end) or (None, None)
        return host, node

    @property
    def flavors(self) -> tuple[int | None, int | None]:
        """The numbers of the flavors before and after; an evacuation has none."""
        old, new = self.arguments.get("flavors") or (None, None)
        return old, new

    @property
    def address(self) -> str | None:
        """Where the target was reached."""
        return self.arguments.get("target_address")


_operations = Base.metadata.tables["operations"]
_instances = Base.metadata.tables["instances"]
_now = _operations.alias("open_operation")
_SELECT = (
    sa.select(*(_operations.c[name] for name in MoveRow.__struct_fields__[:-1]), _now.c.kind.label("ending"))
    .select_from(_operations)
    .outerjoin(
        _now,
        sa.and_(_now.c.open_key == _operations.c.instance_id, _now.c.kind.in_(list(_ENDING))),
    )
    .where(_operations.c.kind.in_(list(TYPES)))
)


def listed(
    session: Session,
    *,
    server: str | None = None,
    project: str | None = None,
    user: str | None = None,
    since: float | None = None,
    before: float | None = None,
) -> list[MoveRow]:
    """Moves, newest first."""
    columns = _operations.c
    query = _SELECT
    for column, value in (
        (columns.instance_id, server),
        (columns.project_id, project),
        (columns.user_id, user),
    ):
        if value is not None:
            query = query.where(column == value)
    if since is not None:
        query = query.where(columns.updated_at >= since)
    if before is not None:
        query = query.where(columns.updated_at <= before)
    rows = session.execute(query.order_by(columns.created_at.desc(), columns.id.desc()).limit(10_000))
    return [MoveRow(*row) for row in rows]
