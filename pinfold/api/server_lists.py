"""Lists of servers: which parameters there are at which microversion, and what each asks of the book."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from pinfold.api import query as queries
from pinfold.api import server_views as views
from pinfold.api.call import Call, as_uuid
from pinfold.api.listing import allowed, limit_of, next_link, sort_of
from pinfold.api.regex import checked, is_plain
from pinfold.db import instances as book_instances
from pinfold.db.instances import SORTABLE, Brief, Filters, Server
from pinfold.model import errors, states

Row = TypeVar("Row", Server, Brief)

_DEFAULT_SORT = (("created_at", True),)

# Parameters that are a column's value. The second is what an empty or odd value is checked with.
_EQUAL = {
    "access_ip_v4": "access_ip_v4",
    "access_ip_v6": "access_ip_v6",
    "description": "display_description",
    "display_description": "display_description",
    "host": "host",
    "hostname": "hostname",
    "key_name": "key_name",
    "node": "node",
    "project_id": "project_id",
    "reservation_id": "reservation_id",
    "task_state": "task_state",
    "tenant_id": "project_id",
    "user_id": "user_id",
    "vm_state": "vm_state",
}
_PAGING = {"limit": 1, "marker": 1, "sort_key": 1, "sort_dir": 1}
# Parameter: since when.
KNOWN: dict[str, int] = {
    **_PAGING,
    **dict.fromkeys(_EQUAL, 1),
    **dict.fromkeys(
        (
            "all_tenants",
            "auto_disk_config",
            "availability_zone",
            "changes-since",
            "config_drive",
            "created_at",
            "deleted",
            "flavor",
        ),
        1,
    ),
    **dict.fromkeys(("image", "image_ref", "ip", "ip6", "kernel_id", "launch_index", "launched_at"), 1),
    **dict.fromkeys(("metadata", "name", "display_name", "power_state", "progress", "ramdisk_id"), 1),
    **dict.fromkeys(("root_device_name", "soft_deleted", "status", "terminated_at", "uuid"), 1),
    **dict.fromkeys(("tags", "tags-any", "not-tags", "not-tags-any"), 26),
    "changes-before": 66,
    "locked": 73,
}
_OPEN_TO_ALL: dict[str, int] = {
    **_PAGING,
    **dict.fromkeys(
        ("all_tenants", "changes-since", "flavor", "image", "ip", "name", "reservation_id", "status"), 1
    ),
    "ip6": 5,
    **dict.fromkeys(("tags", "tags-any", "not-tags", "not-tags-any"), 26),
    "changes-before": 66,
    "locked": 73,
    **dict.fromkeys(("availability_zone", "config_drive", "created_at", "key_name", "launched_at"), 83),
    **dict.fromkeys(("power_state", "progress", "task_state", "terminated_at", "user_id", "vm_state"), 83),
}


def index(call: Call) -> dict[str, Any]:
    """Ids and names."""
    rows, link = _page(call, book_instances.listed_briefly, "/v2.1/servers", "servers:index")
    return {"servers": [views.brief(call, row) for row in rows]} | link


def detail(call: Call) -> dict[str, Any]:
    """Servers in all their detail."""
    rows, link = _page(call, book_instances.listed, "/v2.1/servers/detail", "servers:detail")
    return {"servers": [views.full(call, row, in_list=True) for row in rows]} | link


def _page(
    call: Call, listed: Callable[..., list[Row]], path: str, rule: str
) -> tuple[list[Row], dict[str, Any]]:
    call.require(rule)
    query = _allowed(call)
    limit = limit_of(call)
    sort = sort_of(call, SORTABLE, _DEFAULT_SORT)
    filters = _filters(call, query, rule)
    marker = queries.last(query, "marker")
    if limit == 0:
        return [], {}

    def read(session: Any) -> list[Row] | None:
        after = None
        if marker is not None:
            id_ = as_uuid(marker)
            after = book_instances.sort_values(session, id_, filters.project, sort) if id_ else None
            if after is None:
                return None
        return listed(session, filters, sort, limit, after)

    rows = call.deps.book.read(read)
    if rows is None:
        raise errors.InvalidRequest(f"marker [{str(marker)[:100]}] not found", code="marker-not-found")
    if len(rows) < limit:
        return rows, {}
    return rows, {"servers_links": [next_link(call, path, rows[-1].id)]}


def _allowed(call: Call) -> queries.Query:
    """The parameters that count: unknown ones are refused from 2.75 on, and dropped before."""
    query = allowed(call, KNOWN)
    known = KNOWN if call.allows("servers:allow_all_filters") else _OPEN_TO_ALL
    return {name: values for name, values in query.items() if known.get(name, 1000) <= call.minor}


def _filters(call: Call, query: queries.Query, rule: str) -> Filters:
    everybody = _all_tenants(call, query, rule)
    filters = Filters(
        project=None if everybody else call.project,
        deleted=_deleted(call, query),
        soft_deleted=_soft_deleted(query),
        equal=_equal(query, everybody=everybody),
        zones=tuple(_zone_of(call, zone) for zone in query.get("availability_zone", ())),
        flavor=queries.last(query, "flavor"),
        tags_all=_tags(query, "tags"),
        tags_any=_tags(query, "tags-any"),
        tags_not_all=_tags(query, "not-tags"),
        tags_none=_tags(query, "not-tags-any"),
        metadata=_metadata(query),
        nothing=_finds_nothing(query),
    )
    changes: dict[str, Any] = {}
    for name, field in (("changes-since", "changed_since"), ("changes-before", "changed_before")):
        if (value := queries.last(query, name)) is not None:
            changes[field] = queries.moment(name, value)
    queries.require_order(changes.get("changed_since"), changes.get("changed_before"))
    if (value := queries.last(query, "locked")) is not None:
        changes["locked"] = queries.boolean("locked", value)
    return msgspec.structs.replace(filters, **changes, **_names(query), **_statuses(call, query))


def _zone_of(call: Call, name: str) -> str | None:
    return None if name == call.deps.settings.default_zone else name


def _all_tenants(call: Call, query: queries.Query, rule: str) -> bool:
    value = queries.last(query, "all_tenants")
    if value is None or (value and not queries.boolean("all_tenants", value)):
        return False
    call.require(f"{rule}:get_all_tenants")
    return True


def _deleted(call: Call, query: queries.Query) -> bool | None:
    if "deleted" in query:
        return queries.loose_boolean(queries.last(query, "deleted"))
    # a client that asks what has changed wants to hear of deletions
    return None if "changes-since" in query or "changes-before" in query else False


def _soft_deleted(query: queries.Query) -> bool | None:
    value = queries.last(query, "soft_deleted")
    return None if value is None else queries.loose_boolean(value)


def _equal(query: queries.Query, *, everybody: bool) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for name, column in _EQUAL.items():
        if name in query and (everybody or column != "project_id"):
            found[column] = tuple(query[name])
    for name in ("image", "image_ref", "uuid"):
        if name in query:
            found["uuid" if name == "uuid" else "image_ref"] = tuple(
                as_uuid(value) or value for value in query[name]
            )
    for name in ("launch_index", "power_state"):
        if name in query:
            found[name] = tuple(_whole(name, value) for value in query[name])
    if (value := queries.last(query, "config_drive")) is not None:
        found["config_drive"] = ("True",) if queries.loose_boolean(value) else ("",)
    if (value := queries.last(query, "auto_disk_config")) is not None:
        found["auto_disk_config"] = ("AUTO",) if queries.loose_boolean(value) else ("MANUAL",)
    for name in ("created_at", "launched_at", "terminated_at"):
        if name in query:
            found[name] = tuple(queries.moment(name, value) for value in query[name])
    return found


def _whole(name: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value, re.ASCII):
        raise queries.bad(name, value, "a whole number")
    return int(value)


def _names(query: queries.Query) -> dict[str, str]:
    """``name`` is a regular expression; one without special characters is looked for as it stands."""
    for parameter in ("name", "display_name"):
        value = queries.last(query, parameter)
        if value:
            return {"name_part": value} if is_plain(value) else {"name_regex": checked(parameter, value)}
    return {}


def _finds_nothing(query: queries.Query) -> bool:
    """Servers here have no addresses, kernels or ramdisks, so nothing has the one that is asked for."""
    for name in ("ip", "ip6"):
        if value := queries.last(query, name):
            checked(name, value)
            return True
    progress = queries.last(query, "progress")
    if progress is not None and _whole("progress", progress):
        return True
    return any(queries.last(query, name) for name in ("kernel_id", "ramdisk_id"))


def _statuses(call: Call, query: queries.Query) -> dict[str, Any]:
    values = [value.upper() for value in query.get("status", [])]
    if not values:
        return {}
    if "DELETED" in values and not call.is_admin:
        raise errors.Forbidden("Only administrators may list deleted instances", code="policy")
    found: list[tuple[str, tuple[str | None, ...] | None]] = []
    for value in values:
        if value not in BY_STATUS and call.minor >= 38:
            raise queries.bad("status", value, "the status of a server")
        found.extend(BY_STATUS.get(value, []))
    shows_deleted = {"deleted": True} if values == ["DELETED"] and "deleted" not in query else {}
    return {"states": tuple(found), **shows_deleted}


def _tags(query: queries.Query, name: str) -> tuple[str, ...]:
    value = queries.last(query, name)
    return tuple(tag for tag in value.split(",") if tag)[:50] if value else ()


def _metadata(query: queries.Query) -> tuple[tuple[str, str], ...]:
    value = queries.last(query, "metadata")
    if not value:
        return ()
    try:
        pairs = msgspec.json.decode(value, type=dict[str, str])
    except (msgspec.MsgspecError, RecursionError):
        raise queries.bad("metadata", value, "a JSON object of texts") from None
    return tuple(pairs.items())[:50]


def _by_status() -> dict[str, list[tuple[str, tuple[str | None, ...] | None]]]:
    """For each status, the vm_states and task states that it stands for (None: any task state)."""
    tasks: list[str | None] = [None, *states.task_states()]
    found: dict[str, list[tuple[str, tuple[str | None, ...] | None]]] = {}
    for vm_state in states.VM_STATES:
        by_status: dict[str, list[str | None]] = {}
        for task in tasks:
            by_status.setdefault(states.status(vm_state, task), []).append(task)
        for status, shown in by_status.items():
            found.setdefault(status, []).append((vm_state, None if len(by_status) == 1 else tuple(shown)))
    return found


BY_STATUS = _by_status()
