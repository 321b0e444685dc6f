"""POST /servers/{id}/action: a table of actions. To add one: a line in ``ACTIONS`` and a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from pinfold.api import schemas, schemas_moves, server_moves, servers
from pinfold.api.call import Call, Reply
from pinfold.api.faults import NotBuilt
from pinfold.api.places import check_place, check_zone, require_host_in_zone
from pinfold.api.schemas import Body
from pinfold.db import instances as book_instances
from pinfold.db import quotas as book_quotas
from pinfold.db import starts
from pinfold.db.instances import Owned
from pinfold.model import errors
from pinfold.model.work import Bell

Write = Callable[[Any, Owned], Bell]
"""What an action writes: given the session and the server, which the caller may act on."""

Start = Callable[[Call, Any], Write]
"""Looks at the body, and makes the Write."""


class Action(msgspec.Struct, frozen=True):
    """An action: its policy rule, the schema of its value, and how it starts.

    ``locks``: a lock on the server is heeded. ``answer`` makes the body of the reply.
    """

    rule: str
    body: Body
    start: Start
    status: int = 202
    locks: bool = True
    answer: Callable[[Call, Any], Any] | None = None


def act(call: Call, server: str) -> Reply:
    """Do the one action that the body names."""
    (key, value), *more = call.body.items()
    assert not more  # the schema allows one
    action = ACTIONS.get(key)
    if action is None:
        _refuse(call, server, key)
    action.body.check(value, call.minor)
    start = action.start(call, value)

    def write(session: Any) -> Bell:
        return start(session, servers.owned(session, call, server, action.rule, lock_matters=action.locks))

    call.deps.ring(call.deps.book.write(write), call.context)
    return Reply(action.answer(call, value) if action.answer else None, status=action.status)


def _shelve(call: Call, value: Any) -> Write:
    operation, image = call.new_id(), call.new_id()

    def write(session: Any, server: Owned) -> Bell:
        return starts.shelve(
            session,
            server.id,
            call.requester,
            call.deps.times,
            operation_id=operation,
            image_id=image,
            image_name=f"{server.name[:247]}-shelved",
            image_properties={
                "base_image_ref": server.image_ref,
                "image_type": "snapshot",
                "instance_uuid": server.id,
            },
        )

    return write


def _shelve_offload(call: Call, value: Any) -> Write:
    operation = call.new_id()

    def write(session: Any, server: Owned) -> Bell:
        return starts.shelve_offload(
            session, server.id, call.requester, call.deps.times, operation_id=operation
        )

    return write


def _unshelve(call: Call, value: Any) -> Write:
    operation = call.new_id()
    arguments = dict(value) if call.minor >= 77 and isinstance(value, dict) else {}
    if "host" in arguments:
        call.require("os-shelve:unshelve_to_host")
    if arguments.get("availability_zone") is not None:
        check_zone(call, arguments["availability_zone"])
    host = arguments.get("host")
    check_place(call, host, None)

    def write(session: Any, server: Owned) -> Bell:
        bell = starts.unshelve(
            session,
            server.id,
            call.requester,
            call.deps.times,
            operation_id=operation,
            arguments=arguments,
        )
        if bell.run:
            # it is to have a place again, not only one under the quota
            book_quotas.require_servers(session, call.deps.settings.quotas, server.project_id, server.user_id)
        zone = arguments.get("availability_zone", server.availability_zone)
        if host is not None and zone is not None:
            require_host_in_zone(session, call, host, zone)
        if "availability_zone" in arguments:
            book_instances.update(session, server.id, {"availability_zone": zone})
        return bell

    return write


def _force_delete(call: Call, value: Any) -> Write:
    operation = call.new_id()

    def write(session: Any, server: Owned) -> Bell:
        return starts.delete(
            session, server.id, call.requester, call.deps.times, operation_id=operation, force=True
        )

    return write


ACTIONS = {
    "shelve": Action("os-shelve:shelve", schemas.ANYTHING, _shelve),
    "shelveOffload": Action("os-shelve:shelve_offload", schemas.ANYTHING, _shelve_offload),
    "unshelve": Action("os-shelve:unshelve", schemas.UNSHELVE, _unshelve),
    "resize": Action("servers:resize", schemas_moves.RESIZE, server_moves.resize),
    "migrate": Action("os-migrate-server:migrate", schemas_moves.MIGRATE, server_moves.migrate),
    "confirmResize": Action("servers:confirm_resize", schemas.ANYTHING, server_moves.confirm, 204),
    "revertResize": Action("servers:revert_resize", schemas.ANYTHING, server_moves.revert),
    "os-migrateLive": Action(
        "os-migrate-server:migrate_live", schemas_moves.MIGRATE_LIVE, server_moves.migrate_live
    ),
    "evacuate": Action(
        "os-evacuate", schemas_moves.EVACUATE, server_moves.evacuate, 200, False, server_moves.evacuated
    ),
    "forceDelete": Action("os-deferred-delete:force", schemas.ANYTHING, _force_delete),
}

# Actions of the compute API that this cloud does not have: the microversions where the API has them.
NOT_BUILT: dict[str, tuple[int, int]] = {
    "addFixedIp": (1, 43),
    "addFloatingIp": (1, 43),
    "addSecurityGroup": (1, 104),
    "changePassword": (1, 104),
    "createBackup": (1, 104),
    "createImage": (1, 104),
    "lock": (1, 104),
    "os-getConsoleOutput": (1, 104),
    "os-getRDPConsole": (1, 5),
    "os-getSPICEConsole": (1, 5),
    "os-getSerialConsole": (1, 5),
    "os-getVNCConsole": (1, 5),
    "os-resetState": (1, 104),
    "os-start": (1, 104),
    "os-stop": (1, 104),
    "pause": (1, 104),
    "reboot": (1, 104),
    "rebuild": (1, 104),
    "removeFixedIp": (1, 43),
    "removeFloatingIp": (1, 43),
    "removeSecurityGroup": (1, 104),
    "rescue": (1, 104),
    "resetNetwork": (1, 91),
    "injectNetworkInfo": (1, 91),
    "restore": (1, 104),
    "resume": (1, 104),
    "suspend": (1, 104),
    "trigger_crash_dump": (17, 104),
    "unlock": (1, 104),
    "unpause": (1, 104),
    "unrescue": (1, 104),
}


def _refuse(call: Call, server: str, key: str) -> NoReturn:
    """Say which kind of no it is: no such action at all, not at this microversion, no such server, not built."""
    known = NOT_BUILT.get(key)
    if known is None:
        raise errors.InvalidRequest(f"There is no such action: {key[:100]}", code="unknown-action")
    if not known[0] <= call.minor <= known[1]:
        raise errors.NotFound("The resource could not be found.", code="not-at-this-microversion")
    call.policy = "servers:show"
    servers.found(call, server)
    raise NotBuilt(f"This cloud does not have the action {key}.")
