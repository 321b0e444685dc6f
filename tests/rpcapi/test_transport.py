"""The contract of a transport, held by both: in one process, and over RabbitMQ."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pinfold.model import errors
from pinfold.rpcapi import wire
from pinfold.rpcapi.context import Context
from tests.rpcapi.conftest import CALLER, Wiring

SOON = 10.0


class Endpoint:
    """Answers, fails, waits; keeps what it saw."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.arrived = threading.Semaphore(0)
        self.go = threading.Event()
        self.go.set()

    @wire.exported
    def echo(self, context: Context, value: Any) -> Any:
        return value

    @wire.exported
    def note(self, context: Context, value: Any) -> None:
        self.seen.append(value)
        self.arrived.release()

    @wire.exported
    def who(self, context: Context) -> list[Any]:
        return [context.request_id, context.user_id, context.project_id, list(context.roles)]

    @wire.exported
    def wait(self, context: Context, value: Any = None) -> Any:
        self.arrived.release()
        assert self.go.wait(SOON)
        self.seen.append(value)
        return value

    @wire.exported
    def change(self, context: Context, value: list[int]) -> list[int]:
        value.append(4)
        self.seen.append(value)
        return value

    @wire.exported
    def fail(self, context: Context, how: str) -> None:
        if how == "conflict":
            raise errors.Conflict("the instance is being shelved")
        if how == "unavailable":
            raise errors.Unavailable("the database is away")
        raise KeyError("gone")

    @wire.exported
    def unsendable(self, context: Context) -> Any:
        return {1: {object()}}

    def helper(self, context: Context) -> None:
        self.seen.append("helper")

    def _update_usage(self, context: Context) -> None:
        self.seen.append("_update_usage")


@contextmanager
def served(
    wiring: Wiring, topic: str, server: str = "one", version: str = "1.2", pool_size: int = 8
) -> Iterator[Endpoint]:
    transport = wiring.transport(pool_size)
    endpoint = Endpoint()
    running = transport.serve(topic, server, endpoint, version)
    try:
        yield endpoint
    finally:
        endpoint.go.set()
        running.stop()


def at(topic: str, server: str | None = "one", version: str = "1.0") -> wire.Target:
    return wire.Target(topic, version, server)


def call(client: wire.Transport, target: wire.Target, method: str, **arguments: Any) -> Any:
    return client.call(CALLER, target, method, arguments, SOON)


def arrives(endpoint: Endpoint, count: int = 1) -> bool:
    return all(endpoint.arrived.acquire(timeout=SOON) for _ in range(count))


def eventually(condition: Any) -> bool:
    deadline = time.monotonic() + SOON
    while not condition():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.01)
    return True


def test_a_call_returns_what_the_method_returned(wiring: Wiring, topic: str) -> None:
    value = {"a": [1, 2.5, None, True], "ü": {"": "x"}}
    with served(wiring, topic):
        assert call(wiring.transport(), at(topic), "echo", value=value) == value


def test_a_cast_is_carried_out(wiring: Wiring, topic: str) -> None:
    with served(wiring, topic) as endpoint:
        wiring.transport().cast(CALLER, at(topic), "note", {"value": 7})
        assert arrives(endpoint)
    assert endpoint.seen == [7]


def test_the_caller_travels_with_the_message(wiring: Wiring, topic: str) -> None:
    with served(wiring, topic):
        assert call(wiring.transport(), at(topic), "who") == ["req-1", "u", "p", ["member"]]


def test_a_message_for_a_server_reaches_no_other(wiring: Wiring, topic: str) -> None:
    with served(wiring, topic, "one") as one, served(wiring, topic, "two") as two:
        client = wiring.transport()
        for number in range(10):
            call(client, at(topic, "two"), "note", value=number)
    assert (one.seen, two.seen) == ([], list(range(10)))


def test_messages_for_a_topic_are_shared_out_among_its_servers(wiring: Wiring, topic: str) -> None:
    with served(wiring, topic, "one") as one, served(wiring, topic, "two") as two:
        client = wiring.transport()
        for number in range(20):
            call(client, at(topic, None), "note", value=number)
    assert one.seen
    assert two.seen
    assert sorted(one.seen + two.seen) == list(range(20))


def test_nothing_is_shared_by_reference(wiring: Wiring, topic: str) -> None:
    mine = [1, 2, 3]
    with served(wiring, topic) as endpoint:
        theirs = call(wiring.transport(), at(topic), "change", value=mine)
        endpoint.seen[0].append(5)
    assert (mine, theirs) == ([1, 2, 3], [1, 2, 3, 4])


def test_an_error_of_the_method_names_its_class_and_message(wiring: Wiring, topic: str) -> None:
    with served(wiring, topic), pytest.raises(wire.RemoteError, match="KeyError: 'gone'"):
        call(wiring.transport(), at(topic), "fail", how="key")


def test_a_planned_error_keeps_its_code(wiring: Wiring, topic: str) -> None:
    with served(wiring, topic), pytest.raises(wire.RemoteError, match="being shelved") as raised:
        call(wiring.transport(), at(topic), "fail", how="conflict")
    assert raised.value.code == "conflict"


def test_what_is_unavailable_over_there_is_unavailable_here(wiring: Wiring, topic: str) -> None:
    with served(wiring, topic), pytest.raises(errors.Unavailable, match="the database is away"):
        call(wiring.transport(), at(topic), "fail", how="unavailable")


@pytest.mark.parametrize(
    "method", ["helper", "_update_usage", "__init__", "__class__", "target", "exported", "absent", "seen"]
)
def test_only_exported_methods_are_dispatched(wiring: Wiring, topic: str, method: str) -> None:
    with served(wiring, topic) as endpoint:
        with pytest.raises(wire.NoSuchMethod):
            call(wiring.transport(), at(topic), method)
        assert endpoint.seen == []


def test_arguments_that_a_method_does_not_take_are_refused_before_it_runs(wiring: Wiring, topic: str) -> None:
    with served(wiring, topic) as endpoint:
        with pytest.raises(wire.NoSuchMethod, match="colour"):
            call(wiring.transport(), at(topic), "note", value=1, colour="red")
    assert endpoint.seen == []


@pytest.mark.parametrize(
    ("version", "accepted"), [("1.0", True), ("1.2", True), ("1.3", False), ("2.0", False)]
)
def test_a_server_takes_its_major_version_and_lower_minors(
    wiring: Wiring, topic: str, version: str, accepted: bool
) -> None:
    with served(wiring, topic, version="1.2"):
        client, target = wiring.transport(), at(topic, version=version)
        if accepted:
            assert call(client, target, "echo", value=1) == 1
        else:
            with pytest.raises(wire.NoSuchMethod):
                call(client, target, "echo", value=1)


@pytest.mark.parametrize("server", ["never-seen", None])
def test_a_cast_where_nobody_ever_listened_is_undeliverable_at_once(
    wiring: Wiring, topic: str, server: str | None
) -> None:
    client = wiring.transport()
    start = time.monotonic()
    with pytest.raises(wire.Undeliverable, match=topic):
        client.cast(CALLER, at(topic, server), "note", {"value": 1})
    assert time.monotonic() - start < 2


def test_a_call_where_nobody_ever_listened_does_not_wait_for_its_timeout(wiring: Wiring, topic: str) -> None:
    start = time.monotonic()
    with pytest.raises(wire.Undeliverable):
        wiring.transport().call(CALLER, at(topic), "echo", {"value": 1}, 60)
    assert time.monotonic() - start < 5


def test_a_call_without_a_reply_times_out(wiring: Wiring, topic: str) -> None:
    with served(wiring, topic) as endpoint:
        endpoint.go.clear()
        with pytest.raises(wire.CallTimeout, match=r"0\.3 s"):
            wiring.transport().call(CALLER, at(topic), "wait", {}, 0.3)


def test_a_cast_to_a_server_that_is_away_waits_for_its_return(wiring: Wiring, topic: str) -> None:
    with served(wiring, topic):
        pass
    wiring.transport().cast(CALLER, at(topic), "note", {"value": "late"})
    with served(wiring, topic) as endpoint:
        assert arrives(endpoint)
    assert endpoint.seen == ["late"]


def test_a_call_that_was_given_up_is_not_carried_out_later(wiring: Wiring, topic: str) -> None:
    with served(wiring, topic):
        pass
    client = wiring.transport()
    with pytest.raises(wire.CallTimeout):
        client.call(CALLER, at(topic), "note", {"value": "given up"}, 0.3)
    client.cast(CALLER, at(topic), "note", {"value": "later"})
    with served(wiring, topic) as endpoint:
        assert arrives(endpoint)
    assert endpoint.seen == ["later"]


def test_stop_waits_for_the_handlers_in_flight(wiring: Wiring, topic: str) -> None:
    endpoint, stopped = Endpoint(), threading.Event()
    running = wiring.transport().serve(topic, "one", endpoint, "1.0")
    endpoint.go.clear()
    wiring.transport().cast(CALLER, at(topic), "wait", {"value": "done"})
    assert arrives(endpoint)

    def stop() -> None:
        running.stop()
        stopped.set()

    threading.Thread(target=stop, daemon=True).start()
    assert not stopped.wait(0.3)
    endpoint.go.set()
    assert stopped.wait(SOON)
    assert endpoint.seen == ["done"]


def test_stop_may_be_repeated(wiring: Wiring, topic: str) -> None:
    running = wiring.transport().serve(topic, "one", Endpoint(), "1.0")
    running.stop()
    running.stop()


def test_a_stopped_server_takes_no_more(wiring: Wiring, topic: str) -> None:
    endpoint = Endpoint()
    wiring.transport().serve(topic, "one", endpoint, "1.0").stop()
    with pytest.raises(wire.CallTimeout):
        wiring.transport().call(CALLER, at(topic), "note", {"value": 1}, 0.3)
    assert endpoint.seen == []


def test_calls_run_side_by_side_up_to_the_size_of_the_pool(wiring: Wiring, topic: str) -> None:
    with served(wiring, topic, pool_size=3) as endpoint:
        endpoint.go.clear()
        client = wiring.transport(3)
        for number in range(4):
            client.cast(CALLER, at(topic), "wait", {"value": number})
        assert arrives(endpoint, 3)
        assert not endpoint.arrived.acquire(timeout=0.3)
        endpoint.go.set()
        assert arrives(endpoint)
        assert eventually(lambda: sorted(endpoint.seen) == [0, 1, 2, 3])


def test_messages_start_in_the_order_in_which_they_were_sent(wiring: Wiring, topic: str) -> None:
    with served(wiring, topic, pool_size=1) as endpoint:
        client = wiring.transport(1)
        for number in range(50):
            client.cast(CALLER, at(topic, "one" if number % 2 else None), "note", {"value": number})
        assert arrives(endpoint, 50)
    own = [number for number in endpoint.seen if number % 2]
    shared = [number for number in endpoint.seen if not number % 2]
    assert own == sorted(own)
    assert shared == sorted(shared)


def test_many_callers_each_get_their_own_reply(wiring: Wiring, topic: str) -> None:
    client = wiring.transport()
    wrong: list[list[int]] = []

    def ask(name: int) -> None:
        asked = [[name, number] for number in range(25)]
        wrong.extend(value for value in asked if call(client, at(topic), "echo", value=value) != value)

    with served(wiring, topic):
        callers = [threading.Thread(target=ask, args=(name,)) for name in range(8)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(60)
    assert wrong == []


def test_a_megabyte_travels_both_ways(wiring: Wiring, topic: str) -> None:
    value = ["x" * 1000] * 1000
    with served(wiring, topic):
        assert call(wiring.transport(), at(topic), "echo", value=value) == value


def test_a_handler_may_itself_call(wiring: Wiring, topic: str) -> None:
    inner = wiring.transport()

    class Relay:
        @wire.exported
        def relay(self, context: Context, value: int) -> Any:
            return inner.call(context, at(topic), "echo", {"value": value}, SOON)

    with served(wiring, topic):
        relay = wiring.transport().serve(f"{topic}-relay", "one", Relay(), "1.0")
        assert call(wiring.transport(), at(f"{topic}-relay"), "relay", value=3) == 3
        relay.stop()


def test_the_broker_answers_a_ping(wiring: Wiring) -> None:
    assert wiring.transport().ping()
