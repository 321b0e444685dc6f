"""Actions that move a server: resize, migrate, and what ends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinfold.api import query as queries
from pinfold.api import sizes
from pinfold.api.call import Call
from pinfold.api.places import check_place
from pinfold.api.server_create import random_text
from pinfold.db import instances as book_instances
from pinfold.db import moves
from pinfold.db import quotas as book_quotas
from pinfold.db.instances import Owned
from pinfold.db.models import Instance
from pinfold.model import errors
from pinfold.model.work import Bell

_NO_PASSWORD_SINCE = _LOOKS_FOR_DISK_SINCE = 14
_STOPS_SINCE = 95

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
        old, new = book_quotas.one_server(row.flavor), book_quotas.one_server(size.flavor)
        more = {name: new[name] - old[name] for name in new if new[name] > old[name]}
        if more:
            # with the operation that has just been written, it counts as large as it is to be
            quotas = call.deps.settings.quotas
            book_quotas.require_servers(session, quotas, server.project_id, server.user_id, more)
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


def migrate_live(call: Call, value: Any) -> Write:
    """To another host while it runs."""
    operation, host = call.new_id(), value.get("host")
    _refuse_forced_to_nowhere(value)
    if host is not None:
        call.require("os-migrate-server:migrate_live:host")
    check_place(call, host, None)

    def write(session: Any, server: Owned) -> Bell:
        return moves.live_migrate(
            session, server.id, call.requester, call.deps.times, operation_id=operation, host=host
        )

    return write


def evacuate(call: Call, value: Any) -> Write:
    """Off a host that is dead; from 2.95 on it is shut down after that."""
    operation = call.new_id()
    _refuse_forced_to_nowhere(value)
    host, shared = value.get("host"), _on_shared_storage(call, value)
    if host is not None and not call.deps.book.read(lambda session: book_instances.knows_host(session, host)):
        raise errors.NotFound(f"Compute host {host} could not be found.", code="unknown-host")

    def write(session: Any, server: Owned) -> Bell:
        return moves.evacuate(
            session,
            server.id,
            call.requester,
            call.deps.times,
            operation_id=operation,
            host=host,
            stops=call.minor >= _STOPS_SINCE,
            shared_storage=shared,
        )

    return write


def _refuse_forced_to_nowhere(value: Any) -> None:
    """``force`` passed over the scheduler in older versions. A claim is always tested, but a host has to be named."""
    if queries.boolean("force", str(value.get("force", False))) and value.get("host") is None:
        raise errors.InvalidRequest("Can't force to a non-provided destination", code="force-without-host")


def _on_shared_storage(call: Call, value: Any) -> bool | None:
    """What the request says of the server's disk: nothing from 2.14 on."""
    if call.minor >= _LOOKS_FOR_DISK_SINCE:
        return None
    shared = queries.boolean("onSharedStorage", str(value["onSharedStorage"]))
    if shared and "adminPass" in value:
        raise errors.InvalidRequest(
            "admin password can't be changed on existing disk", code="password-on-disk"
        )
    return shared


def evacuated(call: Call, value: Any) -> Any:
    """The body of the answer to an evacuation: none from 2.14 on."""
    if call.minor >= _NO_PASSWORD_SINCE or not call.deps.settings.enable_instance_password:
        return None
    if _on_shared_storage(call, value):
        return {"adminPass": None}
    return {"adminPass": value.get("adminPass") or random_text(call, call.deps.settings.password_length)}


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
