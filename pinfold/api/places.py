"""Where a server is to be: zones, hosts and nodes that requests name, and the hints beside them."""

from __future__ import annotations

from typing import Any

from pinfold.api import query as queries
from pinfold.api.call import Call, as_uuid
from pinfold.api.schemas import HINT_KEYS
from pinfold.db import aggregates
from pinfold.db import instances as book_instances
from pinfold.db import services as book_services
from pinfold.model import errors


def destination(call: Call, wanted: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Where an admin wants a new server (for its create, once), and the zone that it is pinned to (for good)."""
    zone, host, node = _parse_zone(call, wanted.get("availability_zone"))
    if host or node:
        call.require("servers:create:forced_host")
    if wanted.get("host") or wanted.get("hypervisor_hostname"):
        call.require("compute:servers:create:requested_destination")
        if host or node:
            raise queries.bad(
                "host", wanted.get("host"), "absent when availability_zone names a host or node"
            )
        host, node = wanted.get("host"), wanted.get("hypervisor_hostname")
    field = "availability_zone" if "host" not in wanted and "hypervisor_hostname" not in wanted else "host"
    check_place(call, host, node, field)
    return {name: value for name, value in (("host", host), ("node", node)) if value}, zone


def _parse_zone(call: Call, zone: str | None) -> tuple[str | None, str | None, str | None]:
    """``zone``, ``zone:host`` or ``zone:host:node``; the zone may be left out."""
    name, _, rest = (zone or "").partition(":")
    host, _, node = rest.partition(":")
    if name:
        check_zone(call, name)
    return name or None, host or None, node or None


def check_zone(call: Call, zone: str) -> None:
    """Raise InvalidRequest for an availability zone that is not there, or in which no host takes servers."""
    found = call.deps.book.read(book_services.zones_with_room)
    if zone not in {name or call.deps.settings.default_zone for name in found}:
        raise errors.InvalidRequest(
            f"The requested availability zone is not available: availability_zone {zone[:100]!r}.",
            code="unknown-zone",
        )


def check_place(call: Call, host: str | None, node: str | None, field: str = "host") -> None:
    """Raise InvalidRequest for a host or node that is not there."""
    if host is None and node is None:
        return

    def look(session: Any) -> tuple[bool, str | None]:
        known = host is None or book_instances.knows_host(session, host)
        return known, book_instances.host_of_node(session, node) if node else None

    known, host_of_node = call.deps.book.read(look)
    if not known:
        raise errors.InvalidRequest(f"{field}: Compute host {host} could not be found.", code="unknown-host")
    if node is not None and (host_of_node is None or host not in (None, host_of_node)):
        where = f" on host {host}" if host and host_of_node else ""
        raise errors.InvalidRequest(
            f"{field}: Compute node {node} could not be found{where}.", code="unknown-node"
        )


def require_host_in_zone(session: Any, call: Call, host: str, zone: str) -> None:
    """Raise Conflict unless the host is in the zone that the server is pinned to."""
    if (aggregates.zone_of(session, host) or call.deps.settings.default_zone) != zone:
        raise errors.Conflict(
            f"Host '{host}' is not in availability zone '{zone}', which the server is pinned to.",
            code="host-not-in-zone",
        )


def hints(call: Call) -> dict[str, Any]:
    """The hints of a create, with ids in their canonical form."""
    given: dict[str, Any] = {}
    for key in HINT_KEYS:
        given |= call.body.get(key, {})
    for name in ("group", "same_host", "different_host"):
        if name in given:
            given[name] = _canonical(given[name])
    return given


def _canonical(value: str | list[str]) -> str | list[str]:
    if isinstance(value, str):
        return as_uuid(value) or value
    return [as_uuid(text) or text for text in value]
