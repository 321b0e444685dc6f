"""What this cloud does not have, and what it answers: a list that a test sends to the API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from doc.source._ext import rst

LIST = Path(__file__).resolve().parent.parent / "absent.json"


class Absent(msgspec.Struct, frozen=True):
    """A request for what is not there. ``server`` are fields of a create beside the usual ones."""

    what: str
    method: str
    path: str
    status: int
    code: str
    body: Any = None
    server: dict[str, Any] | None = None
    says: str = ""


def listed() -> list[Absent]:
    """All of them."""
    return msgspec.json.decode(LIST.read_bytes(), type=list[Absent])


def table() -> list[str]:
    """The list for people."""
    rows = []
    for entry in listed():
        request = f"{entry.method} {entry.path}"
        given = "" if entry.server is None else " with " + rst.literals(entry.server)
        given = given or ("" if entry.body is None else " with " + rst.literals(entry.body))
        answer = f"{entry.status} {rst.literal(entry.code)}" + (
            f": {rst.escaped(entry.says)}" if entry.says else ""
        )
        rows.append((rst.escaped(entry.what), rst.literal(request) + given, answer))
    return rst.table(("What", "Request", "Answer"), rows, (20, 44, 36))
