"""A server's metadata: texts by name, which only users read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinfold.api import servers
from pinfold.api.call import Call
from pinfold.db import instances as book_instances
from pinfold.db import quotas as book_quotas
from pinfold.db.instances import Owned
from pinfold.db.session import may_be_done
from pinfold.model import errors, quotas, states

_CHANGEABLE = (states.ACTIVE, states.PAUSED, states.SUSPENDED, states.STOPPED)
Meta = dict[str, str]
Change = Callable[[Meta], Meta]


def index(call: Call, server: str) -> dict[str, Any]:
    """All items."""
    return {"metadata": servers.found(call, server).meta}


def show(call: Call, server: str, key: str) -> dict[str, Any]:
    """One item."""
    meta = servers.found(call, server).meta
    if key not in meta:
        raise _not_found()
    return {"meta": {key: meta[key]}}


# What bodies ask of known items; images have such items too.


def added(call: Call) -> Change:
    """The items of the body, beside those that there are."""
    return lambda known: known | call.body["metadata"]


def replaced(call: Call) -> Change:
    """The items of the body, and no others."""
    return lambda known: call.body["metadata"]


def set_to(call: Call, key: str, mismatch: str) -> Change:
    """The one item that both the URL and the body name."""
    item: Meta = call.body["meta"]
    if key not in item:
        raise errors.InvalidRequest(mismatch, code="invalid-field")
    return lambda known: known | item


def without(key: str, missing: errors.NotFound) -> Change:
    """All but one; it is ``missing`` if it is not there."""

    def change(known: Meta) -> Meta:
        if key not in known:
            raise missing
        return {name: value for name, value in known.items() if name != key}

    return change


def add(call: Call, server: str) -> dict[str, Any]:
    """Add or change items."""
    return {"metadata": _change(call, server, added(call))}


def replace(call: Call, server: str) -> dict[str, Any]:
    """Replace them all."""
    return {"metadata": _change(call, server, replaced(call))}


def set_one(call: Call, server: str, key: str) -> dict[str, Any]:
    """Set the one item that both the URL and the body name."""
    _change(call, server, set_to(call, key, "Request body and URI mismatch: meta"))
    return {"meta": call.body["meta"]}


def remove(call: Call, server: str, key: str) -> None:
    """Remove one item."""
    _change(call, server, without(key, _not_found()))


def _change(call: Call, server: str, change: Change) -> Meta:
    def write(session: Any) -> Meta:
        row = servers.owned(session, call, server, call.policy)
        if row.vm_state not in _CHANGEABLE:
            raise errors.Conflict(
                f"Cannot change the metadata of instance {row.id} while it is in vm_state {row.vm_state}.",
                code="wrong-state",
            )
        known = book_instances.locked_meta(session, row.id)
        try:
            meta = change(known)
        except errors.NotFound:
            if not may_be_done(session):
                raise
            meta = known
        check_room(session, call, row, meta)
        book_instances.update(session, row.id, {"meta": meta})
        return meta

    return call.deps.book.write(write)


def check_room(session: Any, call: Call, row: Owned, meta: Meta) -> None:
    """Raise OverQuota when these are more than a server may have."""
    may = book_quotas.limits(session, call.deps.settings.quotas, row.project_id, row.user_id)
    most = (may.project | may.user)["metadata_items"]
    if not quotas.is_enough(most, len(meta)):
        raise quotas.OverQuota(f"Maximum number of metadata items exceeds {most}.")


def _not_found() -> errors.NotFound:
    return errors.NotFound("Metadata item was not found", code="metadata-not-found")
