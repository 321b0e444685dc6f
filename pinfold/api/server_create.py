"""POST /servers: from a body to the rows that a new server is."""

from __future__ import annotations

import re
from typing import Any

from pinfold.api import boot_images, sizes
from pinfold.api import query as queries
from pinfold.api.call import Call, Reply, as_uuid
from pinfold.api.places import destination, hints
from pinfold.api.server_views import links
from pinfold.db import keypairs as book_keypairs
from pinfold.db import operations as book_operations
from pinfold.db import quotas as book_quotas
from pinfold.db import server_groups as book_groups
from pinfold.db import starts
from pinfold.db.flavors import FlavorRow
from pinfold.db.models import Instance
from pinfold.image.store import Image
from pinfold.model import errors, quotas, states
from pinfold.model.work import Bell

_LETTERS = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_UNSUPPORTED_LISTS = ("block_device_mapping", "personality", "trusted_image_certificates")


def create(call: Call) -> Reply:
    """Write the servers, each with its open operation, and ring a conductor."""
    wanted = call.body["server"]
    call.require("servers:create")
    _refuse_unsupported(wanted)
    least, most, batch = _count(call, wanted)
    arguments, zone = destination(call, wanted)
    flavor = sizes.chosen(call, wanted["flavorRef"])
    image = _image(call, wanted, flavor)
    password = wanted.get("adminPass") or random_text(call, call.deps.settings.password_length)
    reservation = "r-" + random_text(call, 8).lower()
    fields = _fields(call, wanted, flavor, image, zone) | {"reservation_id": reservation}
    ids = [call.new_id() for _ in range(most)]
    operations = [call.new_id() for _ in range(most)]
    names = _names(wanted, ids, batch=batch)

    def write(session: Any) -> Bell:
        if book_operations.is_written(session, operations[0]):
            return Bell(run=tuple(operations))
        check_key(session, call, fields["key_name"])
        count = _room(session, call, fields, least, most)
        rows = [
            Instance(id=id_, name=name, hostname=hostname, launch_index=index, **fields)
            for index, (id_, (name, hostname)) in enumerate(zip(ids[:count], names, strict=False))
        ]
        bell = starts.create(
            session,
            rows,
            call.requester,
            call.deps.times,
            operation_ids=operations[:count],
            arguments=arguments,
        )
        _join_group(session, call, fields["hints"].get("group"), ids[:count])
        return bell

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
    return {
        "project_id": call.project,
        "user_id": call.user,
        "vm_state": states.BUILDING,
        "power_state": 0,
        "image_ref": image.id,
        "image_properties": image.properties,
        "flavor": sizes.copy(flavor),
        "demand": sizes.demand(flavor, image.properties),
        "meta": wanted.get("metadata", {}),
        "tags": wanted.get("tags", []),
        "hints": hints(call),
        "description": wanted.get("description", wanted["name"] if call.minor < 19 else None),
        "key_name": wanted.get("key_name"),
        "availability_zone": zone,
        "config_drive": "True" if queries.loose_boolean(str(wanted.get("config_drive", ""))) else "",
        "user_data": wanted.get("user_data"),
        "disk_config": wanted.get("OS-DCF:diskConfig", "MANUAL"),
        "access_ip_v4": wanted.get("accessIPv4", ""),
        "access_ip_v6": wanted.get("accessIPv6", ""),
    }


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


def _count(call: Call, wanted: dict[str, Any]) -> tuple[int, int, bool]:
    """How many servers to make, at least and at most, and whether their names get numbers."""
    least = _positive("min_count", wanted.get("min_count", 1))
    most = _positive("max_count", wanted.get("max_count", least))
    if least > most:
        raise errors.InvalidRequest("min_count must be <= max_count.", code="invalid-field")
    allowed = call.deps.settings.max_servers_per_request
    if least > allowed:
        raise errors.Forbidden(f"Quota exceeded for servers in one request: at most {allowed}.", code="quota")
    return least, min(most, allowed), most > 1


def check_key(session: Any, call: Call, name: str | None) -> None:
    """Raise InvalidRequest for a keypair that the caller does not have."""
    if name is not None and book_keypairs.get(session, call.user, name) is None:
        raise errors.InvalidRequest(
            f"Invalid key_name provided: keypair {name[:100]} could not be found.", code="keypair-not-found"
        )


def _room(session: Any, call: Call, fields: dict[str, Any], least: int, most: int) -> int:
    """How many of the servers there is room for under the quotas, which nobody else adds to until this has ended."""
    may = book_quotas.locked_limits(session, call.deps.settings.quotas, call.project, call.user)
    quotas.require("server", may.project | may.user, {}, {"metadata_items": len(fields["meta"])})
    each = {"cores": fields["flavor"]["vcpus"], "ram": fields["flavor"]["memory_mb"]}
    return book_quotas.room_for_servers(session, may, call.project, call.user, each, least, most)


def _join_group(session: Any, call: Call, group: str | None, servers: list[str]) -> None:
    """Make new servers members of the group that a hint names."""
    if group is None:
        return
    row = book_groups.locked(session, group)
    if row is None or call.sees_project not in (None, row.project_id):
        raise errors.InvalidRequest(
            f"scheduler_hints.group: Instance group {group} could not be found.", code="group-not-found"
        )
    may = book_quotas.limits(session, call.deps.settings.quotas, call.project, call.user)
    used = {"server_group_members": book_quotas.members_of(session, group)}
    quotas.require("group", may.project | may.user, used, {"server_group_members": len(servers)})
    book_groups.join(session, group, servers)


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


def _image(call: Call, wanted: dict[str, Any], flavor: FlavorRow) -> Image:
    """The image, which the caller may see, is active, and fits the flavor."""
    image = boot_images.usable(call, _boot_image(wanted))
    boot_images.require_fit(image, flavor.memory_mb, flavor.root_gb)
    return image


def random_text(call: Call, length: int) -> str:
    """Letters and digits, for passwords and names."""
    choice = call.deps.runtime.random().choice
    return "".join(choice(_LETTERS) for _ in range(length))
