"""How an action on a server starts: what it writes, and what is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pinfold.api.call import Call, Reply
from pinfold.api.schemas import Body
from pinfold.db.instances import Owned
from pinfold.model.work import Bell

Write = Callable[[Any, Owned], Bell]
"""What an action writes: given the session and the server, which the caller may act on."""


class Started(msgspec.Struct, frozen=True):
    """A Write, and the reply once it is committed and everybody has been rung."""

    write: Write
    reply: Callable[[], Reply]


Start = Callable[[Call, Any], Write | Started]
"""Looks at the body, and makes the Write."""


class Action(msgspec.Struct, frozen=True):
    """An action: its policy rule, the schema of its value, and how it starts.

    ``locks``: a lock on the server is heeded. ``answer`` makes the body of the reply.
    """

    rule: str
    body: Body
    start: Start
    status: int = 202
    locks: bool = True
    answer: Callable[[Call, Any], Any] | None = None
