"""The worker's calls to the conductor, made again until they have an answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from pinfold.model import errors
from pinfold.model.host import NodeView
from pinfold.rpcapi import messages, wire
from pinfold.rpcapi.clients import CallAgain
from pinfold.rpcapi.context import Context
from pinfold.runtime import Event, Runtime

LOG = logging.getLogger(__name__)

R = TypeVar("R")
T = TypeVar("T")

_REFUSALS_TO_ANSWER = 10


class Conductor(Protocol):
    """What a worker asks of a conductor; ``rpcapi.clients.ConductorClient`` is one."""

    def with_context(self, context: Context) -> Conductor: ...
    def register(self, record: messages.Register) -> messages.Registered: ...
    def heartbeat(self, record: messages.Heartbeat) -> messages.Heard: ...
    def begin(self, record: messages.Begin) -> messages.Begun: ...
    def claim(self, record: messages.Claim) -> messages.Claimed: ...
    def finish(self, record: messages.Finish) -> messages.Finished: ...
    def abort(self, record: messages.Abort) -> messages.Aborted: ...
    def release(self, record: messages.Release) -> messages.Released: ...
    def guest(self, record: messages.GuestRequest) -> messages.GuestView: ...
    def guests(self, record: messages.GuestsRequest) -> messages.Guests: ...
    def power_seen(self, record: messages.PowerSeen) -> None: ...
    def refit(self, record: messages.Refit) -> messages.Refitted: ...
    def node_view(self, node: str, host: str) -> NodeView: ...
    def answer(self, record: messages.Answer) -> None: ...


class NoAnswer(errors.Unavailable):
    """No conductor has answered; the call may or may not have had its effect."""

    code = "no-answer"


class Calls:
    """How long each kind of call is made again. ``stop`` is set when the service ends."""

    def __init__(self, runtime: Runtime, stop: Event) -> None:
        self._runtime = runtime
        self._stop = stop

    def until(self, deadline: float, call: Callable[[R], T], record: R) -> T:
        """Call until there is an answer, or ``deadline`` (monotonic). Raises NoAnswer."""
        seconds = max(0.0, deadline - self._runtime.monotonic())
        return self._answered(CallAgain(self._runtime, stop=self._stop, seconds=seconds), call, record)

    def always(self, call: Callable[[R], T], record: R) -> T:
        """Call until there is an answer, or the service ends. Raises NoAnswer.

        For what must not be left open: finish, abort, release. Errors on the other side are waited out
        too, but not for ever; whoever gives up leaves the operation to the sweeper, as a crash would.
        """
        again = CallAgain(self._runtime, stop=self._stop)
        pause = 0.1
        for _ in range(_REFUSALS_TO_ANSWER):
            try:
                return self._answered(again, call, record)
            except NoAnswer:
                if self._stop.wait(pause):
                    break
                pause = min(2 * pause, 5.0)
        raise NoAnswer(f"No conductor has answered {type(record).__name__}.")

    def _answered(self, again: CallAgain, call: Callable[[R], T], record: R) -> T:
        try:
            return again(call, record)
        except (errors.Unavailable, wire.RemoteError, msgspec.ValidationError) as error:
            LOG.warning("%s has had no answer: %s", type(record).__name__, error)
            raise NoAnswer(f"No conductor has answered {type(record).__name__}: {error}") from error
