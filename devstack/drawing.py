"""A node's CPUs as one short line of text.

One character per CPU, cells apart: ``~`` shared, ``·`` free, a letter for the server that holds it,
``#`` for a server of somebody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Nodes with more CPUs than this are drawn as counts.
WIDEST = 40


def draw(node: Mapping[str, Any], letters: Mapping[str, str]) -> str:
    """``[~aa·~···|········]``; ``letters`` by server id."""
    if sum(len(cell["cpus"]) for cell in node["cells"]) > WIDEST:
        return "[" + "|".join(_count(cell) for cell in node["cells"]) + "]"
    return "[" + "|".join(_cell(cell, letters) for cell in node["cells"]) + "]"


def _cell(cell: Mapping[str, Any], letters: Mapping[str, str]) -> str:
    text = ""
    for cpu in sorted(cell["cpus"]):
        owner = cell["pins"].get(str(cpu))
        if owner is not None:
            text += letters.get(owner, "#")
        else:
            text += "·" if cpu in cell["dedicated"] else "~"
    return text


def _count(cell: Mapping[str, Any]) -> str:
    return f"{len(cell['pins'])} of {len(cell['dedicated'])}"
