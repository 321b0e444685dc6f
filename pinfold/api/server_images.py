"""createImage: an image of a server's disk as it is now."""

from __future__ import annotations

import logging
from typing import Any

from pinfold.api.call import Call, Reply
from pinfold.api.metadata import check_room
from pinfold.api.starting import Started
from pinfold.db import operations_read, starts
from pinfold.db.instances import Owned
from pinfold.db.models import Instance
from pinfold.image.store import Image, delete_unfinished
from pinfold.model import errors
from pinfold.model.work import Bell

LOG = logging.getLogger(__name__)

_IN_BODY_SINCE = 45
_ENDED = ("failed", "superseded")


def create_image(call: Call, value: Any) -> Started:
    """The worker saves it; the record is there when this is answered, so that clients can wait for it."""
    operation, image = call.new_id(), call.new_id()
    call.deps.compute.require("create_image")
    record: Image | None = None

    def write(session: Any, server: Owned) -> Bell:
        nonlocal record
        check_room(session, call, server, value.get("metadata", {}))
        record = _record(call, session.get(Instance, server.id), image, value)
        arguments = {
            "snapshot": image,
            "snapshot_name": record.name,
            "snapshot_properties": record.properties,
            "snapshot_owner": record.owner,
            "snapshot_min_disk": record.min_disk,
        }
        return starts.in_place(
            session,
            server.id,
            "create_image",
            call.requester,
            call.deps.times,
            operation_id=operation,
            arguments=arguments,
        )

    def reply() -> Reply:
        if record is not None:
            _put(call, record, operation)
        if call.minor >= _IN_BODY_SINCE:
            return Reply({"image_id": image}, 202)
        return Reply(None, 202, {"Location": f"{call.base}/image/v2/images/{image}"})

    return Started(write, reply)


def _record(call: Call, server: Instance, image: str, value: Any) -> Image:
    """What the server's image says of itself goes on to its images, as far as the caller says nothing else."""
    now = call.deps.runtime.now()
    return Image(
        id=image,
        name=value["name"],
        status="queued",
        owner=call.project,
        visibility="private",
        created_at=now,
        updated_at=now,
        min_disk=server.flavor["root_gb"],
        properties={
            **server.image_properties,
            **value.get("metadata", {}),
            "base_image_ref": server.image_ref,
            "image_type": "snapshot",
            "instance_uuid": server.id,
            "user_id": call.user,
        },
    )


def _put(call: Call, record: Image, operation: str) -> None:
    """Make the record, unless the worker was first; not for an operation that has ended without an image."""
    images = call.deps.images
    try:
        images.create(record)
        row = call.deps.book.read(lambda session: operations_read.get(session, operation))
        if row is not None and row.result in _ENDED:
            delete_unfinished(images, record.id)
    except errors.Conflict:
        return
    except errors.PinfoldError as error:
        LOG.warning("Image %s is not there yet, and its worker will make it: %s", record.id, error)
