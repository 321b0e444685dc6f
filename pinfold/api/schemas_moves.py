"""JSON Schemas of the bodies of moves."""

from __future__ import annotations

from pinfold.api.schemas import BOOLEAN, NAME, Body, Schema, closed

_HOST: Schema = {"anyOf": [NAME, {"type": "null"}]}


def _resize(minor: int) -> Schema:
    flavor: Schema = {"anyOf": [{"type": "string", "minLength": 1}, {"type": "integer"}]}
    return closed({"flavorRef": flavor, "OS-DCF:diskConfig": {"enum": ["AUTO", "MANUAL"]}}, "flavorRef")


def _migrate(minor: int) -> Schema:
    return {} if minor < 56 else {"anyOf": [{"type": "null"}, closed({"host": _HOST})]}


def _evacuate(minor: int) -> Schema:
    fields: Schema = {"host": NAME, "adminPass": {"type": "string"}}
    if minor < 14:
        return closed(fields | {"onSharedStorage": BOOLEAN}, "onSharedStorage")
    return closed(fields | ({"force": BOOLEAN} if 29 <= minor < 68 else {}))


def _migrate_live(minor: int) -> Schema:
    fields: Schema = {"host": _HOST, "block_migration": BOOLEAN}
    if minor < 25:
        fields["disk_over_commit"] = BOOLEAN
        return closed(fields, "host", "block_migration", "disk_over_commit")
    fields["block_migration"] = {"anyOf": [BOOLEAN, {"const": "auto"}]}
    return closed(fields | ({"force": BOOLEAN} if 30 <= minor < 68 else {}), "host", "block_migration")


RESIZE = Body("resize", _resize)
MIGRATE = Body("migrate", _migrate, (1, 56))
EVACUATE = Body("evacuate", _evacuate, (1, 14, 29, 68))
MIGRATE_LIVE = Body("migrate_live", _migrate_live, (1, 25, 30, 68))
