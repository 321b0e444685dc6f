"""Image records in the JSON form of the Image API v2, both ways."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import msgspec

from pinfold.image.store import Image

OURS = frozenset(Image.__struct_fields__) - {"properties"}

# Fields of the Image API that are no free-form properties and that we do not keep.
_IGNORED = frozenset(
    {
        "direct_url",
        "file",
        "locations",
        "os_hash_algo",
        "os_hash_value",
        "os_hidden",
        "schema",
        "self",
        "stores",
    }
    | {"virtual_size"}
)


def to_v2(image: Image) -> dict[str, Any]:
    """The record as the API shows it: times to the second in UTC, free-form properties beside the fields."""
    return {
        **image.properties,
        "id": image.id,
        "name": image.name,
        "status": image.status,
        "owner": image.owner,
        "visibility": image.visibility,
        "protected": image.protected,
        "size": image.size,
        "virtual_size": None,
        "checksum": image.checksum,
        "os_hash_algo": None,
        "os_hash_value": None,
        "os_hidden": False,
        "disk_format": image.disk_format,
        "container_format": image.container_format,
        "min_ram": image.min_ram,
        "min_disk": image.min_disk,
        "tags": list(image.tags),
        "created_at": _time(image.created_at),
        "updated_at": _time(image.updated_at),
        "self": f"/v2/images/{image.id}",
        "file": f"/v2/images/{image.id}/file",
        "schema": "/v2/schemas/image",
    }


def from_v2(body: Mapping[str, Any]) -> Image:
    """A record that the API showed; what is no text among the free-form properties is left out.

    Raises ValueError (msgspec's) when it is not one.
    """
    fields = {key: value for key, value in body.items() if key in OURS}
    for key, default in (("name", ""), ("owner", ""), ("visibility", "private")):
        if fields.get(key) is None:
            fields[key] = default
    fields["properties"] = {
        key: value
        for key, value in body.items()
        if key not in OURS and key not in _IGNORED and isinstance(value, str)
    }
    return msgspec.convert(fields, Image)


def _time(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
