"""A server as the API shows it: exactly the fields of the microversion asked for."""

from __future__ import annotations

import datetime
import hashlib
from functools import lru_cache
from typing import Any

from pinfold.api.call import Call
from pinfold.db.instances import Brief, Server
from pinfold.model import states

Shown = dict[str, Any]

_WITH_PROGRESS = frozenset({"ACTIVE", "BUILD", "REBUILD", "RESIZE", "VERIFY_RESIZE", "MIGRATING"})
_EXTENDED = "OS-EXT-SRV-ATTR:"


def seconds(moment: float) -> str:
    """A time as servers show most of them."""
    return _iso(int(moment)) + "Z"


def micros(moment: float | None) -> str | None:
    """A time as ``launched_at`` and ``terminated_at`` are shown: microseconds, no zone."""
    if moment is None:
        return None
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")


@lru_cache(maxsize=4096)
def _iso(moment: int) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")


@lru_cache(maxsize=4096)
def host_id(project: str, host: str) -> str:
    """A name for the host that says nothing about it, and differs between projects."""
    return hashlib.sha224((project + host).encode()).hexdigest()


def links(call: Call, server: str) -> list[dict[str, str]]:
    """Where the server is."""
    return [
        {"rel": "self", "href": f"{call.base}/v2.1/servers/{server}"},
        {"rel": "bookmark", "href": f"{call.base}/servers/{server}"},
    ]


def brief(call: Call, server: Brief) -> Shown:
    """An item of the list without details."""
    return {"id": server.id, "name": server.name, "links": links(call, server.id)}


def full(call: Call, server: Server, *, in_list: bool = False) -> Shown:
    """A server in all its detail."""
    shown = _core(call, server, in_list=in_list)
    shown |= {
        "OS-EXT-AZ:availability_zone": _zone(call, server),
        "config_drive": server.config_drive,
        "key_name": server.key_name,
        "OS-SRV-USG:launched_at": micros(server.launched_at),
        "OS-SRV-USG:terminated_at": micros(server.terminated_at),
        "OS-EXT-STS:task_state": server.task_state,
        "OS-EXT-STS:vm_state": server.vm_state,
        "OS-EXT-STS:power_state": server.power_state,
        "os-extended-volumes:volumes_attached": [],
    }
    if call.allows("os-extended-server-attributes", server.project_id):
        shown |= _extended(call.minor, server)
    elif call.minor >= 90:
        shown[_EXTENDED + "hostname"] = server.hostname
    if call.minor >= 16 and call.allows("servers:show:host_status", server.project_id):
        shown["host_status"] = _host_status(call, server)
    return shown


def updated(call: Call, server: Server) -> Shown:
    """The answer to an update: all fields from 2.75 on, fewer before."""
    return full(call, server) if call.minor >= 75 else _core(call, server, in_list=False)


def _core(call: Call, server: Server, *, in_list: bool) -> Shown:
    status = states.status(server.vm_state, server.task_state)
    shown: Shown = {
        "id": server.id,
        "name": server.name,
        "status": status,
        "tenant_id": server.project_id,
        "user_id": server.user_id,
        "metadata": server.meta,
        "hostId": host_id(server.project_id, server.host) if server.host else "",
        "image": _image(call, server),
        "flavor": _flavor(call, server),
        "created": seconds(server.created_at),
        "updated": seconds(server.updated_at),
        "addresses": {},
        "accessIPv4": server.access_ip_v4,
        "accessIPv6": server.access_ip_v6,
        "links": links(call, server.id),
        "OS-DCF:diskConfig": server.disk_config,
    }
    if status in _WITH_PROGRESS:
        shown["progress"] = 0
    if server.fault is not None:
        shown["fault"] = _fault(call, server.fault)
    return shown | _newer(call.minor, server, in_list=in_list)


def _newer(minor: int, server: Server, *, in_list: bool) -> Shown:
    """Fields that microversions added, each (since, name, value)."""
    added: tuple[tuple[int, str, Any], ...] = (
        (9, "locked", server.locked_by is not None),
        (19, "description", server.description),
        (26, "tags", server.tags),
        (63, "trusted_image_certificates", None),
        (73, "locked_reason", server.locked_reason),
        (96, "pinned_availability_zone", server.availability_zone),
        (100, "scheduler_hints", {name: _as_list(value) for name, value in server.hints.items()}),
    )
    shown: Shown = {name: value for since, name, value in added if minor >= since}
    if minor >= 71 and not in_list:
        shown["server_groups"] = [server.group_id] if server.group_id else []
    return shown


def _zone(call: Call, server: Server) -> str:
    """That of its host; of a server that has never had one, what it was asked for with."""
    if server.host:
        return server.zone or call.deps.settings.default_zone
    return server.availability_zone or "" if server.vm_state == states.BUILDING else ""


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _image(call: Call, server: Server) -> Shown:
    shown: Shown = {
        "id": server.image_ref,
        "links": [{"rel": "bookmark", "href": f"{call.base}/images/{server.image_ref}"}],
    }
    if call.minor >= 98:
        shown["properties"] = server.image_properties
    return shown


def _flavor(call: Call, server: Server) -> Shown:
    flavor = server.flavor
    if call.minor < 47:
        href = f"{call.base}/flavors/{flavor['flavorid']}"
        return {"id": flavor["flavorid"], "links": [{"rel": "bookmark", "href": href}]}
    shown: Shown = {
        "vcpus": flavor["vcpus"],
        "ram": flavor["memory_mb"],
        "disk": flavor["root_gb"],
        "ephemeral": flavor["ephemeral_gb"],
        "swap": flavor["swap_mb"],
        "original_name": flavor["name"],
    }
    if call.allows("servers:show:flavor-extra-specs", server.project_id):
        shown["extra_specs"] = flavor["extra_specs"]
    return shown


def _fault(call: Call, fault: dict[str, Any]) -> Shown:
    """Shown whenever the last operation failed, whatever the status."""
    shown: Shown = {
        "code": fault["code"],
        "created": seconds(fault["created"]),
        "message": fault["message"],
    }
    if fault.get("details") and (call.is_admin or fault["code"] != 500):
        shown["details"] = fault["details"]
    return shown


def _extended(minor: int, server: Server) -> Shown:
    shown: Shown = {
        _EXTENDED + "host": server.host,
        _EXTENDED + "hypervisor_hostname": server.node,
        _EXTENDED + "instance_name": f"instance-{server.id[:8]}",
    }
    if minor < 3:
        return shown
    return shown | {
        _EXTENDED + "hostname": server.hostname,
        _EXTENDED + "kernel_id": "",
        _EXTENDED + "launch_index": server.launch_index,
        _EXTENDED + "ramdisk_id": "",
        _EXTENDED + "reservation_id": server.reservation_id,
        _EXTENDED + "root_device_name": "/dev/vda" if server.launched_at is not None else None,
        _EXTENDED + "user_data": server.user_data,
    }


def _host_status(call: Call, server: Server) -> str:
    if not server.host:
        return ""
    if server.host_forced_down:
        return "DOWN"
    if server.host_disabled:
        return "MAINTENANCE"
    seen = server.host_seen_at
    down = seen is None or seen <= server.now - call.deps.times.service_down
    return "UNKNOWN" if down else "UP"
