"""What of an answer is compared: its fields and their types, not their values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

_UUID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"
)
_NUMBER = re.compile(r"(?<=/)\d+(?=/|$)")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?")
#: Objects whose keys are the user's: their names are values.
_FREE = {"metadata", "extra_specs", "rules", "properties", "addresses", "scheduler_hints", "hosts"}
#: What is there in some states of a server only, or when there is a next page.
_SOMETIMES = re.compile(r"(^|\.)(progress|fault|\w+_links)$")


def where(method: str, path: str, version: str | None) -> str:
    """A request without what is different each time."""
    parts = urlsplit(path)
    query = sorted(
        f"{name}={_general(value)}" for name, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    shown = f"{method} {_general(parts.path)}" + (f"?{'&'.join(query)}" if query else "")
    return shown + (f" [{version}]" if version else "")


def _general(text: str) -> str:
    text = _TIME.sub("{time}", unquote(text))
    text = _NUMBER.sub("{n}", _UUID.sub("{id}", text))
    return re.sub(r"\{id\}(,\{id\})+", "{id}", text)


def differences(nova: Any, ours: Any, path: str = "") -> Iterator[str]:
    """Where ``ours`` has other fields, or fields of another type. None fits everything, and so does an empty list."""
    name = path.rsplit(".", 1)[-1]
    if nova is None or ours is None:
        return
    if _kind(nova) != _kind(ours):
        yield f"{path or 'the answer'} is {_kind(ours)}, Nova's {_kind(nova)}"
    elif isinstance(nova, dict) and name not in _FREE:
        for key in sorted(nova.keys() | ours.keys()):
            inner = f"{path}.{key}" if path else key
            if _SOMETIMES.search(inner) and not (key in ours and key in nova):
                continue
            if key not in ours:
                yield f"{inner} is absent"
            elif key not in nova:
                yield f"{inner} is there, and not in Nova's"
            else:
                yield from differences(nova[key], ours[key], inner)
    elif isinstance(nova, list) and nova and ours:
        yield from differences(_united(nova), _united(ours), f"{path}[]")


def _united(items: list[Any]) -> Any:
    """One item with the fields of all of them."""
    if not all(isinstance(item, dict) for item in items):
        return items[0]
    united: dict[str, Any] = {}
    for item in items:
        united |= {key: value for key, value in item.items() if value is not None or key not in united}
    return united


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    return "an object" if isinstance(value, dict) else "a list"
