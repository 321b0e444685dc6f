"""Flavors and their extra specs."""

from __future__ import annotations

import logging
from typing import Any

from oslo_db import exception as db_errors

from pinfold.api import query as queries
from pinfold.api.call import Call, Reply
from pinfold.api.faults import WARNING_HEADER, warning
from pinfold.api.listing import STRICT_SINCE, allowed, limit_of, next_link, sort_of
from pinfold.db import flavors as book_flavors
from pinfold.db.flavors import SORTABLE, FlavorRow
from pinfold.db.session import may_be_done
from pinfold.model import errors
from pinfold.model.request import validate_extra_specs

LOG = logging.getLogger(__name__)

_SPECS_CHECKED_SINCE = 86
LIST_PARAMETERS = dict.fromkeys(
    ("limit", "marker", "is_public", "minRam", "minDisk", "sort_key", "sort_dir"), 1
)
_ID_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .-_")


def view(call: Call, flavor: FlavorRow) -> dict[str, Any]:
    """A flavor at the microversion asked for."""
    shown: dict[str, Any] = {
        "id": flavor.flavorid,
        "name": flavor.name,
        "ram": flavor.memory_mb,
        "disk": flavor.root_gb,
        "vcpus": flavor.vcpus,
        "swap": flavor.swap_mb or (0 if call.minor >= STRICT_SINCE else ""),
        "OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral_gb,
        "os-flavor-access:is_public": flavor.is_public,
        "links": _links(call, flavor.flavorid),
    }
    if call.minor < 102:
        shown |= {"rxtx_factor": flavor.rxtx_factor, "OS-FLV-DISABLED:disabled": flavor.disabled}
    if call.minor >= 55:
        shown["description"] = flavor.description
    if call.minor >= 61 and call.allows("os-flavor-extra-specs:index"):
        shown["extra_specs"] = flavor.extra_specs
    return shown


def _links(call: Call, flavorid: str) -> list[dict[str, str]]:
    return [
        {"rel": "self", "href": f"{call.base}/v2.1/flavors/{flavorid}"},
        {"rel": "bookmark", "href": f"{call.base}/flavors/{flavorid}"},
    ]


def index(call: Call) -> dict[str, Any]:
    """Ids and names (and, from 2.55 on, descriptions)."""
    rows, link = _page(call, "/v2.1/flavors")
    described = call.minor >= 55
    shown = [
        {"id": row.flavorid, "name": row.name, "links": _links(call, row.flavorid)}
        | ({"description": row.description} if described else {})
        for row in rows
    ]
    return {"flavors": shown} | link


def detail(call: Call) -> dict[str, Any]:
    """Flavors with everything."""
    rows, link = _page(call, "/v2.1/flavors/detail")
    return {"flavors": [view(call, row) for row in rows]} | link


def _page(call: Call, path: str) -> tuple[list[FlavorRow], dict[str, Any]]:
    call.authorize(call.project)
    query = allowed(call, LIST_PARAMETERS)
    limit = limit_of(call)
    ((sort, descends), *_) = sort_of(call, SORTABLE, (("flavorid", False),))
    marker = queries.last(query, "marker")
    public = _public(call, query)
    smallest = {name: queries.number(query, name) or 0 for name in ("minDisk", "minRam")}
    rows = call.deps.book.read(
        lambda session: book_flavors.listed(
            session,
            public=public,
            min_disk=smallest["minDisk"],
            min_ram=smallest["minRam"],
            sort=sort,
            descends=descends,
            limit=limit,
            after=marker,
            project=call.project,
        )
    )
    if rows is None:
        raise errors.InvalidRequest(f"marker [{str(marker)[:100]}] not found", code="marker-not-found")
    if rows and len(rows) == limit:
        return rows, {"flavors_links": [next_link(call, path, rows[-1].flavorid)]}
    return rows, {}


def _public(call: Call, query: queries.Query) -> bool | None:
    """Only an admin sees flavors that are not public: with ``is_public`` false, or none for both."""
    value = queries.last(query, "is_public")
    if not call.allows("os-flavor-access") or value is None:
        return True
    return None if value.strip().lower() == "none" else queries.boolean("is_public", value)


def found(call: Call, flavor: str) -> FlavorRow:
    """The flavor, which the caller may see. Raises NotFound."""
    row = None
    if 0 < len(flavor) <= 255 and "\0" not in flavor:
        row = call.deps.book.read(lambda session: book_flavors.get(session, flavor))
    if row is None or not may_use(call, row):
        raise not_found(flavor)
    return row


def may_use(call: Call, row: FlavorRow) -> bool:
    """Whether the caller may see it, and make servers from it."""
    if row.is_public or call.allows("os-flavor-access"):
        return True
    return call.project in call.deps.book.read(lambda session: book_flavors.access(session, row.flavorid))


def not_found(flavor: str) -> errors.NotFound:
    """Nova's words for it."""
    return errors.NotFound(f"Flavor {flavor[:100]} could not be found.", code="flavor-not-found")


def show(call: Call, flavor: str) -> dict[str, Any]:
    """One flavor."""
    call.authorize(call.project)
    return {"flavor": view(call, found(call, flavor))}


def create(call: Call) -> dict[str, Any]:
    """A new flavor; ``id`` null or ``auto`` means a UUID."""
    call.authorize(call.project)
    row = _from_body(call, call.body["flavor"])
    try:
        call.deps.book.write(lambda session: book_flavors.add(session, row, call.project))
    except db_errors.DBDuplicateEntry:
        raise errors.Conflict(
            f"Flavor with name {row.name} or ID {row.flavorid} already exists.", code="flavor-exists"
        ) from None
    return {"flavor": view(call, row)}


def _from_body(call: Call, wanted: dict[str, Any]) -> FlavorRow:
    flavorid = wanted.get("id")
    if flavorid in (None, "auto"):
        flavorid = call.new_id()
    flavorid = str(flavorid)
    if not _ID_LETTERS.issuperset(flavorid) or flavorid != flavorid.strip():
        raise queries.bad("id", flavorid, "made of letters, digits, spaces, and .-_")
    public = wanted.get("os-flavor-access:is_public", True)
    return FlavorRow(
        flavorid=flavorid,
        name=wanted["name"],
        vcpus=_number("vcpus", wanted["vcpus"], 1),
        memory_mb=_number("ram", wanted["ram"], 1),
        root_gb=_number("disk", wanted["disk"], 0),
        ephemeral_gb=_number("OS-FLV-EXT-DATA:ephemeral", wanted.get("OS-FLV-EXT-DATA:ephemeral", 0), 0),
        swap_mb=_number("swap", wanted.get("swap") or 0, 0),
        rxtx_factor=_factor(wanted.get("rxtx_factor", 1.0)),
        is_public=queries.boolean("os-flavor-access:is_public", str(public)),
        disabled=False,
        description=wanted.get("description"),
        extra_specs={},
    )


def _number(field: str, value: Any, least: int) -> int:
    number = int(value)
    if not least <= number <= queries.BIGGEST:
        raise queries.bad(field, value, f"a number from {least} to {queries.BIGGEST}")
    return number


def _factor(value: Any) -> float:
    factor = float(value)
    if not 0 < factor <= 3.40282e38:
        raise queries.bad("rxtx_factor", value, "a number above 0")
    return factor


def delete(call: Call, flavor: str) -> None:
    """Remove it; servers made from it keep their copy."""
    call.authorize(call.project)
    row = found(call, flavor)
    if not call.deps.book.write(lambda session: book_flavors.delete(session, row.flavorid)):
        raise not_found(flavor)


def update(call: Call, flavor: str) -> dict[str, Any]:
    """Change the description."""
    call.authorize(call.project)
    row = found(call, flavor)
    description = call.body["flavor"]["description"]
    if not call.deps.book.write(lambda session: book_flavors.describe(session, row.flavorid, description)):
        raise not_found(flavor)
    return {"flavor": view(call, found(call, flavor))}


# --- extra specs ------------------------------------------------------------------------------------


def specs(call: Call, flavor: str) -> dict[str, Any]:
    """All extra specs."""
    call.authorize(call.project)
    return {"extra_specs": found(call, flavor).extra_specs}


def spec(call: Call, flavor: str, key: str) -> dict[str, Any]:
    """One extra spec."""
    call.authorize(call.project)
    row = found(call, flavor)
    if key not in row.extra_specs:
        raise _no_spec(flavor, key)
    return {key: row.extra_specs[key]}


def add_specs(call: Call, flavor: str) -> Reply:
    """Add or change extra specs."""
    call.authorize(call.project)
    added, headers = _checked(call, call.body["extra_specs"])
    _change(call, flavor, lambda known, _session: known | added)
    return Reply({"extra_specs": added}, headers=headers)


def set_spec(call: Call, flavor: str, key: str) -> Reply:
    """Change the one extra spec that both the URL and the body name."""
    call.authorize(call.project)
    if key not in call.body:
        raise errors.InvalidRequest("Request body and URI mismatch", code="invalid-field")
    added, headers = _checked(call, call.body)
    _change(call, flavor, lambda known, _session: known | added)
    return Reply(added, headers=headers)


def remove_spec(call: Call, flavor: str, key: str) -> None:
    """Remove one extra spec."""
    call.authorize(call.project)

    def without(known: dict[str, str], session: Any) -> dict[str, str]:
        if key not in known and not may_be_done(session):
            raise _no_spec(flavor, key)
        return {name: value for name, value in known.items() if name != key}

    _change(call, flavor, without)


def _change(call: Call, flavor: str, change: Any) -> None:
    row = found(call, flavor)

    def write(session: Any) -> None:
        known = book_flavors.locked_specs(session, row.flavorid)
        if known is None:
            raise not_found(flavor)
        book_flavors.set_specs(session, row.flavorid, change(known, session))

    call.deps.book.write(write)


def _checked(call: Call, values: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """As texts, and headers. From 2.86 on, names and values must be known; before, what is wrong is kept, logged, and
    said in a header."""
    specs = {name: _text(value) for name, value in values.items()}
    try:
        validate_extra_specs(specs)
    except errors.InvalidRequest as error:
        if call.minor >= _SPECS_CHECKED_SINCE:
            raise
        LOG.warning("An extra spec was kept that no server can be made with: %s", error)
        return specs, {WARNING_HEADER: warning(error.message)}
    return specs, {}


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    if len(text) > 255:
        raise queries.bad("extra_specs", text, "at most 255 characters long")
    return text


def _no_spec(flavor: str, key: str) -> errors.NotFound:
    return errors.NotFound(
        f"Flavor {flavor[:100]} has no extra specs with key {key[:100]}.", code="extra-spec-not-found"
    )
