"""``/v2.1/images``, which ended with 2.36 (its metadata with 2.39): images as the compute API used to show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinfold.api import images
from pinfold.api import metadata as meta
from pinfold.api import query as queries
from pinfold.api.call import Call
from pinfold.api.listing import limit_of, next_link
from pinfold.api.server_views import seconds
from pinfold.image.store import Image
from pinfold.model import errors

_STATUS = {"active": "ACTIVE", "queued": "SAVING", "saving": "SAVING", "killed": "ERROR"}
_PROGRESS = {"queued": 25, "saving": 50, "active": 100}
LIST_PARAMETERS = (
    "limit",
    "marker",
    "name",
    "status",
    "changes-since",
    "server",
    "type",
    "minRam",
    "minDisk",
)


def index(call: Call) -> dict[str, Any]:
    """Images that the caller may see, briefly."""
    rows, link = _page(call, "/v2.1/images")
    shown = [{"id": image.id, "name": image.name, "links": _links(call, image.id)} for image in rows]
    return {"images": shown} | link


def detail(call: Call) -> dict[str, Any]:
    """Images that the caller may see, with all there is to tell."""
    rows, link = _page(call, "/v2.1/images/detail")
    return {"images": [_view(call, image) for image in rows]} | link


def _page(call: Call, path: str) -> tuple[list[Image], dict[str, Any]]:
    call.authorize(call.project)
    query = call.query
    matches = _filter(query)
    rows = [
        image for image in call.deps.images.list() if images.may_see_image(call, image) and matches(image)
    ]
    marker = queries.last(query, "marker")
    if marker is not None:
        ids = [image.id for image in rows]
        if marker not in ids:
            raise errors.InvalidRequest(f"marker [{marker[:100]}] not found", code="marker-not-found")
        rows = rows[ids.index(marker) + 1 :]
    limit = limit_of(call)
    page = rows[:limit]
    if "limit" in query and page and len(page) == limit:
        return page, {"images_links": [next_link(call, path, page[-1].id)]}
    return page, {}


def _filter(query: queries.Query) -> Callable[[Image], bool]:
    """What the parameters ask of an image. Raises InvalidRequest."""
    wanted: list[Callable[[Image], bool]] = []
    properties = {name[9:]: values[-1] for name, values in query.items() if name.startswith("property-")}
    if (server := queries.last(query, "server")) is not None:
        properties["instance_uuid"] = server.rsplit("/", 1)[-1]
    if (type_ := queries.last(query, "type")) is not None:
        properties["image_type"] = type_
    if (name := queries.last(query, "name")) is not None:
        wanted.append(lambda image: image.name == name)
    if (status := queries.last(query, "status")) is not None:
        wanted.append(lambda image: _STATUS.get(image.status, "UNKNOWN") == status.upper())
    if (since := queries.last(query, "changes-since")) is not None:
        moment = queries.moment("changes-since", since)
        wanted.append(lambda image: image.updated_at.timestamp() >= moment)
    ram, disk = queries.number(query, "minRam"), queries.number(query, "minDisk")
    if ram is not None:
        wanted.append(lambda image: image.min_ram >= ram)
    if disk is not None:
        wanted.append(lambda image: image.min_disk >= disk)
    return lambda image: (
        all(image.properties.get(key) == value for key, value in properties.items())
        and all(asks(image) for asks in wanted)
    )


def show(call: Call, image: str) -> dict[str, Any]:
    """One image."""
    call.authorize(call.project)
    return {"image": _view(call, _found(call, image))}


def _found(call: Call, image: str) -> Image:
    try:
        return images.visible(call, image)
    except errors.NotFound:
        raise errors.NotFound("Image not found.", code="image-not-found") from None


def _links(call: Call, image: str) -> list[dict[str, str]]:
    return [
        {"rel": "self", "href": f"{call.base}/v2.1/images/{image}"},
        {"rel": "bookmark", "href": f"{call.base}/images/{image}"},
        {
            "rel": "alternate",
            "type": "application/vnd.openstack.image",
            "href": f"{call.base}/image/v2/images/{image}",
        },
    ]


def _view(call: Call, image: Image) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": image.id,
        "name": image.name,
        "minRam": image.min_ram,
        "minDisk": image.min_disk,
        "metadata": image.properties,
        "created": seconds(image.created_at.timestamp()),
        "updated": seconds(image.updated_at.timestamp()),
        "status": _STATUS.get(image.status, "UNKNOWN"),
        "progress": _PROGRESS.get(image.status, 0),
        "OS-EXT-IMG-SIZE:size": image.size,
        "links": _links(call, image.id),
    }
    server = image.properties.get("instance_uuid")
    if server is not None:
        href = f"servers/{server}"
        links = [
            {"rel": "self", "href": f"{call.base}/v2.1/{href}"},
            {"rel": "bookmark", "href": f"{call.base}/{href}"},
        ]
        shown["server"] = {"id": server, "links": links}
    return shown


def delete(call: Call, image: str) -> None:
    """Record and data."""
    _found(call, image)
    images.delete(call, image)


# --- metadata ---------------------------------------------------------------------------------------


def metadata(call: Call, image: str) -> dict[str, Any]:
    """An image's properties."""
    call.authorize(call.project)
    return {"metadata": _found(call, image).properties}


def metadata_item(call: Call, image: str, key: str) -> dict[str, Any]:
    """One of an image's properties."""
    call.authorize(call.project)
    properties = _found(call, image).properties
    if key not in properties:
        raise _no_item()
    return {"meta": {key: properties[key]}}


def _no_item() -> errors.NotFound:
    return errors.NotFound("Invalid metadata key", code="metadata-not-found")


def add_metadata(call: Call, image: str) -> dict[str, Any]:
    """Add or change properties."""
    return {"metadata": _change(call, image, meta.added(call))}


def replace_metadata(call: Call, image: str) -> dict[str, Any]:
    """Replace all properties."""
    return {"metadata": _change(call, image, meta.replaced(call))}


def set_metadata_item(call: Call, image: str, key: str) -> dict[str, Any]:
    """Set the one property that both the URL and the body name."""
    _change(call, image, meta.set_to(call, key, "Request body and URI mismatch"))
    return {"meta": call.body["meta"]}


def remove_metadata_item(call: Call, image: str, key: str) -> None:
    """Remove one property."""
    _change(call, image, meta.without(key, _no_item()))


def _change(call: Call, image: str, change: meta.Change) -> meta.Meta:
    _found(call, image)
    row = images.owned(call, image)
    properties = change(row.properties)
    most = call.deps.settings.quotas["metadata_items"]
    if 0 <= most < len(properties):
        raise errors.Forbidden(f"Image metadata limit exceeded: at most {most} items.", code="quota")
    return call.deps.images.update(row.id, {"properties": properties}).properties
