"""One client per service: a typed method for each RPC method, with the history of its versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from pinfold.model import errors
from pinfold.model.host import NodeView
from pinfold.rpcapi import messages, wire
from pinfold.rpcapi.context import Context
from pinfold.rpcapi.versions import History
from pinfold.runtime import Event, Runtime

R = TypeVar("R")
T = TypeVar("T")

CONDUCTOR_TOPIC = "conductor"
COMPUTE_TOPIC = "compute"

CONDUCTOR = History(
    service="conductor",
    version="1.1",
    methods={
        "run": "1.0",
        "register": "1.0",
        "heartbeat": "1.0",
        "begin": "1.0",
        "claim": "1.0",
        "finish": "1.0",
        "abort": "1.0",
        "release": "1.0",
        "node_view": "1.0",
        "guest": "1.0",
        "answer": "1.0",
        "guests": "1.1",
        "power_seen": "1.1",
        "refit": "1.1",
    },
)

COMPUTE = History(
    service="compute",
    version="1.2",
    methods={
        "create": "1.0",
        "unshelve": "1.0",
        "unshelve_in_place": "1.0",
        "shelve": "1.0",
        "shelve_offload": "1.0",
        "delete": "1.0",
        "report": "1.0",
        "evacuate": "1.1",
        "live_migrate": "1.1",
        "control": "1.1",
        "confirm_resize": "1.1",
        "create_image": "1.1",
        "hard_reboot": "1.1",
        "migrate": "1.1",
        "pause": "1.1",
        "power_restore": "1.1",
        "power_sync": "1.1",
        "reboot": "1.1",
        "rebuild": "1.1",
        "resize": "1.1",
        "restore": "1.1",
        "resume": "1.1",
        "revert_resize": "1.1",
        "soft_delete": "1.1",
        "start": "1.1",
        "stop": "1.1",
        "suspend": "1.1",
        "unpause": "1.1",
        "echo": "1.2",
    },
    fields={
        (messages.Work, "leg"): "1.1",
        (messages.Work, "runs"): "1.1",
        (messages.Work, "same_node"): "1.1",
        (messages.Work, "target"): "1.1",
        (messages.Work, "aborted"): "1.1",
        (messages.Work, "snapshot_owner"): "1.1",
        (messages.Work, "snapshot_min_disk"): "1.1",
        (messages.Work, "refit"): "1.1",
        (messages.Work, "source"): "1.1",
        (messages.Work, "shared_storage"): "1.1",
        (messages.Work, "hypervisor"): "1.1",
        (messages.ReportRequest, "arguments"): "1.1",
    },
)

# Kinds of operations that a worker carries out with the method of another kind.
_SAME_WORK = {"force_delete": "delete"}


class ConductorClient:
    """Speaks to any conductor. ``pin`` is ``[upgrade_levels] conductor``; ``timeout`` is for each call.

    Every call is idempotent by (operation, attempt, step), so that one whose reply was lost can be made
    again: see ``CallAgain``.

    Versions:
      1.0  run, register, heartbeat, begin, claim, finish, abort, release, node_view, guest, answer.
      1.1  guests, power_seen, refit.
    """

    def __init__(
        self,
        transport: wire.Transport,
        context: Context,
        *,
        pin: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        """Raises ConfigurationError for a pin that this release cannot speak."""
        self._transport = transport
        self._context = context
        self._timeout = timeout
        self._pin = CONDUCTOR.check_pin(pin)

    def with_context(self, context: Context) -> ConductorClient:
        """The same client for another caller."""
        return ConductorClient(self._transport, context, pin=self._pin, timeout=self._timeout)

    def run(self, operation: str) -> None:
        """Ring: there is an operation to carry on. A cast; raises Undeliverable."""
        version = CONDUCTOR.version_for("run", None, self._pin)
        target = wire.Target(CONDUCTOR_TOPIC, version)
        self._transport.cast(self._context, target, "run", {"operation": operation})

    def register(self, record: messages.Register) -> messages.Registered:
        """A worker starts."""
        return self._call("register", record, messages.Registered)

    def heartbeat(self, record: messages.Heartbeat) -> messages.Heard:
        """A worker lives, and renews its leases."""
        return self._call("heartbeat", record, messages.Heard)

    def begin(self, record: messages.Begin) -> messages.Begun:
        """A worker is about to do a step."""
        return self._call("begin", record, messages.Begun)

    def claim(self, record: messages.Claim) -> messages.Claimed:
        """A worker has planned a claim."""
        return self._call("claim", record, messages.Claimed)

    def finish(self, record: messages.Finish) -> messages.Finished:
        """A worker has done all steps."""
        return self._call("finish", record, messages.Finished)

    def abort(self, record: messages.Abort) -> messages.Aborted:
        """A worker's step failed."""
        return self._call("abort", record, messages.Aborted)

    def release(self, record: messages.Release) -> messages.Released:
        """A worker has seen that no guest is behind a claim."""
        return self._call("release", record, messages.Released)

    def node_view(self, node: str, host: str) -> NodeView:
        """The claims of a node of ``host`` in the book."""
        version = CONDUCTOR.version_for("node_view", None, self._pin)
        return self._send(version, "node_view", {"node": node, "host": host}, NodeView)

    def guest(self, record: messages.GuestRequest) -> messages.GuestView:
        """What the book says of an instance now."""
        return self._call("guest", record, messages.GuestView)

    def guests(self, record: messages.GuestsRequest) -> messages.Guests:
        """What the book says of all instances of a node."""
        return self._call("guests", record, messages.Guests)

    def power_seen(self, record: messages.PowerSeen) -> None:
        """A worker has found a guest that does not do what the book says."""
        self._call("power_seen", record, None)

    def refit(self, record: messages.Refit) -> messages.Refitted:
        """A worker has planned a rebuilt server's place anew."""
        return self._call("refit", record, messages.Refitted)

    def answer(self, record: messages.Answer) -> None:
        """A worker's answer to a report that was asked of it."""
        self._call("answer", record, None)

    def _call(self, method: str, record: msgspec.Struct, kind: type[T] | None) -> T:
        version = CONDUCTOR.version_for(method, record, self._pin)
        return self._send(version, method, {"record": CONDUCTOR.body(record, version)}, kind)

    def _send(self, version: str, method: str, arguments: dict[str, Any], kind: type[T] | None) -> T:
        target = wire.Target(CONDUCTOR_TOPIC, version)
        result = self._transport.call(self._context, target, method, arguments, self._timeout)
        return messages.from_wire(result, kind)  # type: ignore[arg-type]  # None is the kind of None


class ComputeClient:
    """Casts to the worker of one host. Nobody calls a worker: it answers by calling the conductor.

    Versions:
      1.0  create, unshelve, unshelve_in_place, shelve, shelve_offload, delete, report.
      1.1  resize, migrate, evacuate, live_migrate, confirm_resize, revert_resize, control; Work.leg, Work.runs,
           Work.same_node, Work.target, Work.aborted; start, stop, reboot, hard_reboot, pause, unpause, suspend,
           resume, power_sync, power_restore, create_image, rebuild, soft_delete, restore; Work.snapshot_owner,
           Work.snapshot_min_disk, Work.refit; ReportRequest.arguments.
      1.2  echo.
    """

    def __init__(self, transport: wire.Transport, context: Context, *, pin: str | None = None) -> None:
        """Raises ConfigurationError for a pin that this release cannot speak."""
        self._transport = transport
        self._context = context
        self._pin = COMPUTE.check_pin(pin)

    def with_context(self, context: Context) -> ComputeClient:
        """The same client for another caller."""
        return ComputeClient(self._transport, context, pin=self._pin)

    def perform(self, host: str, work: messages.Work) -> None:
        """Ask the worker of ``host`` to do its part of an operation.

        Raises Undeliverable (never seen, or the broker is away), Conflict when the pin does not allow it.
        """
        self._cast(host, _SAME_WORK.get(work.kind, work.kind), work)

    def require(self, kind: str) -> None:
        """Raise Conflict when the pin does not allow operations of ``kind``: before one is begun that nobody does."""
        COMPUTE.version_for(_SAME_WORK.get(kind, kind), None, self._pin)

    def report(self, host: str, request: messages.ReportRequest) -> None:
        """Ask the worker of ``host`` for a report. Raises as ``perform``."""
        self._cast(host, "report", request)

    def echo(self, host: str, echo: messages.Echo) -> None:
        """Send the worker of ``host`` what it asked for with a heartbeat. Raises as ``perform``."""
        self._cast(host, "echo", echo)

    def control(self, host: str, wish: messages.Control) -> None:
        """Tell the worker of ``host`` what is wished of an operation that it is doing. Raises as ``perform``."""
        self._cast(host, "control", wish)

    def _cast(self, host: str, method: str, record: msgspec.Struct) -> None:
        if not host:
            # Without a server it would go to the queue that all workers share, so to any of them.
            raise ValueError(f"{method}: a worker is rung by its host's name")
        version = COMPUTE.version_for(method, record, self._pin)
        target = wire.Target(COMPUTE_TOPIC, version, host)
        self._transport.cast(self._context, target, method, {"record": COMPUTE.body(record, version)})


class CallAgain:
    """Makes a call again while its reply is lost or the other side is away.

    ``again(conductor.finish, record)`` raises the last Unavailable when ``seconds`` are over or ``stop``
    is set; other errors at once. Waits ``first`` seconds before the second call, twice as long before
    each later one up to ``longest``, each shortened by chance so that workers do not come back in step.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        stop: Event,
        seconds: float | None = None,
        first: float = 0.1,
        longest: float = 5.0,
    ) -> None:
        self._runtime = runtime
        self._stop = stop
        self._seconds = seconds
        self._first = first
        self._longest = longest

    def __call__(self, call: Callable[[R], T], record: R) -> T:
        started = self._runtime.monotonic()
        pause = self._first
        while True:
            try:
                return call(record)
            except errors.Unavailable:
                left = self._left(started)
                if left <= 0 or self._stop.wait(min(left, pause * self._runtime.random().uniform(0.5, 1.0))):
                    raise
            pause = min(2 * pause, self._longest)

    def _left(self, started: float) -> float:
        if self._seconds is None:
            return float("inf")
        return started + self._seconds - self._runtime.monotonic()
