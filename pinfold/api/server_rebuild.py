"""Rebuild: a new disk from an image, for a server that stays where it is."""

from __future__ import annotations

from typing import Any

import msgspec

from pinfold.api import boot_images, sizes
from pinfold.api import query as queries
from pinfold.api import server_views as views
from pinfold.api.call import Call, Reply
from pinfold.api.metadata import check_room
from pinfold.api.server_create import check_key, random_text
from pinfold.api.starting import Started
from pinfold.db import instances as book_instances
from pinfold.db import operations as book_operations
from pinfold.db import starts
from pinfold.db.instances import Owned, Server
from pinfold.image.store import Image
from pinfold.model import errors
from pinfold.model.rebuild import Rebuild
from pinfold.model.work import Bell

_KEY_SINCE, _USER_DATA_SINCE = 54, 57
_COLUMNS = {
    "name": "name",
    "metadata": "meta",
    "description": "description",
    "key_name": "key_name",
    "user_data": "user_data",
    "hostname": "hostname",
    "OS-DCF:diskConfig": "disk_config",
    "accessIPv4": "access_ip_v4",
    "accessIPv6": "access_ip_v6",
}


def rebuild(call: Call, value: Any) -> Started:
    """The claim stays where the new image asks for the same; otherwise the worker plans it anew."""
    operation = call.new_id()
    call.deps.compute.require("rebuild")
    image = _image(call, value["imageRef"])
    shown: Server | None = None

    def write(session: Any, server: Owned) -> Bell:
        nonlocal shown
        bell = Bell()
        if not book_operations.is_written(session, operation):
            wanted = _wanted(session, call, server, value, image)
            bell = starts.rebuild(
                session, server.id, call.requester, call.deps.times, operation_id=operation, wanted=wanted
            )
            session.flush()
        row = book_instances.show(session, server.id)
        if row is not None and not isinstance(image, errors.PinfoldError):
            becomes = {**_fields(value), "image_ref": image.id, "image_properties": image.properties}
            shown = msgspec.structs.replace(row, **becomes)
        return bell

    def reply() -> Reply:
        assert shown is not None
        return _reply(call, shown, value)

    return Started(write, reply)


def _wanted(
    session: Any, call: Call, server: Owned, value: Any, image: Image | errors.PinfoldError
) -> Rebuild:
    """What to rebuild it to. Raises Conflict first, then whatever is wrong with the request."""
    instance = starts.ready(session, server.id, "rebuild")
    _refuse_unsupported(value)
    if isinstance(image, errors.PinfoldError):
        raise image
    boot_images.require_fit(image, instance.flavor["memory_mb"], instance.flavor["root_gb"])
    check_key(session, call, value.get("key_name"))
    if "metadata" in value:
        check_room(session, call, server, value["metadata"])
    demand = sizes.demand_of(instance.flavor, image.properties)
    return Rebuild(image.id, image.properties, demand, _fields(value))


def _fields(value: Any) -> dict[str, Any]:
    return {column: value[field] for field, column in _COLUMNS.items() if field in value}


def _image(call: Call, reference: str) -> Image | errors.PinfoldError:
    """The image, or what is wrong with it: that is said only once the server is known to be rebuilt at all."""
    try:
        return boot_images.usable(call, reference)
    except errors.InvalidRequest as error:
        return error


def _refuse_unsupported(value: Any) -> None:
    for field in ("personality", "trusted_image_certificates"):
        if value.get(field):
            raise queries.bad(field, value[field], "absent or empty: this cloud does not have it")
    if queries.loose_boolean(str(value.get("preserve_ephemeral", False))):
        raise queries.bad("preserve_ephemeral", value["preserve_ephemeral"], "false: a rebuild keeps no disk")


def _reply(call: Call, server: Server, value: Any) -> Reply:
    """The server as it will be."""
    shown = views.updated(call, server)
    if call.minor >= _KEY_SINCE:
        shown["key_name"] = server.key_name
    if call.minor >= _USER_DATA_SINCE:
        # here, and only here, it goes by its plain name
        shown.pop("OS-EXT-SRV-ATTR:user_data", None)
        shown["user_data"] = server.user_data
    settings = call.deps.settings
    if settings.enable_instance_password:
        shown["adminPass"] = value.get("adminPass") or random_text(call, settings.password_length)
    return Reply({"server": shown}, 202, {"Location": f"{call.base}/v2.1/servers/{server.id}"})
