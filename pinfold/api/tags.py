"""A server's tags: texts to find it by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinfold.api import servers
from pinfold.api.call import Call, Reply
from pinfold.api.schemas import TAGS
from pinfold.api.schemas_actions import TAGS_BODY
from pinfold.db import instances as book_instances
from pinfold.db.session import may_be_done
from pinfold.model import errors, states

MOST: int = TAGS["maxItems"]
_CHANGEABLE = (states.ACTIVE, states.PAUSED, states.SUSPENDED, states.STOPPED)
Tags = list[str]
Change = Callable[[Tags, Any], Tags]


def index(call: Call, server: str) -> dict[str, Any]:
    """All of them."""
    return {"tags": servers.found(call, server).tags}


def show(call: Call, server: str, tag: str) -> Reply:
    """Whether it has one: 204, or 404."""
    if tag not in servers.found(call, server).tags:
        raise _not_found(server, tag)
    return Reply(status=204)


def add(call: Call, server: str, tag: str) -> Reply:
    """Add one: 201, or 204 if it has it."""
    TAGS_BODY.check({"tags": [tag]}, call.minor)
    is_new = False

    def with_it(known: Tags, session: Any) -> Tags:
        nonlocal is_new
        if tag in known:
            return known
        if len(known) >= MOST:
            raise errors.InvalidRequest(
                f"The number of tags exceeded the per-server limit {MOST}", code="too-many-tags"
            )
        is_new = True
        return [*known, tag]

    id_ = _change(call, server, with_it)[0]
    if not is_new:
        return Reply(status=204)
    return Reply(status=201, headers={"Location": f"{call.base}/v2.1/servers/{id_}/tags/{tag}"})


def replace(call: Call, server: str) -> dict[str, Any]:
    """Replace them all."""
    return {"tags": _change(call, server, lambda known, _session: call.body["tags"])[1]}


def remove(call: Call, server: str, tag: str) -> None:
    """Remove one."""

    def without(known: Tags, session: Any) -> Tags:
        if tag not in known and not may_be_done(session):
            raise _not_found(server, tag)
        return [other for other in known if other != tag]

    _change(call, server, without)


def clear(call: Call, server: str) -> None:
    """Remove all."""
    _change(call, server, lambda known, _session: [])


def _change(call: Call, server: str, change: Change) -> tuple[str, Tags]:
    def write(session: Any) -> tuple[str, Tags]:
        row = servers.owned(session, call, server, call.policy, lock_matters=False)
        if row.vm_state not in _CHANGEABLE:
            raise errors.Conflict(
                f"Cannot change the tags of instance {row.id} while it is in vm_state {row.vm_state}.",
                code="wrong-state",
            )
        tags = change(book_instances.locked_tags(session, row.id), session)
        book_instances.update(session, row.id, {"tags": tags})
        return row.id, tags

    return call.deps.book.write(write)


def _not_found(server: str, tag: str) -> errors.NotFound:
    return errors.NotFound(f"Server {server[:100]} has no tag '{tag[:100]}'", code="tag-not-found")
