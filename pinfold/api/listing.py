"""Paging of lists: limit, marker, sorting, and the link to the next page."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from pinfold.api import query as queries
from pinfold.api.call import Call
from pinfold.model import errors

STRICT_SINCE = 75
"""From this microversion on, most lists refuse parameters that they do not know; before, they drop them."""


def allowed(call: Call, known: Mapping[str, int], strict_since: int = STRICT_SINCE) -> queries.Query:
    """The parameters that count: those ``known``, each since its microversion.

    Raises InvalidRequest for others, from ``strict_since`` on.
    """
    query = call.query
    if call.minor >= strict_since:
        for name in query:
            if known.get(name, 1000) > call.minor:
                raise errors.InvalidRequest(
                    f"Additional properties are not allowed: query parameter {name[:100]!r} was unexpected.",
                    code="invalid-parameter",
                )
    return {name: values for name, values in query.items() if known.get(name, 1000) <= call.minor}


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
