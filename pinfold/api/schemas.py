"""JSON Schemas of request bodies, by microversion: what requests are checked with, and ``/openapi.json`` shows."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match

from pinfold.api.microversions import MAX_MINOR
from pinfold.model import errors

Schema = dict[str, Any]

_formats = jsonschema.FormatChecker(formats=())


@_formats.checks("uuid")
def _is_uuid(value: object) -> bool:
    return not isinstance(value, str) or re.fullmatch(_UUID, value) is not None


@_formats.checks("base64", raises=(binascii.Error, ValueError))
def _is_base64(value: object) -> bool:
    if isinstance(value, str):
        base64.b64decode(value.encode("ascii"), validate=False)
        return re.fullmatch(r"[A-Za-z0-9+/=\s]*", value) is not None
    return True


@_formats.checks("ipv4", raises=ValueError)
def _is_ipv4(value: object) -> bool:
    return not isinstance(value, str) or bool(ipaddress.IPv4Address(value))


@_formats.checks("ipv6", raises=ValueError)
def _is_ipv6(value: object) -> bool:
    return not isinstance(value, str) or ("%" not in value and bool(ipaddress.IPv6Address(value)))


@_formats.checks("name")
def _is_name(value: object) -> bool:
    """Printable, and no space at its edges."""
    return not isinstance(value, str) or (value == value.strip() and _printable(value))


@_formats.checks("text")
def _is_text(value: object) -> bool:
    return not isinstance(value, str) or _printable(
        value.replace("\n", "").replace("\r", "").replace("\t", "")
    )


def _printable(text: str) -> bool:
    return all(char.isprintable() or char.isspace() for char in text) and not any(
        c in text for c in "\r\n\t\v\f"
    )


_UUID = r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}"


class Body:
    """The schemas of one body: ``build(minor)`` makes the one for a microversion, a new one at each of ``since``."""

    def __init__(self, name: str, build: Callable[[int], Schema], since: tuple[int, ...] = (1,)) -> None:
        self.name = name
        self.since = since
        self._schemas = [build(minor) for minor in since]
        self._validators = [
            jsonschema.Draft202012Validator(schema, format_checker=_formats) for schema in self._schemas
        ]

    def at(self, minor: int) -> Schema:
        """The schema at a microversion."""
        return self._schemas[bisect_right(self.since, minor) - 1]

    def versions(self) -> list[tuple[int, int, Schema]]:
        """All schemas, each with its first and last microversion."""
        ends = [*(minor - 1 for minor in self.since[1:]), MAX_MINOR]
        return list(zip(self.since, ends, self._schemas, strict=True))

    def check(self, value: Any, minor: int) -> None:
        """Raise InvalidRequest that names the field, its value and what is wrong with it."""
        validator = self._validators[bisect_right(self.since, minor) - 1]
        first = next(validator.iter_errors(value), None)
        if first is not None:
            raise _refused(first)


def _refused(first: jsonschema.ValidationError) -> errors.InvalidRequest:
    error = best_match(iter([first])) or first
    path = ".".join(str(part) for part in error.absolute_path)
    if not path:
        return errors.InvalidRequest(f"{error.message[:300]}.", code="invalid-field")
    value = str(error.instance)[:100]
    return errors.InvalidRequest(
        f"Invalid input for field/attribute {path[:200]}. Value: {value}. {error.message[:300]}",
        code="invalid-field",
    )


# --- parts ------------------------------------------------------------------------------------------

NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "format": "name"}
DESCRIPTION: Schema = {"type": ["string", "null"], "maxLength": 255, "format": "text"}
BOOLEAN: Schema = {
    "enum": [
        *(True, "True", "TRUE", "true", "1", "ON", "On", "on", "YES", "Yes", "yes"),
        *(False, "False", "FALSE", "false", "0", "OFF", "Off", "off", "NO", "No", "no"),
    ]
}
POSITIVE: Schema = {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": r"^[0-9]{1,10}\Z"}]}
UUID: Schema = {"type": "string", "format": "uuid"}
META_KEY = r"^[a-zA-Z0-9\-_:. ]{1,255}\Z"
METADATA: Schema = {
    "type": "object",
    "additionalProperties": False,
    "patternProperties": {META_KEY: {"type": "string", "maxLength": 255}},
}
TAGS: Schema = {
    "type": "array",
    "maxItems": 50,
    "items": {"type": "string", "minLength": 1, "maxLength": 60, "pattern": r"^[^,/]*\Z", "format": "name"},
    "uniqueItems": True,
}
_IDS: Schema = {"anyOf": [UUID, {"type": "array", "maxItems": 100, "items": UUID}]}
HINTS: Schema = {
    "type": "object",
    "maxProperties": 100,
    "properties": {
        "group": UUID,
        "different_host": _IDS,
        "same_host": _IDS,
        "query": {"anyOf": [{"type": "object"}, {"type": "string"}]},
        "target_cell": NAME,
        "different_cell": {"type": ["string", "array"]},
        "build_near_host_ip": {"type": "string"},
        "cidr": {"type": "string", "pattern": r"^/[0-9a-f.:]+\Z"},
    },
    "additionalProperties": True,
    # hints with such names are between services elsewhere, and turn checks off (F060)
    "propertyNames": {"pattern": "^[^_]"},
}
HINT_KEYS = ("os:scheduler_hints", "OS-SCH-HNT:scheduler_hints")
_ANYTHING: Schema = {}


def closed(properties: Schema, *required: str, **more: Any) -> Schema:
    """The schema of an object with these properties, and no others."""
    made: Schema = {"type": "object", "properties": properties, "additionalProperties": False, **more}
    return made | ({"required": list(required)} if required else {})


# --- servers ----------------------------------------------------------------------------------------

ADDRESSES: Schema = {
    "accessIPv4": {"anyOf": [{"type": "string", "format": "ipv4"}, {"const": ""}]},
    "accessIPv6": {"anyOf": [{"type": "string", "format": "ipv6"}, {"const": ""}]},
}
DISK_CONFIG: Schema = {"enum": ["AUTO", "MANUAL"]}


def hostname(minor: int) -> Schema:
    """A host name, as long as the microversion has it."""
    longest, dots = (255, r"(\.[a-zA-Z0-9-]{1,63})*") if minor >= 94 else (63, "")
    return {
        "type": "string",
        "minLength": 2,
        "maxLength": longest,
        "pattern": rf"^[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?{dots}\Z",
    }


def _networks(minor: int) -> Schema:
    item = closed(
        {"fixed_ip": {"type": "string"}, "port": {"type": ["string", "null"]}, "uuid": UUID}
        | ({"tag": {"type": "string", "maxLength": 60}} if minor >= 32 and minor != 37 else {})
    )
    some: Schema = {"type": "array", "maxItems": 100, "items": item}
    return {"anyOf": [some, {"enum": ["none", "auto"]}]} if minor >= 37 else some


def _server_create(minor: int) -> Schema:
    fields: Schema = {
        "name": NAME,
        "imageRef": {"anyOf": [UUID, {"const": ""}]},
        "flavorRef": {"anyOf": [{"type": "integer"}, {"type": "string", "minLength": 1, "maxLength": 255}]},
        "networks": _networks(minor),
        "block_device_mapping_v2": {"type": "array", "maxItems": 100, "items": {"type": "object"}},
        "block_device_mapping": {"type": "array", "maxItems": 100, "items": {"type": "object"}},
        "min_count": POSITIVE,
        "max_count": POSITIVE,
        "availability_zone": NAME,
        "key_name": NAME,
        "config_drive": BOOLEAN,
        "user_data": {"type": "string", "maxLength": 65535, "format": "base64"},
        "metadata": METADATA,
        "security_groups": {
            "type": "array",
            "maxItems": 100,
            "items": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 255}}},
        },
        "adminPass": {"type": "string", "maxLength": 255},
        "OS-DCF:diskConfig": DISK_CONFIG,
        "return_reservation_id": BOOLEAN,
        **ADDRESSES,
    }
    if minor < 57:
        fields["personality"] = {"type": "array", "maxItems": 100, "items": {"type": "object"}}
    if minor >= 19:
        fields["description"] = DESCRIPTION
    if minor >= 52:
        fields["tags"] = TAGS
    if minor >= 63:
        fields["trusted_image_certificates"] = {
            "type": ["array", "null"],
            "maxItems": 50,
            "items": {"type": "string"},
        }
    if minor >= 74:
        fields |= {"host": NAME, "hypervisor_hostname": NAME}
    if minor >= 90:
        fields["hostname"] = hostname(minor)
    required = ("name", "flavorRef", *(["networks"] if minor >= 37 else []))
    return closed({"server": closed(fields, *required), **dict.fromkeys(HINT_KEYS, HINTS)}, "server")


def _server_update(minor: int) -> Schema:
    fields: Schema = {"name": NAME, "OS-DCF:diskConfig": DISK_CONFIG, **ADDRESSES}
    if minor >= 19:
        fields["description"] = DESCRIPTION
    if minor >= 90:
        fields["hostname"] = hostname(minor)
    if minor >= 104:
        fields["pinned_availability_zone"] = {"anyOf": [NAME, {"type": "null"}]}
    return closed({"server": closed(fields)}, "server")


def _unshelve(minor: int) -> Schema:
    if minor < 77:
        return _ANYTHING
    if minor < 91:
        return {"anyOf": [{"type": "null"}, closed({"availability_zone": NAME}, "availability_zone")]}
    zone: Schema = {"anyOf": [NAME, {"type": "null"}]}
    return {"anyOf": [{"type": "null"}, closed({"availability_zone": zone, "host": NAME})]}


SERVER_CREATE = Body("server_create", _server_create, (1, 19, 32, 37, 38, 42, 52, 57, 63, 74, 90, 94))
SERVER_UPDATE = Body("server_update", _server_update, (1, 19, 90, 94, 104))
METADATA_BODY = Body("metadata", lambda minor: closed({"metadata": METADATA}, "metadata"))
META_BODY = Body(
    "metadata_item",
    lambda minor: closed({"meta": METADATA | {"minProperties": 1, "maxProperties": 1}}, "meta"),
)
ANYTHING = Body("anything", lambda minor: _ANYTHING)
UNSHELVE = Body("unshelve", _unshelve, (1, 77, 91))
ACTION = Body("server_action", lambda minor: {"type": "object", "minProperties": 1, "maxProperties": 1})

# --- flavors ----------------------------------------------------------------------------------------

_SPEC_KEY = r"^[a-zA-Z0-9\-_:. ]{1,255}\Z"
_SPEC_VALUE: Schema = {
    "anyOf": [{"type": "string", "maxLength": 255}, {"type": "number"}, {"type": "boolean"}]
}
_SPECS: Schema = {
    "type": "object",
    "maxProperties": 128,
    "additionalProperties": False,
    "patternProperties": {_SPEC_KEY: _SPEC_VALUE},
}


def _flavor_create(minor: int) -> Schema:
    number: Schema = {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": r"^[0-9]{1,10}\Z"}]}
    fields: Schema = {
        "id": {
            "anyOf": [
                {"type": "integer"},
                {"type": "null"},
                {"type": "string", "minLength": 1, "maxLength": 255},
            ]
        },
        "name": NAME,
        "ram": number,
        "vcpus": number,
        "disk": number,
        "swap": {"anyOf": [number, {"const": ""}]},
        "OS-FLV-EXT-DATA:ephemeral": number,
        "rxtx_factor": {
            "anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^[0-9]{1,9}(\.[0-9]{1,9})?\Z"}]
        },
        "os-flavor-access:is_public": BOOLEAN,
    }
    if minor >= 55:
        fields["description"] = {"type": ["string", "null"], "maxLength": 65535, "format": "text"}
    return closed({"flavor": closed(fields, "name", "ram", "vcpus", "disk")}, "flavor")


FLAVOR_CREATE = Body("flavor_create", _flavor_create, (1, 55))
FLAVOR_UPDATE = Body(
    "flavor_update",
    lambda minor: closed(
        {"flavor": closed({"description": {"type": ["string", "null"], "maxLength": 65535}}, "description")},
        "flavor",
    ),
)
EXTRA_SPECS = Body("extra_specs", lambda minor: closed({"extra_specs": _SPECS}, "extra_specs"))
EXTRA_SPEC = Body("extra_spec", lambda minor: _SPECS | {"minProperties": 1, "maxProperties": 1})

# --- images -----------------------------------------------------------------------------------------

DISK_FORMATS = [
    None,
    "ami",
    "ari",
    "aki",
    "vhd",
    "vhdx",
    "vmdk",
    "raw",
    "qcow2",
    "vdi",
    "iso",
    "ploop",
    "gpt",
]
CONTAINER_FORMATS = [None, "ami", "ari", "aki", "bare", "ovf", "ova", "docker", "compressed"]
VISIBILITIES = ["public", "private", "shared", "community"]
IMAGE_FIELDS: Schema = {
    "id": UUID,
    "name": {"type": ["string", "null"], "maxLength": 255},
    "visibility": {"enum": VISIBILITIES},
    "protected": {"type": "boolean"},
    "os_hidden": {"type": "boolean"},
    "disk_format": {"enum": DISK_FORMATS},
    "container_format": {"enum": CONTAINER_FORMATS},
    "min_disk": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
    "min_ram": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
    "owner": {"type": ["string", "null"], "maxLength": 255},
    "tags": {"type": "array", "maxItems": 128, "items": {"type": "string", "maxLength": 255}},
}
IMAGE_PROPERTY: Schema = {"type": "string", "maxLength": 65535}
IMAGE_CREATE = Body(
    "image_create",
    lambda minor: {
        "type": "object",
        "maxProperties": 160,
        "properties": IMAGE_FIELDS,
        "additionalProperties": IMAGE_PROPERTY,
        "propertyNames": {"minLength": 1, "maxLength": 255},
    },
)
IMAGE_PATCH = Body(
    "image_patch",
    lambda minor: {
        "type": "array",
        "maxItems": 200,
        "items": closed(
            {
                "op": {"enum": ["add", "replace", "remove"]},
                "path": {"type": "string", "minLength": 2, "maxLength": 600, "pattern": "^/"},
                "value": _ANYTHING,
            },
            "op",
            "path",
        ),
    },
)
