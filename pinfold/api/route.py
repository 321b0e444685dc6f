"""A line of the table of routes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from pinfold.api.microversions import MAX_MINOR
from pinfold.api.schemas import Body

JSON = ("application/json",)


class Route(msgspec.Struct, frozen=True):
    """Who answers ``method`` ``path``: ``handler(call, **path_parameters)``, which returns the body (or a Reply).

    ``rule`` is the policy rule that the handler asks for (``call.authorize``); ``status`` is that of success;
    ``since`` and ``until`` are microversions; ``public`` needs no authentication. ``query`` are the names of the
    parameters that it looks at. ``also`` are other statuses that it answers with, beside those that all routes do.
    """

    method: str
    path: str
    handler: Callable[..., Any]
    rule: str = ""
    status: int = 200
    body: Body | None = None
    since: int = 1
    until: int = MAX_MINOR
    media: tuple[str, ...] = JSON
    public: bool = False
    query: Collection[str] = ()
    also: tuple[int, ...] = ()
