"""What an operation did and waited for, one after the other, from its log in the book."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

#: What may be waited for, as people read it.
WAITS = {
    "conductor": "until somebody took it up",
    "queue": "for the server's turn and a free place on the worker",
    "lock": "for the lock of the node",
}


class Span(msgspec.Struct, frozen=True):
    """A wait or a step. ``start`` is the book's clock; what a worker waited lies before the step that it is told
    with, and ends with it. ``seconds`` of a step under way are those until now."""

    what: Literal["wait", "step"]
    name: str
    start: float
    seconds: float
    attempt: int
    host: str | None = None
    error: str | None = None
    open: bool = False


def spans(
    created_at: float, ended_at: float | None, log: Sequence[Mapping[str, Any]], now: float
) -> list[Span]:
    """In the order of their starts."""
    until = now if ended_at is None else ended_at
    first = log[0]["start"] if log else until
    found = [
        Span(
            "wait", "conductor", created_at, _between(created_at, first), 1, open=not log and ended_at is None
        )
    ]
    for entry in log:
        found += _waits(entry)
        end = until if entry["end"] is None else entry["end"]
        found.append(
            Span(
                "step",
                entry["step"],
                entry["start"],
                _between(entry["start"], end),
                entry["attempt"],
                entry["host"],
                entry["error"],
                open=entry["end"] is None and ended_at is None,
            )
        )
    return sorted(found, key=lambda span: span.start)


def _waits(entry: Mapping[str, Any]) -> Iterator[Span]:
    """The last one ended when the step began, the one before when that began, and so on."""
    end = entry["start"]
    for name, seconds in reversed(entry.get("waits", {}).items()):
        end -= seconds
        yield Span("wait", name, end, seconds, entry["attempt"], entry["host"])


def _between(start: float, end: float) -> float:
    return max(0.0, end - start)
