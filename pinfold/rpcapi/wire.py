"""What a transport is: casts, calls and servers, whatever carries them.

Two implementations hold the same contract (one test-suite runs on both): ``transport``
(oslo.messaging over RabbitMQ) and ``local`` (threads and queues in one process).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from pinfold.model import errors
from pinfold.rpcapi.context import Context

F = TypeVar("F", bound=Callable[..., Any])


class Undeliverable(errors.Unavailable):
    """Nobody has ever listened at the target, or the broker did not take the message in time."""

    code = "undeliverable"


class NobodyListens(Undeliverable):
    """The message was refused because there is no queue for it: nobody has ever listened, or it was taken away."""


class CallTimeout(errors.Unavailable):
    """No reply came in time; the method may or may not have run."""

    code = "rpc-timeout"


class RemoteError(errors.PinfoldError):
    """The method raised; the text names the error's class and message."""

    code = "remote-error"


class RemoteUnavailable(RemoteError, errors.Unavailable):
    """The method raised Unavailable (its database does not answer, say); made again it may succeed."""

    code = "unavailable"


class NoSuchMethod(RemoteError):
    """The endpoint exports no such method, or not at this version or with these arguments; nothing ran."""

    code = "no-such-method"


class Target(msgspec.Struct, frozen=True):
    """Where a message goes: one ``server`` of the ``topic``, or any one of them.

    ``version`` ("major.minor") is the lowest that the receiver must speak.
    """

    topic: str
    version: str
    server: str | None = None


class Server(Protocol):
    """A running consumer."""

    def stop(self) -> None:
        """Take no more messages, then wait until the handlers in flight have ended."""


class Transport(Protocol):
    """How messages travel. Arguments and results are plain JSON values."""

    def cast(self, context: Context, target: Target, method: str, arguments: Mapping[str, Any]) -> None:
        """Send and forget. Raises Undeliverable; never blocks longer than a few seconds."""

    def call(
        self, context: Context, target: Target, method: str, arguments: Mapping[str, Any], timeout: float
    ) -> Any:
        """Send and wait for the result. Raises Undeliverable, CallTimeout, RemoteError, NoSuchMethod."""

    def serve(self, topic: str, server: str, endpoint: object, version: str) -> Server:
        """Answer messages for ``topic`` (any server) and ``topic`` + ``server`` with the exported methods
        of ``endpoint``, each called as ``method(context, **arguments)`` in a thread of a bounded pool."""

    def ping(self) -> bool:
        """Whether the broker answers now (for /healthz)."""

    def close(self) -> None: ...


def exported(method: F) -> F:
    """Mark a method as callable over RPC; nothing else of an endpoint can be reached."""
    method.__dict__["rpc_exported"] = True
    return method


def exported_methods(endpoint: object) -> dict[str, Callable[..., Any]]:
    """The methods of ``endpoint`` that carry ``exported``, by name."""
    return {
        name: getattr(endpoint, name)
        for name in dir(type(endpoint))
        if getattr(getattr(type(endpoint), name), "rpc_exported", False)
    }
