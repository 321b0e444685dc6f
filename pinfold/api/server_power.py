"""Actions that are an operation of one kind on the server's own host, and an admin's word on its state."""

from __future__ import annotations

from typing import Any

from pinfold.api.call import Call
from pinfold.api.starting import Start, Write
from pinfold.db import quotas as book_quotas
from pinfold.db import resets, starts
from pinfold.db.instances import Owned
from pinfold.db.models import Instance
from pinfold.model.work import Bell


def in_place(kind: str) -> Start:
    """Start an operation of ``kind``."""

    def start(call: Call, value: Any) -> Write:
        return _open(call, kind)

    return start


def reboot(call: Call, value: Any) -> Write:
    """Softly or hard."""
    return _open(call, "hard_reboot" if value["type"].upper() == "HARD" else "reboot")


def restore(call: Call, value: Any) -> Write:
    """Have a soft-deleted server again, which counts from now on as it did before."""
    begin = _open(call, "restore")

    def write(session: Any, server: Owned) -> Bell:
        bell = begin(session, server)
        if bell.work:
            session.flush()
            instance = session.get_one(Instance, server.id)
            book_quotas.require_server(session, call.deps.settings.quotas, instance)
        return bell

    return write


def _open(call: Call, kind: str) -> Write:
    operation = call.new_id()
    call.deps.compute.require(kind)

    def write(session: Any, server: Owned) -> Bell:
        return starts.in_place(
            session, server.id, kind, call.requester, call.deps.times, operation_id=operation
        )

    return write


def reset_state(call: Call, value: Any) -> Write:
    """Active or error, whatever it is now."""
    operation = call.new_id()

    def write(session: Any, server: Owned) -> Bell:
        resets.reset_state(
            session, server.id, value["state"], call.requester, call.deps.times, operation_id=operation
        )
        return Bell()

    return write
