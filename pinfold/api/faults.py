"""Errors as HTTP answers: Nova's bodies, and a stable code for programs in ``X-Pinfold-Error``."""

from __future__ import annotations

import logging
from typing import Any

import falcon
import msgspec
from oslo_db import exception as db_errors

from pinfold.model import errors

LOG = logging.getLogger(__name__)

ERROR_HEADER = "X-Pinfold-Error"
#: What a request that was accepted has asked for, and what will come of it.
WARNING_HEADER = "X-Pinfold-Warning"

# The name of the body's one key, by status (others are computeFault).
NAMES = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    429: "overLimit",
    501: "notImplemented",
    503: "serviceUnavailable",
}


class Unauthorized(errors.PinfoldError):
    """Nobody knows who the caller is."""

    code = "unauthorized"


class NotAcceptable(errors.PinfoldError):
    """The version asked for is not spoken here."""

    code = "not-acceptable"


class Gone(errors.PinfoldError):
    """The compute API had it, and has it no more."""

    code = "gone"


class TooLarge(errors.PinfoldError):
    """The body is larger than the service takes."""

    code = "too-large"


class BadMediaType(errors.PinfoldError):
    """The body is not of a type that is understood here."""

    code = "bad-media-type"


class TooLate(errors.PinfoldError):
    """Somebody who was asked has not answered in time."""

    code = "no-answer"


class NotBuilt(errors.PinfoldError):
    """The compute API has it, this cloud does not."""

    code = "not-implemented"


_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (errors.InvalidRequest, 400),
    (Unauthorized, 401),
    (errors.Forbidden, 403),
    (errors.NotFound, 404),
    (NotAcceptable, 406),
    (errors.Conflict, 409),
    (Gone, 410),
    (TooLarge, 413),
    (BadMediaType, 415),
    (NotBuilt, 501),
    (errors.Unavailable, 503),
    (TooLate, 504),
)


def warning(text: str) -> str:
    """The text as a header can have it: printable ASCII on one line, others escaped."""
    plain = text.encode("ascii", "backslashreplace").decode()
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in plain)[:500]


def body(status: int, message: str) -> dict[str, Any]:
    """Nova's form of an error."""
    return {NAMES.get(status, "computeFault"): {"code": status, "message": message}}


def answer(resp: falcon.Response, status: int, code: str, message: str) -> None:
    """Make the response an error."""
    resp.status = status
    resp.data = msgspec.json.encode(body(status, message))
    resp.stream = None
    resp.content_type = "application/json"
    resp.set_header(ERROR_HEADER, code)
    if status == 401:
        resp.set_header("WWW-Authenticate", "Keystone")


def no_such_url(resp: falcon.Response) -> None:
    """The answer for a URL or method that is not in the table: a body of its own form, as Nova's is."""
    text = "The resource could not be found."
    resp.status = 404
    resp.data = msgspec.json.encode({"message": text, "code": "404 Not Found", "title": "Not Found"})
    resp.content_type = "application/json"
    resp.set_header(ERROR_HEADER, "no-such-url")


def handle(req: falcon.Request, resp: falcon.Response, error: Exception, params: dict[str, Any]) -> None:
    """Every exception of a request ends here; what nobody expected is logged and hidden."""
    if isinstance(error, falcon.HTTPRouteNotFound | falcon.HTTPMethodNotAllowed):
        no_such_url(resp)
        return
    if isinstance(error, falcon.HTTPError):
        answer(resp, error.status_code, "http-error", error.description or error.title or "")
        return
    for kind, status in _STATUS:
        if isinstance(error, kind) and isinstance(error, errors.PinfoldError):
            answer(resp, status, error.code, error.message)
            return
    if isinstance(error, db_errors.DBDataError):
        LOG.warning("The database refused a value of %s %s: %s", req.method, req.path, error)
        answer(resp, 400, "invalid-value", "A value is not one that can be stored or looked for.")
        return
    LOG.error(
        "Unexpected error in %s %s (%s)",
        req.method,
        req.path,
        getattr(req.context, "request_id", "-"),
        exc_info=error,
    )
    answer(
        resp, 500, "unexpected", "Unexpected API error. Please report the request id to the administrator."
    )
