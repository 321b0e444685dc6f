"""POST /servers/{id}/action: a table of actions. To add one: a line in ``ACTIONS`` and a function."""

from __future__ import annotations

from typing import Any, NoReturn

from pinfold.api import (
    console,
    locks,
    schemas,
    schemas_actions,
    schemas_moves,
    server_images,
    server_moves,
    server_power,
    server_rebuild,
    servers,
)
from pinfold.api.call import Call, Reply
from pinfold.api.faults import NotBuilt
from pinfold.api.places import check_place, check_zone, require_host_in_zone
from pinfold.api.server_power import in_place
from pinfold.api.starting import Action, Started, Write
from pinfold.db import instances as book_instances
from pinfold.db import quotas as book_quotas
from pinfold.db import starts
from pinfold.db.instances import Owned
from pinfold.db.models import Instance
from pinfold.model import errors
from pinfold.model.work import Bell


def act(call: Call, server: str) -> Reply:
    """Do the one action that the body names."""
    (key, value), *more = call.body.items()
    assert not more  # the schema allows one
    action = ACTIONS.get(key)
    if action is None:
        _refuse(call, server, key)
    action.body.check(value, call.minor)
    start = action.start(call, value)
    started = start if isinstance(start, Started) else None
    change = start.write if isinstance(start, Started) else start

    def write(session: Any) -> Bell:
        return change(session, servers.owned(session, call, server, action.rule, lock_matters=action.locks))

    call.deps.ring(call.deps.book.write(write), call.context)
    if started is not None:
        return started.reply()
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
    host = arguments.get("host")
    wrong = _wrong_place(call, host, arguments.get("availability_zone"))

    def write(session: Any, server: Owned) -> Bell:
        bell = starts.unshelve(
            session,
            server.id,
            call.requester,
            call.deps.times,
            operation_id=operation,
            arguments=arguments,
        )
        if wrong is not None:
            raise wrong
        if bell.run:
            # it is to have a place again, not only one under the quota
            instance = session.get_one(Instance, server.id)
            book_quotas.require_server(session, call.deps.settings.quotas, instance)
        zone = arguments.get("availability_zone", server.availability_zone)
        if host is not None and zone is not None:
            require_host_in_zone(session, call, host, zone)
        if "availability_zone" in arguments:
            book_instances.update(session, server.id, {"availability_zone": zone})
        return bell

    return write


def _wrong_place(call: Call, host: str | None, zone: str | None) -> errors.InvalidRequest | None:
    """What is wrong with where it is to be: said only once the server is known to be one that can be unshelved."""
    try:
        if zone is not None:
            check_zone(call, zone)
        check_place(call, host, None)
    except errors.InvalidRequest as error:
        return error
    return None


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
    "restore": Action("os-deferred-delete:restore", schemas.ANYTHING, server_power.restore),
    "os-start": Action("servers:start", schemas.ANYTHING, in_place("start")),
    "os-stop": Action("servers:stop", schemas.ANYTHING, in_place("stop")),
    "reboot": Action("servers:reboot", schemas_actions.REBOOT, server_power.reboot),
    "pause": Action("os-pause-server:pause", schemas.ANYTHING, in_place("pause")),
    "unpause": Action("os-pause-server:unpause", schemas.ANYTHING, in_place("unpause")),
    "suspend": Action("os-suspend-server:suspend", schemas.ANYTHING, in_place("suspend")),
    "resume": Action("os-suspend-server:resume", schemas.ANYTHING, in_place("resume")),
    "rebuild": Action("servers:rebuild", schemas_actions.REBUILD, server_rebuild.rebuild),
    "createImage": Action(
        "servers:create_image", schemas_actions.CREATE_IMAGE, server_images.create_image, locks=False
    ),
    "lock": Action("os-lock-server:lock", schemas_actions.LOCK, locks.lock, locks=False),
    "unlock": Action("os-lock-server:unlock", schemas.ANYTHING, locks.unlock, locks=False),
    "os-resetState": Action(
        "os-admin-actions:reset_state", schemas_actions.RESET_STATE, server_power.reset_state, locks=False
    ),
    "os-getConsoleOutput": Action(
        "os-console-output", schemas_actions.CONSOLE, console.output, 200, locks=False
    ),
}

# Actions of the compute API that this cloud does not have: the microversions where the API has them.
NOT_BUILT: dict[str, tuple[int, int]] = {
    "addFixedIp": (1, 43),
    "addFloatingIp": (1, 43),
    "addSecurityGroup": (1, 104),
    "changePassword": (1, 104),
    "createBackup": (1, 104),
    "os-getRDPConsole": (1, 5),
    "os-getSPICEConsole": (1, 5),
    "os-getSerialConsole": (1, 5),
    "os-getVNCConsole": (1, 5),
    "removeFixedIp": (1, 43),
    "removeFloatingIp": (1, 43),
    "removeSecurityGroup": (1, 104),
    "rescue": (1, 104),
    "resetNetwork": (1, 91),
    "injectNetworkInfo": (1, 91),
    "trigger_crash_dump": (17, 104),
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
