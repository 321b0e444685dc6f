"""The part of the Image API v2 that clients need, from the store that servers boot from."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

from pinfold.api import query as queries
from pinfold.api.bodies import stream_of
from pinfold.api.call import Call, Reply, as_uuid
from pinfold.api.faults import BadMediaType, NotBuilt, TooLarge
from pinfold.api.image_patch import apply, changes_of
from pinfold.api.schemas import IMAGE_FIELDS, VISIBILITIES
from pinfold.image import v2
from pinfold.image.store import Image, ImageNotFound
from pinfold.model import errors

_VERSIONS = tuple(f"v2.{minor}" for minor in (9, 7, 6, 5, 4, 3, 2, 1, 0))
_PAGE = 25
_PIECE = 1024**2

_SORT: dict[str, Callable[[Image], Any]] = {
    "name": lambda image: image.name,
    "status": lambda image: image.status,
    "container_format": lambda image: image.container_format or "",
    "disk_format": lambda image: image.disk_format or "",
    "size": lambda image: image.size or 0,
    "id": lambda image: image.id,
    "created_at": lambda image: image.created_at,
    "updated_at": lambda image: image.updated_at,
}


def versions(call: Call) -> Reply:
    """The version document; clients expect 300 here."""
    href = f"{call.base}/image/v2/"
    listed = [
        {
            "id": version,
            "status": "CURRENT" if number == 0 else "SUPPORTED",
            "links": [{"rel": "self", "href": href}],
        }
        for number, version in enumerate(_VERSIONS)
    ]
    return Reply({"versions": listed}, status=300)


def shown(image: Image) -> dict[str, Any]:
    """An image as the API shows it."""
    return v2.to_v2(image) | {"virtual_size": image.size if image.status == "active" else None}


def may_see_image(call: Call, image: Image) -> bool:
    """Whether the caller may use the image at all."""
    return image.visibility in ("public", "community") or image.owner == call.project or call.is_admin


# --- reading ----------------------------------------------------------------------------------------


def index(call: Call) -> dict[str, Any]:
    """Images that the caller may see, filtered, sorted and paged."""
    call.authorize(call.project)
    query = call.query
    wanted = [image for image in call.deps.images.list() if _listed(call, image, query)]
    wanted = _sorted(query, [image for image in wanted if _matches(image, query)])
    limit = queries.number(query, "limit")
    page = _after(query, wanted)
    limit = min(_PAGE if limit is None else limit, call.deps.settings.max_limit)
    answer: dict[str, Any] = {
        "images": [shown(image) for image in page[:limit]],
        "first": _url(query, None),
        "schema": "/v2/schemas/images",
    }
    if len(page) > limit > 0:
        answer["next"] = _url(query, page[limit - 1].id)
    return answer


def _listed(call: Call, image: Image, query: queries.Query) -> bool:
    """Community images are listed only for those who ask for them (or own them)."""
    if image.visibility == "community" and "visibility" not in query and image.owner != call.project:
        return False
    return may_see_image(call, image)


def _url(query: queries.Query, marker: str | None) -> str:
    pairs = [(name, value) for name, values in query.items() if name != "marker" for value in values]
    if marker is not None:
        pairs.append(("marker", marker))
    return "/v2/images" + (f"?{urlencode(pairs)}" if pairs else "")


def _matches(image: Image, query: queries.Query) -> bool:
    return all(_matches_one(image, name, value) for name, values in query.items() for value in values)


_NOT_FILTERS = frozenset({"limit", "marker", "sort", "sort_key", "sort_dir", "member_status"})
LIST_PARAMETERS = (
    "limit",
    "marker",
    "sort",
    "sort_key",
    "sort_dir",
    "name",
    "id",
    "status",
    "visibility",
    "owner",
    "tag",
)
_TEXTS = frozenset(
    {"name", "status", "id", "owner", "visibility", "disk_format", "container_format", "checksum"}
)


def _matches_one(image: Image, name: str, value: str) -> bool:
    if name in _NOT_FILTERS:
        return True
    if name == "visibility" and value == "all":
        return True
    if name in _TEXTS:
        actual = getattr(image, name) or ""
        return actual in value[3:].split(",") if value.startswith("in:") else bool(actual == value)
    if name == "tag":
        return value in image.tags
    if name in ("protected", "os_hidden"):
        return queries.boolean(name, value) is (name == "protected" and image.protected)
    if name in ("size_min", "size_max", "min_ram", "min_disk"):
        return _measures(image, name, value)
    if name in ("created_at", "updated_at"):
        return _compares(getattr(image, name), name, value)
    return image.properties.get(name) == value


def _measures(image: Image, name: str, value: str) -> bool:
    number = queries.number({name: [value]}, name) or 0
    if name == "size_min":
        return (image.size or 0) >= number
    if name == "size_max":
        return (image.size or 0) <= number
    return bool(getattr(image, name) == number)


def _compares(actual: datetime.datetime, name: str, value: str) -> bool:
    operator, colon, rest = value.partition(":")
    if operator not in _COMPARE:
        operator, rest = "eq", value
    moment = queries.moment(name, rest if colon else value)
    return _COMPARE[operator](int(actual.timestamp()), int(moment))


_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "gt": lambda a, b: a > b,
    "gte": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "neq": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "lte": lambda a, b: a <= b,
}


def _sorted(query: queries.Query, images: list[Image]) -> list[Image]:
    """By ``sort=key:dir,...`` or ``sort_key`` and ``sort_dir``; newest first without them."""
    pairs = [pair.partition(":")[::2] for value in query.get("sort", []) for pair in value.split(",")]
    if not pairs:
        directions = query.get("sort_dir", [])
        pairs = [
            (key, directions[min(number, len(directions) - 1)] if directions else "desc")
            for number, key in enumerate(query.get("sort_key", ["created_at"]))
        ]
    for key, direction in pairs:
        if key not in _SORT or direction not in ("", "asc", "desc"):
            raise queries.bad("sort", f"{key}:{direction}", f"made of {', '.join(_SORT)} with asc or desc")
    images = sorted(images, key=lambda image: image.id, reverse=True)
    for key, direction in reversed(pairs):
        images.sort(key=_SORT[key], reverse=direction != "asc")
    return images


def _after(query: queries.Query, images: list[Image]) -> list[Image]:
    marker = queries.last(query, "marker")
    if marker is None:
        return images
    for number, image in enumerate(images):
        if image.id == marker:
            return images[number + 1 :]
    raise errors.InvalidRequest(f"Invalid marker {marker[:100]}: no such image.", code="marker-not-found")


def visible(call: Call, image: str) -> Image:
    """The image, which the caller may see. Raises NotFound."""
    id_ = as_uuid(image)
    try:
        found = call.deps.images.get(id_) if id_ else None
    except ImageNotFound:
        found = None
    if found is None or not may_see_image(call, found):
        raise errors.NotFound(f"No image found with ID {image[:100]}", code="image-not-found")
    return found


def owned(call: Call, image: str) -> Image:
    """The image, which the caller may change. Raises NotFound, Forbidden."""
    found = visible(call, image)
    if found.owner != call.project and not call.is_admin:
        raise errors.Forbidden(f"You are not permitted to change image {found.id}.", code="policy")
    call.authorize(found.owner)
    return found


def show(call: Call, image: str) -> dict[str, Any]:
    """One image."""
    call.authorize(call.project)
    return shown(visible(call, image))


def download(call: Call, image: str) -> Reply:
    """Its data, as it is read."""
    call.authorize(call.project)
    found = visible(call, image)
    if found.status != "active":
        return Reply(status=204)
    pieces = call.deps.images.download(found.id)
    headers = {} if found.size is None else {"Content-Length": str(found.size)}
    if found.checksum:
        headers["Content-MD5"] = found.checksum
    return Reply(stream=pieces, headers=headers, content_type="application/octet-stream")


# --- writing ----------------------------------------------------------------------------------------


def create(call: Call) -> Reply:
    """A record; its data is uploaded later."""
    call.authorize(call.project)
    wanted = call.body
    _check_visibility(call, wanted.get("visibility"))
    owner = wanted.get("owner") or call.project
    if owner != call.project and not call.is_admin:
        raise errors.Forbidden(f"You are not permitted to create images owned by '{owner}'.", code="policy")
    now = call.deps.runtime.now()
    fields = {name: wanted[name] for name in ("disk_format", "container_format") if name in wanted}
    image = Image(
        id=as_uuid(wanted["id"]) or "" if "id" in wanted else call.new_id(),
        name=wanted.get("name") or "",
        status="queued",
        owner=owner,
        visibility=wanted.get("visibility", "shared"),
        created_at=now,
        updated_at=now,
        min_ram=int(wanted.get("min_ram", 0)),
        min_disk=int(wanted.get("min_disk", 0)),
        protected=wanted.get("protected", False),
        tags=tuple(dict.fromkeys(wanted.get("tags", ()))),
        properties=_properties(wanted),
        disk_format=fields.get("disk_format"),
        container_format=fields.get("container_format"),
    )
    made = call.deps.images.create(image)
    return Reply(shown(made), headers={"Location": f"{call.base}/image/v2/images/{made.id}"})


def _properties(wanted: dict[str, Any]) -> dict[str, str]:
    for name in wanted:
        if name in READ_ONLY:
            raise errors.Forbidden(f"Attribute '{name}' is read-only.", code="read-only")
    return {name: value for name, value in wanted.items() if name not in IMAGE_FIELDS}


READ_ONLY = frozenset(
    {
        "checksum",
        "created_at",
        "direct_url",
        "file",
        "locations",
        "os_hash_algo",
        "os_hash_value",
        "schema",
        "self",
        "size",
        "status",
        "stores",
        "updated_at",
        "virtual_size",
    }
)


def _check_visibility(call: Call, visibility: str | None) -> None:
    if visibility is None:
        return
    if visibility not in VISIBILITIES:
        raise queries.bad("visibility", visibility, "one of " + ", ".join(VISIBILITIES))
    if visibility == "public":
        call.require("image:publicize_image")


def patch(call: Call, image: str) -> dict[str, Any]:
    """Change the record by ``add``, ``replace`` and ``remove`` of its members."""
    found = owned(call, image)
    document = apply(shown(found), call.body, READ_ONLY)
    changes = changes_of(found, document)
    _check_visibility(call, document["visibility"] if "visibility" in changes else None)
    if changes.get("owner", found.owner) != found.owner and not call.is_admin:
        raise errors.Forbidden("You are not permitted to give images away.", code="policy")
    return shown(call.deps.images.update(found.id, changes) if changes else found)


def upload(call: Call, image: str) -> None:
    """Its data, stored as it comes; once only."""
    found = owned(call, image)
    given = (call.req.content_type or "").partition(";")[0].strip().lower()
    if given != "application/octet-stream":
        raise BadMediaType("The data of an image must be sent as application/octet-stream.")
    if found.status != "queued":
        raise errors.Conflict(
            f"Image {found.id} is {found.status}; data can only be uploaded while it is queued.",
            code="wrong-state",
        )
    if not found.disk_format or not found.container_format:
        raise errors.InvalidRequest(
            "disk_format and container_format must be set before data is uploaded.", code="invalid-field"
        )
    largest = call.deps.settings.max_image_size
    if (call.req.content_length or 0) > largest:
        raise TooLarge(f"An image may have at most {largest} bytes.")
    call.deps.images.upload(found.id, _pieces(call, largest))


def _pieces(call: Call, largest: int) -> Iterator[bytes]:
    stream, size, wanted = stream_of(call.req), 0, call.req.content_length
    while piece := stream.read(_PIECE):
        size += len(piece)
        if size > largest:
            raise TooLarge(f"An image may have at most {largest} bytes.")
        yield piece
    if wanted is not None and size != wanted:
        raise errors.InvalidRequest(f"{wanted} bytes were announced and {size} came.", code="short-body")


def delete(call: Call, image: str) -> None:
    """Record and data."""
    found = owned(call, image)
    if found.protected:
        raise errors.Forbidden(f"Image {found.id} is protected and cannot be deleted.", code="protected")
    call.deps.images.delete(found.id)


def add_tag(call: Call, image: str, tag: str) -> None:
    """Give it a tag."""
    found = owned(call, image)
    if not tag or len(tag) > 255 or "\0" in tag:
        raise queries.bad("tag", tag, "1 to 255 characters")
    if tag not in found.tags:
        call.deps.images.update(found.id, {"tags": (*found.tags, tag)})


def remove_tag(call: Call, image: str, tag: str) -> None:
    """Take a tag away."""
    found = owned(call, image)
    if tag not in found.tags:
        raise errors.NotFound(f"Image {found.id} has no tag {tag[:100]}.", code="tag-not-found")
    call.deps.images.update(found.id, {"tags": tuple(known for known in found.tags if known != tag)})


def import_image(call: Call, image: str) -> None:
    """Data is uploaded here; there is nothing to import from."""
    owned(call, image)
    raise NotBuilt("This image service does not import; upload the data to .../file.")


# --- schemas, for clients that ask ------------------------------------------------------------------


def schema(call: Call) -> dict[str, Any]:
    """The schema of an image."""
    return _SCHEMA


def schema_of_list(call: Call) -> dict[str, Any]:
    """The schema of a list of images."""
    return {
        "name": "images",
        "properties": {
            "images": {"type": "array", "items": _SCHEMA},
            **{name: {"type": "string"} for name in ("first", "next", "schema")},
        },
        "links": [{"rel": name, "href": f"{{{name}}}"} for name in ("first", "next")]
        + [{"rel": "describedby", "href": "{schema}"}],
    }


_READ_ONLY_FIELDS: dict[str, Any] = {
    "status": {"type": "string", "readOnly": True},
    "checksum": {"type": ["null", "string"], "readOnly": True},
    **{name: {"type": ["null", "integer"], "readOnly": True} for name in ("size", "virtual_size")},
    **{name: {"type": "string", "readOnly": True} for name in ("created_at", "updated_at")},
    **{name: {"type": "string", "readOnly": True} for name in ("self", "file", "schema")},
    **{name: {"type": ["null", "string"], "readOnly": True} for name in ("os_hash_algo", "os_hash_value")},
}
_SCHEMA: dict[str, Any] = {
    "name": "image",
    "properties": {**IMAGE_FIELDS, **_READ_ONLY_FIELDS},
    "additionalProperties": {"type": "string"},
    "links": [
        {"rel": "self", "href": "{self}"},
        {"rel": "enclosure", "href": "{file}"},
        {"rel": "describedby", "href": "{schema}"},
    ],
}


def no_stores(call: Call) -> dict[str, Any]:
    """Which stores there are: one, without a name."""
    return {"stores": []}


def import_methods(call: Call) -> dict[str, Any]:
    """Which ways to import there are: none."""
    text = "Import methods available."
    return {"import-methods": {"description": text, "type": "array", "value": []}}
