"""``/os-services``: workers and conductors, and whether workers take servers."""

from __future__ import annotations

from typing import Any

from pinfold.api import query as queries
from pinfold.api.call import Call, as_uuid
from pinfold.api.listing import allowed
from pinfold.api.server_views import micros
from pinfold.db import hosts
from pinfold.db import services as book_services
from pinfold.db.models import Service
from pinfold.db.services import ServiceRow
from pinfold.db.session import may_be_done
from pinfold.model import errors

LIST_PARAMETERS = {"host": 1, "binary": 1}
COMPUTE = "nova-compute"
# Clients look for the names that they know. APIs are in no list: nothing can be done with them.
_BINARIES = {hosts.COMPUTE: COMPUTE, "pinfold-conductor": "nova-conductor"}
_NAMES_SINCE = 53


def shown(call: Call) -> list[ServiceRow]:
    """The services that clients get to see."""
    down = call.deps.times.service_down
    rows = call.deps.book.read(lambda session: book_services.listed(session, down))
    return [row for row in rows if row.binary in _BINARIES]


def binary(row: ServiceRow) -> str:
    """What clients call this kind of service."""
    return _BINARIES[row.binary]


def zone(call: Call, row: ServiceRow) -> str:
    """The zone of a worker's host; that of all other services is no zone of hosts."""
    settings = call.deps.settings
    return row.zone or settings.default_zone if row.binary == hosts.COMPUTE else settings.internal_zone


def index(call: Call) -> dict[str, Any]:
    """All services, or those of a host or of a kind."""
    call.authorize(call.project)
    query = allowed(call, LIST_PARAMETERS)
    host, kind = queries.last(query, "host"), queries.last(query, "binary")
    return {
        "services": [
            _view(call, row)
            for row in shown(call)
            if (not host or row.host == host) and (not kind or kind in (row.binary, binary(row)))
        ]
    }


def _view(call: Call, row: ServiceRow) -> dict[str, Any]:
    view: dict[str, Any] = {
        "id": row.id if call.minor >= _NAMES_SINCE else row.number,
        "binary": binary(row),
        "host": row.host,
        "zone": zone(call, row),
        "status": "disabled" if row.disabled else "enabled",
        "state": "up" if row.up else "down",
        "updated_at": micros(row.last_seen_at),
        "disabled_reason": row.disabled_reason,
    }
    return view | ({"forced_down": row.forced_down} if call.minor >= 11 else {})


# --- changes ----------------------------------------------------------------------------------------


def update(call: Call, service: str) -> dict[str, Any]:
    """Enable, disable (with a reason), or force down a worker; before 2.53, ``service`` is the name of the change."""
    call.authorize(call.project)
    if call.minor < _NAMES_SINCE:
        return _update_by_host(call, service)
    id_ = _service_id(service)
    values = _values(call.body)

    def write(session: Any) -> None:
        _change(session, id_, service, values)

    call.deps.book.write(write)
    return {"service": _view(call, next(row for row in shown(call) if row.id == id_))}


def _values(body: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    reason = body.get("disabled_reason")
    if body.get("status") == "enabled":
        if reason:
            raise queries.bad("disabled_reason", reason, "absent with status 'enabled'")
        values = {"disabled": False, "disabled_reason": None}
    elif body.get("status") == "disabled":
        values = {"disabled": True, "disabled_reason": reason}
    if "forced_down" in body:
        values["forced_down"] = queries.boolean("forced_down", str(body["forced_down"]))
    if not values:
        raise errors.InvalidRequest(
            "No updates were requested. Fields 'status' or 'forced_down' should be specified.",
            code="invalid-field",
        )
    return values


def _change(session: Any, id_: str | None, given: str, values: dict[str, Any]) -> Service:
    row = book_services.locked(session, id_) if id_ else None
    if row is None or row.binary not in _BINARIES:
        raise errors.NotFound(f"Service {given[:100]} could not be found.", code="service-not-found")
    if row.binary != hosts.COMPUTE:
        raise errors.InvalidRequest(
            f"Updating a {_BINARIES[row.binary]} service is not supported. Only {COMPUTE} services can be updated.",
            code="not-a-worker",
        )
    book_services.update(session, row, values)
    return row


def _service_id(text: str) -> str:
    id_ = as_uuid(text)
    if id_ is None:
        raise errors.InvalidRequest(f"Invalid uuid {text[:100]}", code="invalid-id")
    return id_


def _update_by_host(call: Call, change: str) -> dict[str, Any]:
    """The old form: ``PUT /os-services/disable`` with host and binary in the body."""
    body = call.body
    host, kind = body["host"], body["binary"]
    told: dict[str, Any]
    if change == "enable":
        values, told = {"disabled": False, "disabled_reason": None}, {"status": "enabled"}
    elif change in ("disable", "disable-log-reason"):
        reason = body.get("disabled_reason") if change == "disable-log-reason" else None
        if change == "disable-log-reason" and reason is None:
            raise queries.bad("disabled_reason", None, "given")
        values, told = {"disabled": True, "disabled_reason": reason}, {"status": "disabled"}
        told |= {"disabled_reason": reason} if reason else {}
    elif change == "force-down" and call.minor >= 11:
        if "forced_down" not in body:
            raise queries.bad("forced_down", None, "given")
        values = {"forced_down": queries.boolean("forced_down", str(body["forced_down"]))}
        told = values
    else:
        raise errors.NotFound("Unknown action", code="unknown-action")
    if kind not in (COMPUTE, hosts.COMPUTE):
        raise queries.bad("binary", kind, f"{COMPUTE}: only these services can be updated")

    def write(session: Any) -> None:
        worker = hosts.worker(session, host)
        _change(session, worker.id if worker else None, f"{kind} on host {host}", values)

    call.deps.book.write(write)
    return {"service": {"host": host, "binary": kind, **told}}


def delete(call: Call, service: str) -> None:
    """Forget a service that is not to come back; a worker only when no server holds anything on its host."""
    call.authorize(call.project)
    id_: str | None
    if call.minor >= _NAMES_SINCE:
        id_ = _service_id(service)
    else:
        if not (service.isascii() and service.isdigit()):
            raise queries.bad("id", service, "a number")
        id_ = next((row.id for row in shown(call) if str(row.number) == service), None)

    def write(session: Any) -> None:
        row = book_services.locked(session, id_) if id_ else None
        if row is None and may_be_done(session):
            return
        if row is None or row.binary not in _BINARIES:
            raise errors.NotFound(f"Service {service[:100]} not found.", code="service-not-found")
        book_services.delete(session, row)

    call.deps.book.write(write)
