"""What a server does with a message, and how its answer travels; the same for both transports.

A reply is ``{"result": value}`` or ``{"error": {"kind", "code", "message"}}``. No traceback crosses the wire.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from pinfold.model import errors
from pinfold.rpcapi import wire
from pinfold.rpcapi.context import Context, stand_in_logs

LOG = logging.getLogger(__name__)

#: Answered by every server without its endpoint.
PING = "rpc_ping"

_KINDS: dict[str, type[wire.RemoteError]] = {
    "no-such-method": wire.NoSuchMethod,
    "unavailable": wire.RemoteUnavailable,
    "remote-error": wire.RemoteError,
}


def parse_version(text: str) -> tuple[int, int]:
    """``"1.4"`` as (1, 4). Raises ValueError when it is not of that form."""
    major, minor = text.split(".")
    return int(major), int(minor)


def speaks(spoken: str, wanted: str) -> bool:
    """Whether a server that speaks ``spoken`` understands a message that needs ``wanted``."""
    has, needs = parse_version(spoken), parse_version(wanted)
    return has[0] == needs[0] and has[1] >= needs[1]


class Dispatcher:
    """Runs messages on the exported methods of one endpoint. Never raises; failures are replies."""

    def __init__(self, endpoint: object, version: str) -> None:
        self.version = version
        self.methods = wire.exported_methods(endpoint)
        self._signatures = {name: inspect.signature(method) for name, method in self.methods.items()}

    def run(self, method: str, wanted: str, context: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to one message whose version has not been looked at."""
        if not speaks(self.version, wanted):
            return _refusal(f"{method} was asked for at version {wanted}; this server speaks {self.version}")
        return self.invoke(method, context, arguments)

    def invoke(self, method: str, context: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to one message of an accepted version."""
        if method == PING:
            return {"result": None}
        if method not in self.methods:
            return _refusal(f"no method {method!r} is exported here")
        try:
            self._signatures[method].bind(None, **arguments)
        except TypeError as error:
            return _refusal(f"{method} does not take these arguments: {error}")
        try:
            caller = msgspec.convert(context, Context)
            stand_in_logs(caller, operation_of(arguments))
            return {"result": self.methods[method](caller, **arguments)}
        except errors.PinfoldError as error:
            LOG.info("%s failed: %s: %s", method, type(error).__name__, error)
            return failure(error)
        except Exception as error:
            LOG.exception("%s failed", method)
            return failure(error)


def operation_of(arguments: Mapping[str, Any]) -> str | None:
    """The operation that a message is about, if it is about one."""
    record = arguments.get("record")
    found = record.get("operation") if isinstance(record, dict) else arguments.get("operation")
    return found if isinstance(found, str) else None


def failure(error: Exception) -> dict[str, Any]:
    """The reply that says a method raised ``error``."""
    kind = "unavailable" if isinstance(error, errors.Unavailable) else "remote-error"
    code = error.code if isinstance(error, errors.PinfoldError) else kind
    return {"error": {"kind": kind, "code": code, "message": f"{type(error).__name__}: {error}"}}


def result_of(reply: Mapping[str, Any]) -> Any:
    """The result in a reply. Raises RemoteError, RemoteUnavailable or NoSuchMethod when it is a failure."""
    if "error" not in reply:
        return reply["result"]
    error = reply["error"]
    raise _KINDS.get(error["kind"], wire.RemoteError)(error["message"], code=error["code"])


def _refusal(message: str) -> dict[str, Any]:
    LOG.warning("An RPC message was refused: %s", message)
    return {"error": {"kind": "no-such-method", "code": wire.NoSuchMethod.code, "message": message}}
