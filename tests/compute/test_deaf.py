"""A worker that is heard but hears nothing, over both transports: it is seen, says so, and ends to be replaced."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import amqp
import pytest

from pinfold.compute.service import ComputeService
from pinfold.model import states
from pinfold.rpcapi import messages, transport, wire
from pinfold.rpcapi.clients import CONDUCTOR, CONDUCTOR_TOPIC, ComputeClient, ConductorClient
from pinfold.rpcapi.local import Hub, LocalTransport
from pinfold.rpcapi.permissions import EXCHANGE
from pinfold.runtime import RealRuntime
from tests.compute.books import pinned
from tests.compute.test_jobs import eventually
from tests.compute.test_service import CONTEXT, Cloud
from tests.compute.world import HOST, WatchedDriver
from tests.rpcapi.conftest import configuration
from tests.servers import Broker, forget_consumers

QUEUE = f"compute.{HOST}"
RUNTIME = RealRuntime()


class Ears:
    """A cloud with one worker, and the ways to make that worker deaf."""

    def __init__(self, folder: Path, connect: Callable[[], wire.Transport]) -> None:
        self.cloud = cloud = Cloud(folder)
        self.ended: list[str] = []
        self.deaf: list[str] = []
        cloud.book.lease = 1.0
        conductor, worker = connect(), connect()
        cloud.compute = ComputeClient(conductor, CONTEXT)
        cloud.book.echo = self._echo
        self.worker = ComputeService(
            runtime=cloud.runtime,
            settings=cloud.settings,
            driver=WatchedDriver(cloud.hypervisor, cloud.watch),
            store=cloud.store,
            transport=worker,
            conductor=ConductorClient(worker, CONTEXT, timeout=5),
            heartbeats=ConductorClient(worker, CONTEXT, timeout=5),
            on_end=self.ended.append,
            on_deaf=self.deaf.append,
        )
        self._conductor = conductor.serve(CONDUCTOR_TOPIC, "conductor-1", cloud.endpoint, CONDUCTOR.version)
        self.worker.start()

    def stop(self) -> None:
        """All of it."""
        self.worker.stop()
        self._conductor.stop()

    def _echo(self, beat: messages.Heartbeat) -> bool:
        if beat.echo is None:
            return False
        try:
            self.cloud.compute.echo(beat.host, messages.Echo(beat.incarnation, beat.echo))
        except wire.NobodyListens:
            pass
        return True

    def hears(self) -> bool:
        """Whether echoes have come."""
        beats = self.cloud.book.beats
        return bool(beats) and (beats[-1].echo or 0) > 5 and beats[-1].unheard == 0.0


Deafen = Callable[[], None]


def _no_place(ears: Ears) -> None:
    """In one process: the worker's server is gone, and its queue stays."""
    server = ears.worker._server
    assert server is not None
    server.stop()


def _no_binding(broker: Broker, vhost: str) -> None:
    """No message finds the worker's queue any more."""
    user, password = broker.admin
    with amqp.Connection(
        f"127.0.0.1:{broker.port}", userid=user, password=password, virtual_host=vhost
    ) as raw:
        raw.channel().queue_unbind(QUEUE, EXCHANGE, QUEUE)


def _no_consumer(broker: Broker, vhost: str) -> None:
    """The broker has forgotten that somebody takes from the queue."""
    broker.control(*forget_consumers(QUEUE, vhost))


@pytest.fixture(params=["local", _no_binding, _no_consumer], ids=lambda way: getattr(way, "__name__", way))
def deafened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Ears, Deafen]]:
    """A worker with a healthy connection, and what takes its messages away from it."""
    with ExitStack() as stack:
        if request.param == "local":
            hub = Hub(RUNTIME)
            ears = Ears(tmp_path, lambda: LocalTransport(hub))
            yield ears, lambda: _no_place(ears)
        else:
            broker: Broker = request.getfixturevalue("broker")
            url = broker.vhost()

            def connect() -> wire.Transport:
                made = transport.connect(configuration(url), RUNTIME)
                stack.callback(made.close)
                made.warm_up(CONDUCTOR_TOPIC)
                return made

            ears = Ears(tmp_path, connect)
            yield ears, lambda: request.param(broker, url.rpartition("/")[2])
        ears.stop()


def test_a_worker_goes_on_while_it_hears_and_ends_to_be_replaced_when_it_hears_nothing(
    deafened: tuple[Ears, Deafen], caplog: pytest.LogCaptureFixture
) -> None:
    """F048: its calls are answered all the time."""
    ears, deafen = deafened
    eventually(ears.hears)
    work = ears.cloud.cast(ears.cloud.book.create(pinned(2)))
    eventually(lambda: ears.cloud.state(work) == states.ACTIVE)
    assert ears.deaf == []
    deafen()
    eventually(lambda: ears.deaf, 30)
    assert f"No message has reached the worker of host {HOST}" in ears.deaf[0]
    assert ears.ended == []
    last = ears.cloud.book.beats[-1]
    assert (last.deaf, last.ready) == (True, False)
    assert last.unheard > ears.cloud.book.lease
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert any(ears.deaf[0] in error for error in said)
