"""Query strings: every parameter once decoded, checked and typed, with errors that name it."""

from __future__ import annotations

import datetime
from urllib.parse import parse_qsl

from pinfold.model import errors

_MOST_FIELDS = 200
_TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})
_FALSE = frozenset({"0", "f", "false", "off", "n", "no"})
BIGGEST = 2**31 - 1

Query = dict[str, list[str]]


def bad(name: str, value: object, wanted: str) -> errors.InvalidRequest:
    """The error for a parameter or field that cannot be."""
    return errors.InvalidRequest(
        f"Invalid input for field/attribute {name}. Value: {str(value)[:100]}. It must be {wanted}.",
        code="invalid-parameter",
    )


def parse(raw: str) -> Query:
    """The parameters in order. Raises InvalidRequest for what no parameter can be."""
    if not raw:
        return {}
    try:
        # WSGI hands bytes on as latin-1
        text = raw.encode("latin-1", "replace").decode("utf-8", "replace")
        pairs = parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise errors.InvalidRequest(f"The query string cannot be read: {error}.") from error
    found: Query = {}
    for name, value in pairs:
        if "\0" in name or "\0" in value:
            raise bad(name.replace("\0", "\\0"), value.replace("\0", "\\0"), "without NUL characters")
        found.setdefault(name, []).append(value)
    return found


def last(query: Query, name: str) -> str | None:
    """The value of a parameter that stands once."""
    values = query.get(name)
    return values[-1] if values else None


def number(query: Query, name: str) -> int | None:
    """A whole number that is not negative. Raises InvalidRequest."""
    value = last(query, name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit()) or len(value) > 20:
        raise bad(name, value, "a number that is not negative")
    return min(int(value), BIGGEST)


def boolean(name: str, value: str) -> bool:
    """Raises InvalidRequest for what is none."""
    lowered = value.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise bad(name, value, "a boolean")


def loose_boolean(value: str | None) -> bool:
    """As Nova reads some filters: what is no boolean is false."""
    return value is not None and value.strip().lower() in _TRUE


def moment(name: str, value: str) -> float:
    """An ISO 8601 date and time, as seconds since 1970; UTC if it names no zone. Raises InvalidRequest."""
    text = value.strip()
    if len(text) <= 40 and text.isascii():
        try:
            # a plus that was not quoted arrives as a space
            parsed = datetime.datetime.fromisoformat(_zone_plus(text))
            if parsed.tzinfo is None:
                parsed = parsed.replace(tzinfo=datetime.UTC)
            return parsed.timestamp()
        except (ValueError, OverflowError):
            pass
    raise bad(name, value, "a date and time in ISO 8601 form")


def require_order(since: float | None, before: float | None) -> None:
    """Raise InvalidRequest when changes are asked for from a moment on that is after the one up to which they are."""
    if since is not None and before is not None and before < since:
        raise errors.InvalidRequest(
            "The value of changes-since must be less than or equal to changes-before.",
            code="invalid-parameter",
        )


def _zone_plus(text: str) -> str:
    head, space, tail = text.rpartition(" ")
    return f"{head}+{tail}" if space and "T" in head else text
