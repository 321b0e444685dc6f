"""POST /servers: from a body to the rows that a new server is."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from pinfold.api import query as queries
from pinfold.api.call import Call, Reply, as_uuid
from pinfold.api.flavors import may_use
from pinfold.api.images import may_see_image
from pinfold.api.schemas import HINT_KEYS
from pinfold.api.server_views import links
from pinfold.db import flavors as book_flavors
from pinfold.db import instances as book_instances
from pinfold.db import starts
from pinfold.db.flavors import FlavorRow
from pinfold.db.models import Instance
from pinfold.image.store import Image, ImageNotFound
from pinfold.model import errors, states
from pinfold.model.request import Demand, demand_for
from pinfold.model.work import Bell

_GIB = 1024**3
_LETTERS = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_UNSUPPORTED_LISTS = ("block_device_mapping", "personality", "trusted_image_certificates")


def create(call: Call) -> Reply:
    """Write the servers, each with its open operation, and ring a conductor."""
    wanted = call.body["server"]
    call.require("servers:create")
    _refuse_unsupported(wanted)
    count, batch = _count(call, wanted)
    arguments, zone = _destination(call, wanted)
    flavor = _flavor(call, wanted["flavorRef"])
    image = _image(call, wanted, flavor)
    password = wanted.get("adminPass") or _random(call, call.deps.settings.password_length)
    reservation = "r-" + _random(call, 8).lower()
    fields = _fields(call, wanted, flavor, image, zone) | {"reservation_id": reservation}
    ids = [call.new_id() for _ in range(count)]
    operations = [call.new_id() for _ in range(count)]
    names = _names(wanted, ids, batch=batch)

    def write(session: Any) -> Bell:
        rows = [
            Instance(id=id_, name=name, hostname=hostname, launch_index=index, **fields)
            for index, (id_, (name, hostname)) in enumerate(zip(ids, names, strict=True))
        ]
        return starts.create(
            session,
            rows,
            call.requester,
            call.deps.times,
            operation_ids=operations,
            arguments=arguments,
        )

    call.deps.ring(call.deps.book.write(write), call.context)
    if queries.loose_boolean(str(wanted.get("return_reservation_id", False))):
        return Reply({"reservation_id": reservation})
    return _created(call, ids[0], wanted, password)


def _created(call: Call, server: str, wanted: dict[str, Any], password: str) -> Reply:
    shown: dict[str, Any] = {
        "id": server,
        "links": links(call, server),
        "OS-DCF:diskConfig": wanted.get("OS-DCF:diskConfig", "MANUAL"),
        "security_groups": [{"name": "default"}],
    }
    if call.deps.settings.enable_instance_password:
        shown["adminPass"] = password
    return Reply({"server": shown}, headers={"Location": f"{call.base}/v2.1/servers/{server}"})


def _fields(
    call: Call, wanted: dict[str, Any], flavor: FlavorRow, image: Image, zone: str | None
) -> dict[str, Any]:
    """What all servers of the request have in common."""
    hints: dict[str, Any] = {}
    for key in HINT_KEYS:
        hints |= call.body.get(key, {})
    return {
        "project_id": call.project,
        "user_id": call.user,
        "vm_state": states.BUILDING,
        "power_state": 0,
        "image_ref": image.id,
        "image_properties": image.properties,
        "flavor": _copy(flavor),
        "demand": _demand(flavor, image),
        "meta": wanted.get("metadata", {}),
        "tags": wanted.get("tags", []),
        "hints": hints,
        "description": wanted.get("description", wanted["name"] if call.minor < 19 else None),
        "key_name": wanted.get("key_name"),
        "availability_zone": zone,
        "config_drive": "True" if queries.loose_boolean(str(wanted.get("config_drive", ""))) else "",
        "user_data": wanted.get("user_data"),
        "disk_config": wanted.get("OS-DCF:diskConfig", "MANUAL"),
        "access_ip_v4": wanted.get("accessIPv4", ""),
        "access_ip_v6": wanted.get("accessIPv6", ""),
    }


def _copy(flavor: FlavorRow) -> dict[str, Any]:
    """The flavor as it is now; its id comes first (lists are filtered by that)."""
    kept = ("flavorid", "name", "vcpus", "memory_mb", "root_gb", "ephemeral_gb", "swap_mb", "extra_specs")
    values = msgspec.structs.asdict(flavor)
    return {name: values[name] for name in kept}


def _demand(flavor: FlavorRow, image: Image) -> Demand:
    return demand_for(
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        disk_gb=flavor.root_gb + flavor.ephemeral_gb + -(-flavor.swap_mb // 1024),
        extra_specs=flavor.extra_specs,
        image_properties=image.properties,
    )


def _refuse_unsupported(wanted: dict[str, Any]) -> None:
    """There are no volumes, ports or certificates here; an image on a local disk and no network is what there is."""
    for field in _UNSUPPORTED_LISTS:
        if wanted.get(field):
            raise queries.bad(field, wanted[field], "absent or empty: this cloud does not have it")
    if isinstance(networks := wanted.get("networks"), list) and networks:
        raise queries.bad("networks", networks, "none or auto: this cloud has no networks")
    for number, group in enumerate(wanted.get("security_groups", [])):
        if group.get("name", "default") != "default":
            field = f"security_groups[{number}].name"
            raise queries.bad(field, group["name"], "default: this cloud has no networks")


def _boot_image(wanted: dict[str, Any]) -> str:
    """The id of the image to boot from: ``imageRef``, which a mapping of that image to a local disk may repeat."""
    reference = wanted.get("imageRef", "")
    for number, device in enumerate(wanted.get("block_device_mapping_v2", [])):
        field = f"block_device_mapping_v2[{number}]"
        if device.get("source_type") != "image" or device.get("destination_type") != "local" or number:
            raise queries.bad(field, device, "one image on a local disk: this cloud has no volumes")
        uuid = as_uuid(str(device.get("uuid", "")))
        if uuid is None or (reference and uuid != as_uuid(reference)):
            raise queries.bad(f"{field}.uuid", device.get("uuid"), "the id in imageRef")
        if device.get("boot_index") not in (0, "0"):
            raise queries.bad(f"{field}.boot_index", device.get("boot_index"), "0")
        reference = reference or uuid
    image = as_uuid(reference)
    if image is None:
        raise queries.bad("imageRef", reference, "the id of an image: this cloud has no volumes to boot from")
    return image


def _count(call: Call, wanted: dict[str, Any]) -> tuple[int, bool]:
    """How many servers to make, and whether their names get numbers."""
    least = _positive("min_count", wanted.get("min_count", 1))
    most = _positive("max_count", wanted.get("max_count", least))
    if least > most:
        raise errors.InvalidRequest("min_count must be <= max_count.", code="invalid-field")
    allowed = call.deps.settings.max_servers_per_request
    if least > allowed:
        raise errors.Forbidden(f"Quota exceeded for servers in one request: at most {allowed}.", code="quota")
    return min(most, allowed), most > 1


def _positive(field: str, value: Any) -> int:
    number = int(value)
    if not 1 <= number <= queries.BIGGEST:
        raise queries.bad(field, value, "a number from 1 on")
    return number


def _names(wanted: dict[str, Any], ids: list[str], *, batch: bool) -> list[tuple[str, str]]:
    """Name and host name of each server."""
    base, hostname = wanted["name"], wanted.get("hostname")
    if not batch:
        return [(base, hostname or _hostname(base, ids[0]))]
    suffixes = [f"-{number}" for number in range(1, len(ids) + 1)]
    longest = 255 - len(suffixes[-1])
    return [
        (base[:longest] + suffix, (hostname or _hostname(base[:longest], id_))[: 255 - len(suffix)] + suffix)
        for id_, suffix in zip(ids, suffixes, strict=True)
    ]


def _hostname(name: str, server: str) -> str:
    """A host name from a display name, as Nova makes it."""
    plain = re.sub(r"[ _]", "-", name.encode("ascii", "ignore").decode())
    plain = re.sub(r"[^A-Za-z0-9.-]+", "", plain).lower().strip(".-")
    plain = re.sub(r"\.", "-", plain)[:63].strip("-")
    return plain or f"server-{server}"[:63]


def _destination(call: Call, wanted: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Where an admin wants it (for the operation), and the zone that it is pinned to."""
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
    if zone is None:
        return None, None, None
    name, _, rest = zone.partition(":")
    host, _, node = rest.partition(":")
    check_zone(call, name)
    return name, host or None, node or None


def check_zone(call: Call, zone: str) -> None:
    """Raise InvalidRequest for an availability zone that is not there."""
    if zone != call.deps.settings.default_zone:
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


def _flavor(call: Call, reference: str | int) -> FlavorRow:
    flavorid = str(reference)
    flavor = call.deps.book.read(lambda session: book_flavors.get(session, flavorid))
    if flavor is None or flavor.disabled or not may_use(call, flavor):
        raise errors.InvalidRequest(
            f"Invalid flavorRef provided: flavor {flavorid[:100]} could not be found.",
            code="flavor-not-found",
        )
    if flavor.root_gb == 0:
        call.require("servers:create:zero_disk_flavor")
    return flavor


def _image(call: Call, wanted: dict[str, Any], flavor: FlavorRow) -> Image:
    """The image, which the caller may see, is active, and fits the flavor."""
    reference = _boot_image(wanted)
    try:
        image = call.deps.images.get(reference)
    except ImageNotFound:
        image = None
    if image is None or not may_see_image(call, image):
        raise errors.InvalidRequest(
            f"Invalid imageRef provided: image {reference} could not be found.", code="image-not-found"
        )
    if image.status != "active":
        raise errors.InvalidRequest(f"Image {image.id} is not active: imageRef.", code="image-not-active")
    if image.min_ram > flavor.memory_mb:
        raise errors.InvalidRequest(
            f"Flavor's memory is too small for requested image: min_ram is {image.min_ram} MB, the flavor has "
            f"{flavor.memory_mb} MB.",
            code="flavor-too-small",
        )
    if flavor.root_gb:
        needed = max(image.min_disk, -(-(image.size or 0) // _GIB))
        if needed > flavor.root_gb:
            raise errors.InvalidRequest(
                f"Flavor's disk is too small for requested image: it needs {needed} GB, the flavor has "
                f"{flavor.root_gb} GB.",
                code="flavor-too-small",
            )
    return image


def _random(call: Call, length: int) -> str:
    choice = call.deps.runtime.random().choice
    return "".join(choice(_LETTERS) for _ in range(length))
