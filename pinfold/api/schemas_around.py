"""JSON Schemas of the bodies of what stands around servers: keypairs, groups, hosts, quotas."""

from __future__ import annotations

from typing import Any

from pinfold.api.schemas import BOOLEAN, NAME, Body, Schema, closed
from pinfold.model.groups import AFFINITY, ANTI_AFFINITY, POLICIES
from pinfold.model.quotas import DEFAULTS

_NUMBER_TEXT = r"^-?[0-9]{1,10}\Z"

# --- keypairs ---------------------------------------------------------------------------------------


def _keypair(minor: int) -> Schema:
    letters = r"_\-@. a-zA-Z0-9" if minor >= 92 else r"_\- a-zA-Z0-9"
    fields: Schema = {
        "name": NAME | {"pattern": rf"^[{letters}]+\Z"},
        "public_key": {"type": "string", "maxLength": 65535},
    }
    if minor >= 2:
        fields["type"] = {"enum": ["ssh", "x509"]}
    if minor >= 10:
        fields["user_id"] = {"type": "string", "maxLength": 255}
    required = ("name", "public_key") if minor >= 92 else ("name",)
    return closed({"keypair": closed(fields, *required)}, "keypair")


KEYPAIR_CREATE = Body("keypair_create", _keypair, (1, 2, 10, 92))

# --- server groups ----------------------------------------------------------------------------------


def _server_group(minor: int) -> Schema:
    known = list(POLICIES) if minor >= 15 else [ANTI_AFFINITY, AFFINITY]
    fields: Schema = {"name": NAME}
    if minor < 64:
        fields["policies"] = {"type": "array", "minItems": 1, "maxItems": 1, "items": {"enum": known}}
        return closed({"server_group": closed(fields, "name", "policies")}, "server_group")
    most: Schema = {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
            {"type": "string", "pattern": r"^0*[1-9][0-9]{0,8}\Z"},
        ]
    }
    fields["policy"] = {"enum": known}
    fields["rules"] = closed({"max_server_per_host": most})
    return closed({"server_group": closed(fields, "name", "policy")}, "server_group")


SERVER_GROUP_CREATE = Body("server_group_create", _server_group, (1, 15, 64))

# --- services and hosts -----------------------------------------------------------------------------

_REASON: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "format": "text"}
_HOST: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[a-zA-Z0-9._-]+\Z"}


def _service_update(minor: int) -> Schema:
    if minor >= 53:
        status: Schema = {"enum": ["enabled", "disabled"]}
        return closed({"status": status, "disabled_reason": _REASON, "forced_down": BOOLEAN})
    fields: Schema = {
        "host": _HOST,
        "binary": {"type": "string", "minLength": 1, "maxLength": 255},
        "disabled_reason": _REASON,
    }
    if minor >= 11:
        fields["forced_down"] = BOOLEAN
    return closed(fields, "host", "binary")


SERVICE_UPDATE = Body("service_update", _service_update, (1, 11, 53))

_SWITCH: Schema = {"enum": ["enable", "disable", "Enable", "Disable", "ENABLE", "DISABLE"]}
HOST_UPDATE = Body(
    "host_update",
    lambda minor: closed({"status": _SWITCH, "maintenance_mode": _SWITCH}, minProperties=1),
)

# --- aggregates -------------------------------------------------------------------------------------

_ZONE: Schema = {"anyOf": [NAME | {"pattern": "^[^:]*$"}, {"type": "null"}]}
_META: Schema = {
    "type": "object",
    "maxProperties": 1000,
    "additionalProperties": False,
    "patternProperties": {
        r"^[a-zA-Z0-9\-_:. ]{1,255}\Z": {
            "anyOf": [{"type": "string", "maxLength": 255}, {"type": "null"}],
        }
    },
}

AGGREGATE_CREATE = Body(
    "aggregate_create",
    lambda minor: closed(
        {"aggregate": closed({"name": NAME, "availability_zone": _ZONE}, "name")}, "aggregate"
    ),
)
AGGREGATE_UPDATE = Body(
    "aggregate_update",
    lambda minor: closed(
        {"aggregate": closed({"name": NAME, "availability_zone": _ZONE}, minProperties=1)}, "aggregate"
    ),
)
_ONE_HOST: Schema = closed({"host": _HOST}, "host")
AGGREGATE_ACTION = Body(
    "aggregate_action",
    lambda minor: closed(
        {
            "add_host": _ONE_HOST,
            "remove_host": _ONE_HOST,
            "set_metadata": closed({"metadata": _META}, "metadata"),
        },
        minProperties=1,
        maxProperties=1,
    ),
)

# --- quotas -----------------------------------------------------------------------------------------

_LIMIT: Schema = {
    "anyOf": [
        {"type": "integer", "minimum": -1, "maximum": 2**31 - 1},
        {"type": "string", "pattern": _NUMBER_TEXT},
    ]
}
NETWORK_QUOTAS = ("fixed_ips", "floating_ips", "security_groups", "security_group_rules")
FILE_QUOTAS = ("injected_files", "injected_file_content_bytes", "injected_file_path_bytes")


def shown_quotas(minor: int, networks_until: int) -> list[str]:
    """The names of limits at a microversion; those of networks go at ``networks_until``."""
    gone = (NETWORK_QUOTAS if minor >= networks_until else ()) + (FILE_QUOTAS if minor >= 57 else ())
    return [name for name in DEFAULTS if name not in gone]


def _quota_set(minor: int) -> Schema:
    fields: dict[str, Any] = dict.fromkeys(shown_quotas(minor, 36), _LIMIT)
    return closed({"quota_set": closed(fields | {"force": BOOLEAN})}, "quota_set")


def _quota_class(minor: int) -> Schema:
    return closed(
        {"quota_class_set": closed(dict.fromkeys(shown_quotas(minor, 50), _LIMIT))}, "quota_class_set"
    )


QUOTA_SET_UPDATE = Body("quota_set_update", _quota_set, (1, 36, 57))
QUOTA_CLASS_UPDATE = Body("quota_class_update", _quota_class, (1, 50, 57))

# --- flavors and images -----------------------------------------------------------------------------

_TENANT: Schema = closed({"tenant": {"type": "string", "minLength": 1, "maxLength": 255}}, "tenant")
FLAVOR_ACTION = Body(
    "flavor_action",
    lambda minor: closed(
        {"addTenantAccess": _TENANT, "removeTenantAccess": _TENANT}, minProperties=1, maxProperties=1
    ),
)
