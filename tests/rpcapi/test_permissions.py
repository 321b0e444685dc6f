"""A worker's broker account: enough to serve and to call the conductor, and no more."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import amqp
import pytest

from pinfold.model.errors import ConfigurationError
from pinfold.rpcapi import permissions, transport, wire
from pinfold.rpcapi.context import Context
from pinfold.runtime import RealRuntime
from tests.rpcapi.conftest import CALLER, configuration, worker_configuration
from tests.servers import Broker

SOON = 10.0
HOST, OTHER = "host-1", "host-11"


class Worker:
    """Asks the conductor about what it is told to do."""

    def __init__(self, conductor: wire.Transport) -> None:
        self._conductor = conductor
        self.answers: list[Any] = []
        self.done = threading.Event()

    @wire.exported
    def create(self, context: Context, record: str) -> None:
        target = wire.Target("conductor", "1.0")
        self.answers.append(self._conductor.call(context, target, "begin", {"record": record}, SOON))
        self.done.set()


class Conductor:
    @wire.exported
    def begin(self, context: Context, record: str) -> str:
        return f"begun {record}"


Connect = Callable[..., transport.RabbitTransport]


@pytest.fixture(scope="module")
def accounts(broker: Broker) -> dict[str, str]:
    """The urls of one account for each service."""
    return {
        "api": broker.add_account("api", permissions.for_api()),
        "conductor": broker.add_account("conductor", permissions.for_conductor()),
        HOST: broker.add_account("compute-1", permissions.for_compute(HOST)),
        OTHER: broker.add_account("compute-11", permissions.for_compute(OTHER)),
    }


@pytest.fixture(scope="module")
def connect(accounts: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connect]:
    made, folder = [], tmp_path_factory.mktemp("workers")

    def connect(name: str) -> transport.RabbitTransport:
        host = name if name in (HOST, OTHER) else None
        conf = worker_configuration(accounts[name], folder) if host else configuration(accounts[name])
        made.append(transport.connect(conf, RealRuntime(), host=host))
        return made[-1]

    yield connect
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def cloud(connect: Connect) -> Iterator[dict[str, Worker]]:
    """A conductor and two workers, each with its own account."""
    servers = [connect("conductor").serve("conductor", "conductor-1", Conductor(), "1.0")]
    workers = {}
    for host in (HOST, OTHER):
        own = connect(host)
        workers[host] = Worker(own)
        servers.append(own.serve("compute", host, workers[host], "1.0"))
        own.warm_up("conductor")
    yield workers
    for server in servers:
        server.stop()


@pytest.fixture
def intruder(accounts: dict[str, str]) -> Iterator[amqp.Connection]:
    """The account of the worker of host-1, in the hands of somebody who knows AMQP."""
    found = re.match(r"rabbit://(.+):(.+)@(.+)/", accounts[HOST])
    assert found is not None
    user, password, address = found.groups()
    connection = amqp.Connection(address, userid=user, password=password, confirm_publish=True)
    connection.connect()
    yield connection
    connection.close()


@pytest.mark.parametrize("sender", ["api", "conductor"])
def test_a_worker_serves_and_calls_the_conductor_with_its_own_account(
    cloud: dict[str, Worker], connect: Connect, sender: str
) -> None:
    cloud[HOST].done.clear()
    connect(sender).cast(CALLER, wire.Target("compute", "1.0", HOST), "create", {"record": sender})
    assert cloud[HOST].done.wait(SOON)
    assert cloud[HOST].answers.pop() == f"begun {sender}"


@pytest.mark.parametrize("victim", [OTHER, HOST])
def test_a_forged_cast_from_one_host_to_a_worker_is_refused(
    cloud: dict[str, Worker], connect: Connect, victim: str
) -> None:
    with pytest.raises(wire.Undeliverable, match="ACCESS_REFUSED"):
        connect(HOST).cast(CALLER, wire.Target("compute", "1.0", victim), "create", {"record": "forged"})
    assert cloud[victim].answers == []


def test_a_worker_may_not_cast_to_all_workers(cloud: dict[str, Worker], intruder: amqp.Connection) -> None:
    channel = intruder.channel()
    with pytest.raises(amqp.AccessRefused):
        channel.basic_publish(amqp.Message("x"), exchange="compute_fanout", routing_key="")


def test_a_worker_may_not_write_to_another_queue_through_the_default_exchange(
    cloud: dict[str, Worker], intruder: amqp.Connection
) -> None:
    channel = intruder.channel()
    with pytest.raises(amqp.AccessRefused):
        channel.basic_publish(amqp.Message("x"), exchange="", routing_key=f"compute.{OTHER}")


@pytest.mark.parametrize(
    "queue", [f"compute.{OTHER}", "conductor", f"reply_{OTHER}:pinfold-compute.0123abcd:1"]
)
@pytest.mark.parametrize("how", ["basic_get", "basic_consume", "queue_purge", "queue_delete"])
def test_a_worker_may_not_read_or_remove_the_queue_of_another(
    cloud: dict[str, Worker], intruder: amqp.Connection, queue: str, how: str
) -> None:
    with pytest.raises(amqp.AccessRefused):
        getattr(intruder.channel(), how)(queue)


@pytest.mark.parametrize("own", [f"compute.{HOST}", "compute"])
@pytest.mark.parametrize("key", [f"compute.{OTHER}", "conductor", "compute.*", "#"])
def test_a_worker_may_not_have_copies_of_what_is_sent_to_others(
    cloud: dict[str, Worker], intruder: amqp.Connection, own: str, key: str
) -> None:
    with pytest.raises(amqp.AccessRefused):
        intruder.channel().queue_bind(own, exchange="pinfold", routing_key=key)


def test_the_api_may_not_listen(cloud: dict[str, Worker], connect: Connect) -> None:
    with pytest.raises(ConfigurationError, match="may not listen at queue conductor"):
        connect("api").serve("conductor", "conductor-2", Conductor(), "1.0")


def test_a_host_name_is_taken_literally_in_the_patterns() -> None:
    may = permissions.for_compute("a.b")
    assert re.match(may.read, "compute.a.b")
    assert not re.match(may.read, "compute.aXb")
    assert not re.match(may.write, "reply_a.b2:pinfold-compute.0123abcd:1")


def test_the_commands_of_rabbitmqctl_say_the_same(broker: Broker) -> None:
    may = permissions.for_compute("host-7")
    broker.add_account("compute-7", permissions.Permissions("^$", "^$", "^$", "^$", "^$"))
    for command in may.commands("compute-7"):
        broker.control(*command)
    (granted,) = json.loads(broker.control("list_user_permissions", "compute-7", "--formatter=json"))
    assert (granted["configure"], granted["write"], granted["read"]) == (may.configure, may.write, may.read)
