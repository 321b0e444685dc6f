"""``application/openstack-images-v2.1-json-patch``: changes of an image's record."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from pinfold.api import query as queries
from pinfold.api.schemas import IMAGE_FIELDS, IMAGE_PROPERTY, Body
from pinfold.image import v2
from pinfold.image.store import Image
from pinfold.model import errors

MEDIA_TYPES = (
    "application/openstack-images-v2.1-json-patch",
    "application/openstack-images-v2.0-json-patch",
)

_DOCUMENT = Body(
    "image_changed",
    lambda minor: {
        "type": "object",
        "maxProperties": 160,
        "properties": IMAGE_FIELDS,
        "additionalProperties": IMAGE_PROPERTY,
        "propertyNames": {"minLength": 1, "maxLength": 255},
    },
)
_FIELDS = tuple(name for name in IMAGE_FIELDS if name not in ("id", "os_hidden"))


def apply(
    document: dict[str, Any], operations: list[dict[str, Any]], read_only: Collection[str]
) -> dict[str, Any]:
    """The document after the operations. Raises InvalidRequest, Forbidden, Conflict; checks the result."""
    changed = {name: value for name, value in document.items() if name not in read_only}
    for operation in operations:
        name = _member(operation["path"])
        if name in read_only or name in ("id", "owner_specified"):
            raise errors.Forbidden(f"Attribute '{name[:100]}' is read-only.", code="read-only")
        if operation["op"] == "remove":
            _remove(changed, name)
            continue
        if "value" not in operation:
            raise queries.bad("value", None, f"given with {operation['op']} of {operation['path'][:100]}")
        if operation["op"] == "replace" and name not in changed:
            raise errors.Conflict(f"Property {name[:100]} does not exist.", code="no-such-property")
        changed[name] = operation["value"]
    _DOCUMENT.check(changed, 1)
    return changed


def _member(path: str) -> str:
    name = path.removeprefix("/")
    if "/" in name:
        raise queries.bad("path", path, "the name of a member of the image")
    return name.replace("~1", "/").replace("~0", "~")


def _remove(document: dict[str, Any], name: str) -> None:
    if name in IMAGE_FIELDS:
        raise errors.Forbidden(f"Property {name} may not be removed.", code="read-only")
    if name not in document:
        raise errors.Conflict(f"Property {name[:100]} does not exist.", code="no-such-property")
    del document[name]


def changes_of(image: Image, document: dict[str, Any]) -> dict[str, Any]:
    """What the document has other than the image."""
    wanted = {name: document[name] for name in _FIELDS if name in document}
    wanted["name"] = wanted.get("name") or ""
    wanted["owner"] = wanted.get("owner") or image.owner
    wanted["tags"] = tuple(wanted.get("tags", ()))
    for name in ("min_ram", "min_disk"):
        wanted[name] = int(wanted.get(name, 0))
    wanted["properties"] = {
        name: value for name, value in document.items() if name not in v2.OURS | {"os_hidden"}
    }
    known = msgspec.structs.asdict(image)
    return {name: value for name, value in wanted.items() if known[name] != value}
