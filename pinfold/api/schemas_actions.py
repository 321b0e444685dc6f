"""JSON Schemas of actions on servers in their places, and of tags."""

from __future__ import annotations

from pinfold.api.schemas import (
    ADDRESSES,
    BOOLEAN,
    DESCRIPTION,
    DISK_CONFIG,
    METADATA,
    NAME,
    TAGS,
    UUID,
    Body,
    Schema,
    closed,
    hostname,
)

_NULL: Schema = {"type": "null"}
_REASON: Schema = {"type": "string", "minLength": 1, "maxLength": 255}


def _lock(minor: int) -> Schema:
    return {"anyOf": [_NULL, closed({"locked_reason": _REASON})]} if minor >= 73 else {}


def _rebuild(minor: int) -> Schema:
    fields: Schema = {
        "imageRef": UUID,
        "name": NAME,
        "adminPass": {"type": "string", "maxLength": 255},
        "metadata": METADATA,
        "preserve_ephemeral": BOOLEAN,
        "OS-DCF:diskConfig": DISK_CONFIG,
        **ADDRESSES,
    }
    if minor < 57:
        fields["personality"] = {"type": "array", "maxItems": 100, "items": {"type": "object"}}
    if minor >= 19:
        fields["description"] = DESCRIPTION
    if minor >= 54:
        fields["key_name"] = {"anyOf": [NAME, _NULL]}
    if minor >= 57:
        data: Schema = {"type": "string", "maxLength": 65535, "format": "base64"}
        fields["user_data"] = {"anyOf": [data, _NULL]}
    if minor >= 63:
        fields["trusted_image_certificates"] = {
            "type": ["array", "null"],
            "maxItems": 50,
            "items": {"type": "string"},
        }
    if minor >= 90:
        fields["hostname"] = hostname(minor)
    return closed(fields, "imageRef")


REBOOT = Body(
    "reboot",
    lambda minor: closed({"type": {"enum": ["HARD", "Hard", "hard", "SOFT", "Soft", "soft"]}}, "type"),
)
LOCK = Body("lock", _lock, (1, 73))
CREATE_IMAGE = Body("create_image", lambda minor: closed({"name": NAME, "metadata": METADATA}, "name"))
REBUILD = Body("rebuild", _rebuild, (1, 19, 54, 57, 63, 90, 94))
RESET_STATE = Body("reset_state", lambda minor: closed({"state": {"enum": ["active", "error"]}}, "state"))
CONSOLE = Body(
    "console_output",
    lambda minor: closed(
        {
            "length": {
                "anyOf": [
                    {"type": "integer", "minimum": -1},
                    {"type": "string", "pattern": r"^(-1|[0-9]{1,9})\Z"},
                    _NULL,
                ]
            }
        }
    ),
)
TAGS_BODY = Body("tags", lambda minor: closed({"tags": TAGS}, "tags"))
