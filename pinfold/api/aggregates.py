"""``/os-aggregates``: hosts with something in common. One with an availability zone makes its hosts that zone."""

from __future__ import annotations

from typing import Any

from oslo_db import exception as db_errors

from pinfold.api.call import Call
from pinfold.api.faults import NotBuilt
from pinfold.api.listing import allowed
from pinfold.api.server_views import micros
from pinfold.db import aggregates as book_aggregates
from pinfold.db import hosts
from pinfold.db.aggregates import AggregateRow
from pinfold.db.models import Aggregate
from pinfold.db.session import may_be_done
from pinfold.model import errors

ZONE = "availability_zone"
_STRICT_SINCE = 102


def index(call: Call) -> dict[str, Any]:
    """All aggregates."""
    call.authorize(call.project)
    allowed(call, {}, _STRICT_SINCE)
    rows = call.deps.book.read(book_aggregates.listed)
    return {"aggregates": [_view(call, row) for row in rows]}


def show(call: Call, aggregate: str) -> dict[str, Any]:
    """One aggregate."""
    call.authorize(call.project)
    allowed(call, {}, _STRICT_SINCE)
    return {"aggregate": _view(call, _found(call, _id(aggregate)))}


def _id(text: str) -> int:
    """Names are looked for in the list by clients, which count on this answer to them."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise errors.InvalidRequest("Invalid input received: id must be an integer", code="invalid-id")
    return int(text)


def _found(call: Call, aggregate: int) -> AggregateRow:
    rows = call.deps.book.read(lambda session: book_aggregates.listed(session, aggregate))
    if not rows:
        raise _not_found(aggregate)
    return rows[0]


def _not_found(aggregate: int) -> errors.NotFound:
    return errors.NotFound(f"Aggregate {aggregate} could not be found.", code="aggregate-not-found")


def _view(call: Call, row: AggregateRow) -> dict[str, Any]:
    zone = {} if row.availability_zone is None else {ZONE: row.availability_zone}
    return _brief(call, row) | {"hosts": list(row.hosts), "metadata": row.meta | zone}


def _brief(call: Call, row: AggregateRow) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": row.id,
        "name": row.name,
        ZONE: row.availability_zone,
        "created_at": micros(row.created_at),
        "updated_at": micros(row.updated_at),
        "deleted": False,
        "deleted_at": None,
    }
    return shown | ({"uuid": row.uuid} if call.minor >= 41 else {})


def create(call: Call) -> dict[str, Any]:
    """A new aggregate, without hosts."""
    call.authorize(call.project)
    wanted, uuid = call.body["aggregate"], call.new_id()
    try:
        row = call.deps.book.write(
            lambda session: book_aggregates.add(session, uuid, wanted["name"], wanted.get(ZONE))
        )
    except db_errors.DBDuplicateEntry:
        raise _exists(wanted["name"]) from None
    return {"aggregate": _brief(call, row)}


def _exists(name: str) -> errors.Conflict:
    return errors.Conflict(f"Aggregate {name} already exists.", code="aggregate-exists")


def update(call: Call, aggregate: str) -> dict[str, Any]:
    """Change name or zone."""
    call.authorize(call.project)
    wanted, number = dict(call.body["aggregate"]), _id(aggregate)

    def write(session: Any) -> None:
        row = _locked(session, number)
        if ZONE in wanted:
            _check_new_zone(session, row, wanted[ZONE])
        book_aggregates.update(session, number, wanted)

    try:
        call.deps.book.write(write)
    except db_errors.DBDuplicateEntry:
        raise _exists(wanted["name"]) from None
    return {"aggregate": _view(call, _found(call, number))}


def _locked(session: Any, aggregate: int) -> Aggregate:
    row = book_aggregates.locked(session, aggregate)
    if row is None:
        raise _not_found(aggregate)
    return row


def _check_new_zone(session: Any, row: Aggregate, zone: str | None) -> None:
    """A zone may change while no servers are in it, to one that no other aggregate contradicts."""
    if not zone:
        raise errors.InvalidRequest(
            f"Cannot update aggregate {row.id}. Reason: Aggregate {row.name} does not support empty named "
            "availability zone.",
            code="empty-zone",
        )
    if zone == row.availability_zone:
        return
    members = book_aggregates.hosts_of(session, row.id)
    others = sorted(set(book_aggregates.other_zones(session, members, row.id).values()) - {zone})
    if others:
        raise errors.InvalidRequest(
            f"Cannot update aggregate {row.id}. Reason: One or more hosts already in availability zone(s) {others}.",
            code="zone-conflict",
        )
    if members and book_aggregates.servers_on(session, members):
        raise errors.InvalidRequest(
            f"Cannot update aggregate {row.id}. Reason: One or more hosts contain instances in this zone.",
            code="zone-in-use",
        )


def delete(call: Call, aggregate: str) -> None:
    """Remove one that has no hosts."""
    call.authorize(call.project)
    number = _id(aggregate)

    def write(session: Any) -> None:
        if may_be_done(session) and book_aggregates.locked(session, number) is None:
            return
        _locked(session, number)
        if book_aggregates.hosts_of(session, number):
            raise errors.InvalidRequest(
                f"Cannot remove aggregate {number}. Reason: Host aggregate is not empty.",
                code="aggregate-not-empty",
            )
        book_aggregates.delete(session, number)

    call.deps.book.write(write)


# --- actions ----------------------------------------------------------------------------------------


def act(call: Call, aggregate: str) -> dict[str, Any]:
    """Add or remove a host, or change metadata: the one thing that the body names."""
    ((action, value),) = call.body.items()
    call.require(f"os-aggregates:{action}")
    number = _id(aggregate)

    def write(session: Any) -> None:
        _ACTIONS[action](session, _locked(session, number), value)

    call.deps.book.write(write)
    return {"aggregate": _view(call, _found(call, number))}


def _add_host(session: Any, row: Aggregate, value: dict[str, Any]) -> None:
    host = value["host"]
    if hosts.worker(session, host) is None:
        raise errors.NotFound(f"Compute host {host} could not be found.", code="unknown-host")
    if host in book_aggregates.hosts_of(session, row.id):
        if may_be_done(session):
            return
        raise errors.Conflict(f"Aggregate {row.id} already has host {host}.", code="host-exists")
    _check_move(session, row, host, "add", after=row.availability_zone)
    book_aggregates.add_host(session, row.id, host)
    book_aggregates.update(session, row.id, {})


def _remove_host(session: Any, row: Aggregate, value: dict[str, Any]) -> None:
    host = value["host"]
    if host not in book_aggregates.hosts_of(session, row.id):
        if may_be_done(session):
            return
        raise errors.NotFound(f"Cannot remove host {host} in aggregate {row.id}", code="host-not-found")
    _check_move(session, row, host, "remove", after=None)
    book_aggregates.remove_host(session, row.id, host)
    book_aggregates.update(session, row.id, {})


def _check_move(session: Any, row: Aggregate, host: str, verb: str, after: str | None) -> None:
    """A host with servers stays in its zone: its zone is what they were promised."""
    if row.availability_zone is None:
        return
    other = book_aggregates.other_zones(session, [host], row.id).get(host)
    if after is not None and other not in (None, after):
        raise errors.Conflict(
            f"Cannot {verb} host to aggregate {row.id}. Reason: One or more hosts already in availability zone(s) "
            f"['{other}'].",
            code="zone-conflict",
        )
    before = other if verb == "add" else row.availability_zone
    after = after or other
    servers = book_aggregates.servers_on(session, [host])
    if before != after and servers:
        moved, to = ("added", "to") if verb == "add" else ("removed", "from")
        raise errors.Conflict(
            f"Cannot {verb} host {to} aggregate {row.id}. Reason: The host cannot be {moved} {to} the aggregate as "
            f"the availability zone of the host would change from '{before}' to '{after}' but the host already has "
            f"{servers} instance(s). Move the instances away from this host then try again: shelve, offload and "
            "unshelve them.",
            code="zone-in-use",
        )


def _set_metadata(session: Any, row: Aggregate, value: dict[str, Any]) -> None:
    """Add, change and (with null) remove items; the item ``availability_zone`` is the zone."""
    changes = dict(value["metadata"])
    values: dict[str, Any] = {}
    if ZONE in changes:
        zone = changes.pop(ZONE)
        _check_new_zone(session, row, zone)
        values[ZONE] = zone
    known: dict[str, str | None] = {**row.meta, **changes}
    meta = {name: item for name, item in known.items() if item is not None}
    book_aggregates.update(session, row.id, values | {"meta": meta})


_ACTIONS = {"add_host": _add_host, "remove_host": _remove_host, "set_metadata": _set_metadata}


def cache_images(call: Call, aggregate: str) -> None:
    """Fetching images ahead is nothing that workers here do."""
    call.authorize(call.project)
    _found(call, _id(aggregate))
    raise NotBuilt("This cloud does not cache images on hosts.")
