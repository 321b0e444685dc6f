"""The errors that Pinfold raises on purpose, as one tree.

    PinfoldError
     +- InvalidRequest     the caller asked for something that can never be (HTTP 400)
     +- Forbidden          the caller may not (403)
     +- NotFound           there is no such thing (404)
     +- Conflict           it is in the wrong state, or somebody else was first (409)
     +- Unavailable        a part of the cloud that is needed does not answer (503)
     +- AccountingError    a change of usage that does not add up; nothing was changed
     +- ConfigurationError a service cannot work with these settings; it says so and exits

Each carries a stable ``code`` (kebab-case), sent as ``X-Pinfold-Error``.
"""

from __future__ import annotations


class PinfoldError(Exception):
    """Base of all; ``code`` names the kind of error for programs, the text is for people."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class InvalidRequest(PinfoldError):
    """What was asked can never be; the message names the field, its value and what would be right."""

    code = "invalid-request"


class Forbidden(PinfoldError):
    """The caller's roles do not allow it."""

    code = "forbidden"


class NotFound(PinfoldError):
    """There is no such thing, or the caller may not see it."""

    code = "not-found"


class Conflict(PinfoldError):
    """The thing is in a state that does not allow it, or another request was first."""

    code = "conflict"


class Unavailable(PinfoldError):
    """A database, broker or store that is needed does not answer."""

    code = "unavailable"


class AccountingError(PinfoldError):
    """Adding what is taken or releasing what is not held; the usage is as it was."""

    code = "accounting"


class ConfigurationError(PinfoldError):
    """Settings with which a service cannot work; the message names the option and the cure."""

    code = "configuration"
