"""What the clients' commands do otherwise than in front of a real Nova: a list that a test compares with what it
finds."""

from __future__ import annotations

from pathlib import Path

import msgspec

from doc.source._ext import rst

LIST = Path(__file__).resolve().parent.parent / "client-differences.json"


class Reason(msgspec.Struct, frozen=True):
    """Differences, and why they are meant to be."""

    reason: str
    differences: list[str]


def listed() -> list[Reason]:
    """All of them."""
    return msgspec.json.decode(LIST.read_bytes(), type=list[Reason])


def table() -> list[str]:
    """The list for people."""
    rows = [
        ("; ".join(rst.literal(difference) for difference in entry.differences), rst.escaped(entry.reason))
        for entry in listed()
    ]
    return rst.table(("What differs", "Why"), rows, (60, 40))
