"""Reading JSON bodies: whatever is sent, either a value that the rest can trust, or a 4xx that says why not."""

from __future__ import annotations

from typing import Any

import falcon
import msgspec

from pinfold.api.faults import BadMediaType, TooLarge
from pinfold.model import errors

_decode = msgspec.json.Decoder().decode
DEEPEST = 20
_I64 = 2**63


def read_json(req: falcon.Request, largest: int, media_types: tuple[str, ...] = ("application/json",)) -> Any:
    """The decoded body. Raises InvalidRequest, TooLarge, BadMediaType."""
    raw = read_raw(req, largest)
    check_type(req, raw, media_types)
    if not raw:
        raise errors.InvalidRequest("There must be a JSON body.", code="malformed-body")
    try:
        value = _decode(raw)
    except RecursionError:
        raise errors.InvalidRequest("The body is nested too deeply.", code="malformed-body") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise errors.InvalidRequest(
            f"The server could not comply with the request since it is malformed: {error}.",
            code="malformed-body",
        ) from error
    check_values(value)
    return value


def read_raw(req: falcon.Request, largest: int) -> bytes:
    """The body's bytes. Raises TooLarge."""
    length = req.content_length
    if length is not None and length > largest:
        raise TooLarge(f"The body may have at most {largest} bytes.")
    raw: bytes = stream_of(req).read(largest + 1)
    if len(raw) > largest:
        raise TooLarge(f"The body may have at most {largest} bytes.")
    return raw


def stream_of(req: falcon.Request) -> Any:
    """The body as a file that ends. Without a length, only some servers tell where a body ends (chunked ones)."""
    if req.content_length is None and req.env.get("wsgi.input_terminated"):
        return req.stream
    return req.bounded_stream


def check_type(req: falcon.Request, raw: bytes, media_types: tuple[str, ...]) -> None:
    """Raise BadMediaType unless the body is of one of these types (or empty, of none)."""
    given = (req.content_type or "").partition(";")[0].strip().lower()
    if given not in media_types and (raw or given):
        raise BadMediaType(f"Unsupported Content-Type {given[:80]!r}; it must be {' or '.join(media_types)}.")


def check_values(value: Any) -> None:
    """Raise InvalidRequest for what no field may hold: NUL (PostgreSQL stores none), huge integers, deep nesting."""
    pending: list[tuple[Any, str, int]] = [(value, "", 0)]
    while pending:
        item, path, depth = pending.pop()
        if depth > DEEPEST:
            raise errors.InvalidRequest(
                f"The body is nested too deeply at {path[:100]}.", code="malformed-body"
            )
        if isinstance(item, str):
            if "\0" in item:
                raise _refused(path, "it must not contain NUL characters")
        elif isinstance(item, dict):
            for key, inner in item.items():
                if "\0" in key:
                    raise _refused(f"{path}.{key}", "its name must not contain NUL characters")
                pending.append((inner, f"{path}.{key}", depth + 1))
        elif isinstance(item, list):
            pending.extend((inner, f"{path}[{number}]", depth + 1) for number, inner in enumerate(item))
        elif isinstance(item, int) and not -_I64 <= item < _I64:
            raise _refused(path, "the number is too large")


def _refused(path: str, why: str) -> errors.InvalidRequest:
    name = path.lstrip(".").replace("\0", "\\0")[:100] or "body"
    return errors.InvalidRequest(f"Invalid input for field/attribute {name}: {why}.", code="invalid-field")
