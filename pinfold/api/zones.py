"""``/os-availability-zone``: the zones of hosts, from aggregates; hosts in none are the default zone."""

from __future__ import annotations

from typing import Any

from pinfold.api import services
from pinfold.api.call import Call
from pinfold.api.listing import allowed
from pinfold.api.server_views import micros
from pinfold.db.services import ServiceRow

_STRICT_SINCE = 102


def index(call: Call) -> dict[str, Any]:
    """The zones, and whether any of their hosts takes servers."""
    call.authorize(call.project)
    allowed(call, {}, _STRICT_SINCE)
    found = _by_zone(call)
    found.pop(call.deps.settings.internal_zone, None)
    return {"availabilityZoneInfo": [_view(name, rows, with_hosts=False) for name, rows in _sorted(found)]}


def detail(call: Call) -> dict[str, Any]:
    """The zones with their hosts, and the services on these."""
    call.authorize(call.project)
    allowed(call, {}, _STRICT_SINCE)
    return {
        "availabilityZoneInfo": [_view(name, rows, with_hosts=True) for name, rows in _sorted(_by_zone(call))]
    }


def _by_zone(call: Call) -> dict[str, list[ServiceRow]]:
    found: dict[str, list[ServiceRow]] = {}
    for row in services.shown(call):
        found.setdefault(services.zone(call, row), []).append(row)
    return found


def _available(rows: list[ServiceRow]) -> bool:
    return any(not row.disabled for row in rows)


def _sorted(found: dict[str, list[ServiceRow]]) -> list[tuple[str, list[ServiceRow]]]:
    """Those that can be used come first."""
    return sorted(found.items(), key=lambda item: (not _available(item[1]), item[0]))


def _view(name: str, rows: list[ServiceRow], *, with_hosts: bool) -> dict[str, Any]:
    available = _available(rows)
    by_host: dict[str, Any] = {}
    for row in rows if with_hosts and available else ():
        if not row.disabled:
            by_host.setdefault(row.host, {})[services.binary(row)] = {
                "available": row.up,
                "active": True,
                "updated_at": micros(row.last_seen_at),
            }
    return {"zoneName": name, "zoneState": {"available": available}, "hosts": by_host or None}
