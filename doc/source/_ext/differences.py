"""The kinds of difference that an audit finds."""

from __future__ import annotations

from doc.source._ext import rst
from pinfold.model.differences import KINDS


def table() -> list[str]:
    """Every kind, with its cause and its cure."""
    rows = [
        (
            rst.literal(name),
            rst.escaped(kind.cause),
            rst.escaped(kind.cure),
            "yes" if kind.heals else "no",
        )
        for name, kind in KINDS.items()
    ]
    return rst.table(("Kind", "Cause", "Cure", "Healed"), rows, (16, 40, 36, 8))
