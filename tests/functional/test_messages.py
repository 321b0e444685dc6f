"""Messages that come twice, late, or not at all; and what an account of the broker may do."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import amqp

from devstack import rabbit
from pinfold.rpcapi import permissions
from tests.functional.harness import Cloud, check_books, only_multi, until


class Tap:
    """Sees every message with a routing key, and can deliver it again: as a broker does after a reconnect."""

    def __init__(self, cloud: Cloud, key: str) -> None:
        self._key = key
        self._seen: dict[str, amqp.Message] = {}
        self._broker = cloud.state.servers[rabbit.NAME]
        self._user, self._password = f"tap-{secrets.token_hex(4)}", secrets.token_hex(8)
        for command in (
            ["add_user", self._user, self._password],
            ["set_permissions", self._user, ".*", ".*", ".*"],
        ):
            rabbit.control(cloud.layout, self._broker, *command)
        self._echo = self._stop = False
        self._connection = self._connect()
        self._channel = self._connection.channel()
        queue = self._channel.queue_declare("", exclusive=True).queue
        self._channel.queue_bind(queue, permissions.EXCHANGE, self._key)
        self._channel.basic_consume(queue, callback=self._take, no_ack=True)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _connect(self) -> Any:
        address = f"127.0.0.1:{self._broker['port']}"
        connection = amqp.Connection(address, userid=self._user, password=self._password)
        connection.connect()
        return connection

    def _listen(self) -> None:
        while not self._stop:
            try:
                self._connection.drain_events(timeout=0.1)
            except TimeoutError:
                pass

    def _take(self, message: amqp.Message) -> None:
        inner = _inner(message)
        unique = inner.get("_unique_id", "")
        if unique.startswith("again-") or inner.get("method") == "echo":
            return  # an echo belongs to a heartbeat, not to a server
        self._seen[unique] = message
        if self._echo:
            self._publish(self._channel, message)

    def _publish(self, channel: Any, message: amqp.Message) -> None:
        """Another id for oslo.messaging, whose memory of ids does not survive a restart; else the same bytes."""
        envelope = json.loads(message.body)
        inner = _inner(message) | {"_unique_id": f"again-{secrets.token_hex(8)}"}
        envelope["oslo.message"] = json.dumps(inner)
        properties = {key: message.properties[key] for key in ("content_type", "content_encoding")}
        channel.basic_publish(
            amqp.Message(json.dumps(envelope), **properties), permissions.EXCHANGE, self._key
        )

    @contextmanager
    def echo(self) -> Iterator[None]:
        """Each message of the block comes twice, back to back."""
        self._echo = True
        try:
            yield
        finally:
            self._echo = False

    def deliver_all_again(self) -> int:
        """Deliver every message once more; how many there were."""
        connection = self._connect()
        channel = connection.channel()
        for message in list(self._seen.values()):
            self._publish(channel, message)
        connection.close()
        return len(self._seen)

    def methods(self) -> set[str]:
        """The methods that were asked for; replies have none."""
        return {method for message in self._seen.values() if (method := _inner(message).get("method"))}

    def close(self) -> None:
        self._stop = True
        self._thread.join()
        self._connection.close()


def _inner(message: amqp.Message) -> dict[str, Any]:
    body = message.body if isinstance(message.body, str) else message.body.decode()
    inner: dict[str, Any] = json.loads(json.loads(body)["oslo.message"])
    return inner


@contextmanager
def tapped(cloud: Cloud, key: str = "compute.host-1") -> Iterator[Tap]:
    tap = Tap(cloud, key)
    try:
        yield tap
    finally:
        tap.close()


def ended(cloud: Cloud, server: str) -> list[tuple[str, str]]:
    """Kind and state of the server's operations."""
    return sorted((work["kind"], work["state"]) for work in cloud.client.operations(server))


def facts(cloud: Cloud, server: str) -> tuple[Any, ...]:
    shown = cloud.client.server(server)
    images = [image["id"] for image in cloud.shelved_images()]
    state = (shown["status"], shown["OS-EXT-STS:task_state"], shown["OS-EXT-SRV-ATTR:host"])
    return (state, cloud.pins(server), images, cloud.where(server), ended(cloud, server))


@only_multi
def test_every_message_of_a_server_s_life_may_come_twice(cloud: Cloud) -> None:
    """F023: back to back, and again after completion; one image, one claim, one change of state."""
    with tapped(cloud) as tap, tap.echo():
        server = cloud.boot("server", "p4")
        _nothing_happens_again(cloud, tap, server)
        cloud.offload(server)
        assert len(cloud.shelved_images()) == 1
        _nothing_happens_again(cloud, tap, server)
        cloud.unshelve(server, "host-1")
        cloud.await_no_images()
        _nothing_happens_again(cloud, tap, server)
        cloud.delete(server)
        cloud.await_unused()
        assert tap.deliver_all_again() >= 4
        _barrier(cloud)
    assert cloud.where(server) == []
    assert cloud.used() == frozenset()
    check_books(cloud)


@only_multi
def test_an_unshelve_that_comes_again_after_the_delete_does_nothing(cloud: Cloud) -> None:
    """F023: no row, no guest."""
    server = cloud.boot("server", "p4")
    cloud.offload(server)
    with tapped(cloud) as tap:
        cloud.unshelve(server, "host-1")
        cloud.offload(server)
        cloud.delete(server)
        assert tap.deliver_all_again() >= 1
        _barrier(cloud)
    assert cloud.where(server) == []
    assert cloud.used() == frozenset()
    check_books(cloud)


def _nothing_happens_again(cloud: Cloud, tap: Tap, server: str) -> None:
    before = facts(cloud, server)
    assert tap.deliver_all_again() >= 1
    _barrier(cloud)
    assert facts(cloud, server) == before
    check_books(cloud)


def _barrier(cloud: Cloud) -> None:
    """What was delivered before has been handled: a later request has gone all the way through the worker."""
    other = cloud.boot("barrier", "p1")
    cloud.delete(other)
    cloud.audit()


@only_multi
def test_a_delete_of_an_offloaded_server_sends_no_message_at_all(cloud: Cloud) -> None:
    """Nothing but heartbeats passes the broker."""
    server = cloud.boot("server", "p4")
    cloud.offload(server)
    with tapped(cloud, "#") as tap:
        cloud.client.delete(server)
        assert cloud.client.request("GET", f"/v2.1/servers/{server}").status_code == 404
        cloud.await_no_images()
        until(lambda: "heartbeat" in tap.methods(), lambda: "the tap sees no heartbeat", 20)
        assert tap.methods() <= {"heartbeat", "node_view", "ping"}


@only_multi
def test_a_lost_message_leaves_no_server_in_a_transitional_state(cloud: Cloud) -> None:
    """F021: the worker's queue is deleted under it, with what was in it; the sweeper rings again."""
    server = cloud.boot("server", "p4")
    with cloud.frozen("compute-host-1"):
        cloud.client.act(server, "shelve")
        rabbit.control(cloud.layout, cloud.state.servers[rabbit.NAME], "purge_queue", "compute.host-1")
    shown = cloud.client.settled(server, 60)
    assert shown["status"] in ("ACTIVE", "SHELVED_OFFLOADED")
    if shown["status"] == "ACTIVE":
        cloud.offload(server)
    cloud.unshelve(server)
    check_books(cloud)


@only_multi
def test_a_forged_cast_from_one_hosts_account_to_another_host_is_refused(cloud: Cloud) -> None:
    broker, password = cloud.state.servers[rabbit.NAME], cloud.state.accounts["compute-host-1"]
    connection = amqp.Connection(f"127.0.0.1:{broker['port']}", userid="compute-host-1", password=password)
    connection.connect()
    channel = connection.channel()
    refused: list[int] = []

    def answered() -> bool:
        try:
            channel.basic_publish(amqp.Message("{}"), permissions.EXCHANGE, "compute.host-2")
            connection.drain_events(timeout=0.2)
        except amqp.AccessRefused as error:
            refused.append(error.code)
        except TimeoutError:
            pass
        return bool(refused)

    until(answered, lambda: "the forged cast was not refused", 10)
    assert refused == [403]
    connection.close()
