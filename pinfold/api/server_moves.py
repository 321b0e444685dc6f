"""Actions that move a server: resize, migrate, and what ends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinfold.api import sizes
from pinfold.api.call import Call
from pinfold.api.places import check_place
from pinfold.db import moves
from pinfold.db import quotas as book_quotas
from pinfold.db.instances import Owned
from pinfold.db.models import Instance
from pinfold.model.work import Bell

Write = Callable[[Any, Owned], Bell]


def resize(call: Call, value: Any) -> Write:
    """To another flavor."""
    operation, image = call.new_id(), call.new_id()
    flavor = sizes.chosen(call, value["flavorRef"])

    def write(session: Any, server: Owned) -> Bell:
        row = session.get(Instance, server.id)
        size = moves.Size(sizes.copy(flavor), sizes.demand(flavor, row.image_properties))
        bell = moves.resize(
            session,
            server.id,
            call.requester,
            call.deps.times,
            operation_id=operation,
            image_id=image,
            size=size,
        )
        more = {
            "cores": max(0, flavor.vcpus - row.flavor["vcpus"]),
            "ram": max(0, flavor.memory_mb - row.flavor["memory_mb"]),
        }
        if any(more.values()):
            book_quotas.require_servers(
                session, call.deps.settings.quotas, server.project_id, server.user_id, more
            )
        return bell

    return write


def migrate(call: Call, value: Any) -> Write:
    """To another host, of choice or not."""
    operation, image = call.new_id(), call.new_id()
    host = value.get("host") if call.minor >= 56 and isinstance(value, dict) else None
    if host is not None:
        call.require("os-migrate-server:migrate:host")
    check_place(call, host, None)

    def write(session: Any, server: Owned) -> Bell:
        return moves.migrate(
            session,
            server.id,
            call.requester,
            call.deps.times,
            operation_id=operation,
            image_id=image,
            host=host,
        )

    return write


def confirm(call: Call, value: Any) -> Write:
    """Give the old place up."""
    return _end(call, moves.confirm)


def revert(call: Call, value: Any) -> Write:
    """Go back to the old place."""
    return _end(call, moves.revert)


def _end(call: Call, start: Callable[..., Bell]) -> Write:
    operation = call.new_id()

    def write(session: Any, server: Owned) -> Bell:
        return start(session, server.id, call.requester, call.deps.times, operation_id=operation)

    return write
