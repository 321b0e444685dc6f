"""The transport of the all-in-one process: threads and queues, no broker.

As with a broker, messages for a server that has been here wait for its return, values are copied
through JSON, and a server that was never here is an error at once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from pinfold.rpcapi import dispatch, wire
from pinfold.rpcapi.context import Context
from pinfold.runtime import Event, Runtime

LOG = logging.getLogger(__name__)


class _Message:
    """One cast or call under way. Everything in it is JSON text, so nothing is shared by reference."""

    def __init__(
        self, number: int, target: wire.Target, method: str, body: bytes, done: Event | None
    ) -> None:
        self.number = number
        self.target = target
        self.method = method
        self.body = body
        self.done = done
        self.reply: bytes | None = None
        self.given_up = False

    def run(self, dispatcher: dispatch.Dispatcher) -> None:
        if self.given_up:
            return
        context, arguments = msgspec.json.decode(self.body)
        reply = dispatcher.run(self.method, self.target.version, context, arguments)
        if self.done is None:
            return
        try:
            self.reply = msgspec.json.encode(reply)
        except (TypeError, ValueError) as error:
            LOG.exception("The result of %s cannot travel", self.method)
            self.reply = msgspec.json.encode(dispatch.failure(error))
        self.done.set()


class _Worker:
    """A thread of a server's pool; ``wake`` is set when it has been handed ``message`` (None: end)."""

    def __init__(self, wake: Event) -> None:
        self.wake = wake
        self.message: _Message | None = None


class _Topic:
    """The queue that any server of a topic takes from, and one queue for each server that was ever here."""

    def __init__(self) -> None:
        self.shared: deque[_Message] = deque()
        self.own: dict[str, deque[_Message]] = {}
        self.servers: deque[LocalServer] = deque()

    def next_server(self, name: str | None) -> LocalServer | None:
        """A server with a free thread, in turn."""
        for _ in range(len(self.servers)):
            server = self.servers[0]
            self.servers.rotate(-1)
            if name in (None, server.name) and server.has_room():
                return server
        return None


class Hub:
    """What the services of one process share: the queues. ``pool_size`` bounds the threads of each server."""

    def __init__(self, runtime: Runtime, pool_size: int = 64) -> None:
        self.runtime = runtime
        self.pool_size = pool_size
        self.lock = runtime.lock()
        self._topics: dict[str, _Topic] = {}
        self._sent = 0

    def send(self, target: wire.Target, method: str, body: bytes, done: Event | None) -> _Message:
        """Hand a message to a free thread, or queue it. Raises Undeliverable for a server never here."""
        with self.lock:
            topic = self._topics.get(target.topic)
            if topic is None or (target.server is not None and target.server not in topic.own):
                raise wire.NobodyListens(f"nobody has ever listened at {_name(target)}")
            self._sent += 1
            message = _Message(self._sent, target, method, body, done)
            server = topic.next_server(target.server)
            if server is None:
                queue = topic.shared if target.server is None else topic.own[target.server]
                queue.append(message)
                return message
            worker = server.take_worker(message)
        # Out of the lock: starting or waking a thread may take its time.
        server.start(worker)
        return message

    def give_up(self, message: _Message) -> None:
        """Nobody waits for this call any more: it is not carried out, unless it is already under way."""
        with self.lock:
            message.given_up = True
            topic = self._topics[message.target.topic]
            server = message.target.server
            queue = topic.shared if server is None else topic.own[server]
            if message in queue:
                queue.remove(message)

    def join(self, topic: str, server: LocalServer) -> None:
        """Add a server; what was waiting for it starts."""
        started = []
        with self.lock:
            place = self._topics.setdefault(topic, _Topic())
            place.own.setdefault(server.name, deque())
            if any(other.name == server.name for other in place.servers):
                raise ValueError(f"{topic}.{server.name} is served already")
            place.servers.append(server)
            while server.has_room():
                message = self.next_message(topic, server.name)
                if message is None:
                    break
                started.append(server.take_worker(message))
        for worker in started:
            server.start(worker)

    def leave(self, topic: str, server: LocalServer) -> None:
        """Take a server out (under ``lock``); its queue stays."""
        self._topics[topic].servers.remove(server)

    def next_message(self, topic: str, name: str) -> _Message | None:
        """The oldest message that the server may take (under ``lock``)."""
        place = self._topics[topic]
        queues = [queue for queue in (place.shared, place.own[name]) if queue]
        return min(queues, key=lambda queue: queue[0].number).popleft() if queues else None


class LocalServer:
    """A pool of threads, started as they are needed, that take messages in the order they were sent."""

    def __init__(self, hub: Hub, topic: str, name: str, dispatcher: dispatch.Dispatcher) -> None:
        self.name = name
        self._hub = hub
        self._topic = topic
        self._dispatcher = dispatcher
        self._idle: list[_Worker] = []
        self._threads = 0
        self._stopping = False
        self._ended = hub.runtime.event()

    def has_room(self) -> bool:
        """Whether a thread is free or may be started (under the hub's lock)."""
        return bool(self._idle) or self._threads < self._hub.pool_size

    def take_worker(self, message: _Message) -> tuple[_Worker, bool]:
        """Reserve a thread for ``message`` (under the hub's lock); True if it must be started."""
        fresh = not self._idle
        if fresh:
            worker = _Worker(self._hub.runtime.event())
            self._threads += 1
        else:
            worker = self._idle.pop()
        worker.message = message
        return worker, fresh

    def start(self, reserved: tuple[_Worker, bool]) -> None:
        """Set a reserved thread to work."""
        worker, fresh = reserved
        if fresh:
            self._hub.runtime.spawn(self._work, worker, name=f"rpc-{self._topic}-{self.name}")
        else:
            worker.wake.set()

    def stop(self) -> None:
        """Take no more messages, then wait until the handlers in flight have ended. Safe to repeat."""
        with self._hub.lock:
            if not self._stopping:
                self._stopping = True
                self._hub.leave(self._topic, self)
            idle, self._idle = self._idle, []
            self._threads -= len(idle)
            if self._threads == 0:
                self._ended.set()
        for worker in idle:
            worker.message = None
            worker.wake.set()
        self._ended.wait()

    def _work(self, worker: _Worker) -> None:
        while worker.message is not None:
            worker.message.run(self._dispatcher)
            with self._hub.lock:
                if self._stopping:
                    self._threads -= 1
                    if self._threads == 0:
                        self._ended.set()
                    return
                worker.message = self._hub.next_message(self._topic, self.name)
                if worker.message is None:
                    worker.wake.clear()
                    self._idle.append(worker)
                else:
                    continue
            worker.wake.wait()


class LocalTransport:
    """``wire.Transport`` over a hub; each service has its own."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._servers: list[LocalServer] = []

    def cast(self, context: Context, target: wire.Target, method: str, arguments: Mapping[str, Any]) -> None:
        """Send and forget. Raises Undeliverable when nobody has ever listened there."""
        self._hub.send(target, method, _body(context, arguments), None)

    def call(
        self,
        context: Context,
        target: wire.Target,
        method: str,
        arguments: Mapping[str, Any],
        timeout: float,
    ) -> Any:
        """Send and wait for the result. Raises Undeliverable, CallTimeout, RemoteError, NoSuchMethod."""
        done = self._hub.runtime.event()
        message = self._hub.send(target, method, _body(context, arguments), done)
        if not done.wait(timeout) or message.reply is None:
            self._hub.give_up(message)
            raise wire.CallTimeout(f"no reply to {method} from {_name(target)} in {timeout:g} s")
        return dispatch.result_of(msgspec.json.decode(message.reply))

    def serve(self, topic: str, server: str, endpoint: object, version: str) -> LocalServer:
        """Answer messages for ``topic`` and for ``server`` of it. Raises ValueError when that is served."""
        running = LocalServer(self._hub, topic, server, dispatch.Dispatcher(endpoint, version))
        self._hub.join(topic, running)
        self._servers.append(running)
        return running

    def ping(self) -> bool:
        """Whether messages can travel: always."""
        return True

    def close(self) -> None:
        """Stop what this transport serves."""
        for server in self._servers:
            server.stop()


def _body(context: Context, arguments: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode((context, arguments))


def _name(target: wire.Target) -> str:
    return target.topic if target.server is None else f"{target.topic}.{target.server}"
