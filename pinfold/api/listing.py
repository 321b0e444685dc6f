"""Paging of lists: limit, marker, sorting, and the link to the next page."""

from __future__ import annotations

from urllib.parse import urlencode

from pinfold.api import query as queries
from pinfold.api.call import Call


def limit_of(call: Call) -> int:
    """How many to list: what was asked for, but never more than ``[api] max_limit``."""
    asked = queries.number(call.query, "limit")
    most = call.deps.settings.max_limit
    return most if asked is None else min(asked, most)


def sort_of(
    call: Call, sortable: object, default: tuple[tuple[str, bool], ...]
) -> tuple[tuple[str, bool], ...]:
    """Pairs of ``sort_key`` and whether it descends. Raises InvalidRequest for a key that is not sortable."""
    keys = call.query.get("sort_key", [])
    directions = call.query.get("sort_dir", [])
    for direction in directions:
        if direction not in ("asc", "desc"):
            raise queries.bad("sort_dir", direction, "asc or desc")
    if not keys:
        first = directions[0] == "desc" if directions else None
        return tuple((key, down if first is None else first) for key, down in default)
    for key in keys:
        if key not in sortable:  # type: ignore[operator]
            raise queries.bad("sort_key", key, "one of the sort keys of this list")
    down = [direction == "desc" for direction in directions]
    down += [down[-1] if down else True] * (len(keys) - len(down))
    return tuple(dict(zip(keys, down, strict=False)).items())


def next_link(call: Call, path: str, marker: str) -> dict[str, str]:
    """The link to the page after the one that ends with ``marker``."""
    pairs = [(name, value) for name, values in call.query.items() if name != "marker" for value in values]
    return {"rel": "next", "href": f"{call.base}{path}?{urlencode([*pairs, ('marker', marker)])}"}
