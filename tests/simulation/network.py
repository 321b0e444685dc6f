"""The broker of the simulated world: queues, and messages that are lost, late, doubled and out of order."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from pinfold.rpcapi import dispatch, wire
from pinfold.rpcapi.context import Context
from tests.simulation.faults import Faults
from tests.simulation.history import History
from tests.simulation.loop import Event, Loop, Process, Wait

_POOL = 64
_BROKER_PATIENCE = 4.0


class Call:
    """Somebody waits for a reply."""

    def __init__(self, process: Process, wait: Wait) -> None:
        self.process = process
        self.wait = wait
        self.reply: bytes | None = None


class Message:
    """One cast or call under way."""

    def __init__(self, target: wire.Target, method: str, body: bytes, sender: Process) -> None:
        self.target = target
        self.method = method
        self.body = body
        self.sender = sender
        self.call: Call | None = None

    def __str__(self) -> str:
        where = f"{self.target.topic}.{self.target.server}" if self.target.server else self.target.topic
        return f"{self.method} to {where}"


class SimServer:
    """A consumer, in a process."""

    def __init__(
        self, broker: Broker, process: Process, topic: str, name: str, dispatcher: dispatch.Dispatcher
    ) -> None:
        self.process = process
        self.topic = topic
        self.name = name
        self._broker = broker
        self._dispatcher = dispatcher
        self._active: list[Message] = []
        self._stopping = False
        self._ended = Event(broker.loop, process)

    @property
    def takes(self) -> bool:
        """Whether it takes one more message; a process that is stopped by SIGSTOP still gets what is sent to it."""
        broker = self._broker
        return not (
            self._stopping
            or self.process.dead
            or self.process in broker.cut
            or broker.away
            or len(self._active) >= _POOL
        )

    def take(self, message: Message) -> None:
        """Handle it in a fiber of its own."""
        self._active.append(message)
        self._broker.loop.spawn(self.process, lambda: self._handle(message), f"rpc {message.method}")

    def _handle(self, message: Message) -> None:
        broker = self._broker
        broker.loop.point(self.process, f"{message.method} arrives")
        context, arguments = msgspec.json.decode(message.body)
        reply = self._dispatcher.run(message.method, message.target.version, context, arguments)
        broker.loop.point(self.process, f"{message.method} is answered")
        self._active.remove(message)
        if message.call is not None:
            broker.reply(self.process, message, msgspec.json.encode(reply))
        if self._stopping:
            if not self._active:
                self._ended.set()
        else:
            broker.drain(self)

    def stop(self) -> None:
        """Take no more, and wait for what is under way."""
        self._stopping = True
        if self._active:
            self._ended.wait()

    def abandoned(self) -> list[Message]:
        """What was being handled when the process died."""
        return self._active


class Broker:
    """``cut`` are processes whose messages do not get through; ``away``: nobody's do."""

    def __init__(self, loop: Loop, faults: Faults, history: History) -> None:
        self.loop = loop
        self.faults = faults
        self.history = history
        self.cut: set[Process] = set()
        self.away = False
        self._queues: dict[tuple[str, str | None], deque[Message]] = {}
        self._servers: dict[str, list[SimServer]] = {}

    def declared(self, target: wire.Target) -> bool:
        """Whether anybody has ever listened there."""
        return (target.topic, target.server) in self._queues

    def reachable(self, process: Process) -> bool:
        """Whether the process can speak to the broker now."""
        return not self.away and process not in self.cut

    def send(self, message: Message) -> None:
        """It arrives some time, or not, or twice."""
        for seconds in self.faults.deliveries():
            self.loop.after(seconds, lambda: self._arrive(message))

    def _arrive(self, message: Message) -> None:
        servers = [
            server
            for server in self._servers.get(message.target.topic, ())
            if message.target.server in (None, server.name) and server.takes
        ]
        if servers:
            self._deliver(self.loop.random.choice(servers), message)
        else:
            self._queues[message.target.topic, message.target.server].append(message)

    def _deliver(self, server: SimServer, message: Message) -> None:
        self.history.add(
            server.process.name, "gets %s from %s: %s", message, message.sender, Body(message.body)
        )
        server.take(message)

    def join(self, server: SimServer) -> None:
        """A consumer begins."""
        self._queues.setdefault((server.topic, None), deque())
        self._queues.setdefault((server.topic, server.name), deque())
        self._servers.setdefault(server.topic, []).append(server)
        server.process.at_death.append(lambda: self._died(server))
        self.drain(server)

    def drain(self, server: SimServer) -> None:
        """Deliver what waits for it."""
        for key in ((server.topic, server.name), (server.topic, None)):
            queue = self._queues[key]
            while queue and server.takes:
                self._deliver(server, queue.popleft())

    def drain_all(self) -> None:
        """After a cut: what has waited arrives."""
        for servers in self._servers.values():
            for server in servers:
                self.drain(server)

    def leave(self, server: SimServer) -> None:
        """A consumer ends; its queue stays."""
        if server in self._servers[server.topic]:
            self._servers[server.topic].remove(server)

    def _died(self, server: SimServer) -> None:
        """What it was handling is lost, as it had been acknowledged, or comes again, as it had not."""
        self.leave(server)
        for message in server.abandoned():
            if self.faults.strikes("linger"):
                self.loop.after(self.faults.uniform(0.0, 5.0), partial(self._arrive, message))

    def reply(self, process: Process, message: Message, body: bytes) -> None:
        """The answer to a call travels back."""
        call = message.call
        assert call is not None
        lost = process in self.cut or self.away
        for seconds in self.faults.deliveries():
            if not lost:
                self.loop.after(seconds, lambda: self._answer(call, message, body))

    def _answer(self, call: Call, message: Message, body: bytes) -> None:
        if call.process.dead or call.wait.over or not self.reachable(call.process):
            return
        call.reply = body
        self.history.add(call.process.name, "has the answer to %s: %s", message, Body(body))
        self.loop.wake(call.wait)


class SimTransport:
    """``wire.Transport`` of one process."""

    def __init__(self, broker: Broker, process: Process) -> None:
        self._broker = broker
        self._process = process
        self._servers: list[SimServer] = []

    def cast(self, context: Context, target: wire.Target, method: str, arguments: Mapping[str, Any]) -> None:
        """Send and forget."""
        loop = self._broker.loop
        loop.point(self._process, f"casts {method}")
        message = Message(target, method, _body(context, arguments), self._process)
        self._check(message)
        self._broker.send(message)
        loop.point(self._process, f"has cast {method}")

    def _check(self, message: Message) -> None:
        if not self._broker.reachable(self._process):
            self._broker.loop.sleep(self._process, _BROKER_PATIENCE)
        if not self._broker.reachable(self._process):
            raise wire.Undeliverable(f"the broker did not take {message}")
        if not self._broker.declared(message.target):
            raise wire.NobodyListens(f"nobody has ever listened for {message}")

    def call(
        self, context: Context, target: wire.Target, method: str, arguments: Mapping[str, Any], timeout: float
    ) -> Any:
        """Send and wait for the result."""
        loop = self._broker.loop
        loop.point(self._process, f"calls {method}")
        message = Message(target, method, _body(context, arguments), self._process)
        self._check(message)
        assert loop.current is not None
        call = message.call = Call(self._process, Wait(loop.current))
        self._broker.send(message)
        loop.wait(call.wait, timeout)
        loop.point(self._process, f"has called {method}")
        if call.reply is None:
            raise wire.CallTimeout(f"no reply to {message} in {timeout:g} s")
        return dispatch.result_of(msgspec.json.decode(call.reply))

    def serve(self, topic: str, server: str, endpoint: object, version: str) -> SimServer:
        """Answer messages."""
        running = SimServer(
            self._broker, self._process, topic, server, dispatch.Dispatcher(endpoint, version)
        )
        self._servers.append(running)
        self._broker.join(running)
        return running

    def ping(self) -> bool:
        """Whether the broker answers."""
        return self._broker.reachable(self._process)

    def close(self) -> None:
        """Stop what it serves."""
        for server in self._servers:
            server.stop()


def _body(context: Context, arguments: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode((context, arguments))


class Body:
    """A message's body, as a line of the history: short, and made only when somebody reads it."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def __str__(self) -> str:
        value = msgspec.json.decode(self._body)
        return _short(value[1] if isinstance(value, list) else value)


_SAID = (
    "demand",
    "placement",
    "nodes",
    "guests",
    "view",
    "name",
    "project_id",
    "user_id",
    "lease",
    "refusals",
)


def _short(value: Any) -> str:
    """Only what differs from message to message."""
    if isinstance(value, dict):
        if len(value) == 1:
            return _short(next(iter(value.values())))
        told = {
            key: item for key, item in value.items() if key not in _SAID and item not in (None, [], {}, "")
        }
        return " ".join(f"{key}={_short(item)}" for key, item in told.items())
    if isinstance(value, list):
        return "[" + " ".join(_short(item) for item in value) + "]"
    return str(value)
