"""The typed clients: which message each method sends, and calls made again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pinfold.model import errors
from pinfold.model.host import NodeView
from pinfold.model.request import Demand
from pinfold.rpcapi import messages, wire
from pinfold.rpcapi.clients import COMPUTE, CallAgain, ComputeClient, ConductorClient
from pinfold.rpcapi.context import Context
from pinfold.runtime import RealRuntime
from tests.rpcapi.conftest import CALLER


class Recorder:
    """A transport that keeps what is sent and gives prepared answers."""

    def __init__(self, answer: Any = None) -> None:
        self.sent: list[tuple[Context, wire.Target, str, Mapping[str, Any]]] = []
        self.timeouts: list[float] = []
        self._answer = answer

    def cast(self, context: Context, target: wire.Target, method: str, arguments: Mapping[str, Any]) -> None:
        self.sent.append((context, target, method, arguments))

    def call(
        self,
        context: Context,
        target: wire.Target,
        method: str,
        arguments: Mapping[str, Any],
        timeout: float,
    ) -> Any:
        self.cast(context, target, method, arguments)
        self.timeouts.append(timeout)
        return self._answer

    def serve(self, topic: str, server: str, endpoint: object, version: str) -> wire.Server:
        raise AssertionError("a client does not serve")

    def ping(self) -> bool:
        return True

    def close(self) -> None: ...


WHO: dict[str, Any] = {"operation": "o", "attempt": 2, "host": "h", "incarnation": "i"}
CALLS: list[tuple[str, Any, Any]] = [
    ("register", messages.Register("h", "id", "i", ()), messages.Registered(refused="no")),
    ("heartbeat", messages.Heartbeat("h", "i", (("o", 1),)), messages.Heard(refused=("o",))),
    ("begin", messages.Begin(**WHO, step="spawn"), messages.Begun(accepted=True)),
    (
        "claim",
        messages.Claim(**WHO, node="n", generation=3, claim="c", memory_mb=1, disk_gb=2, shared_vcpus=0),
        messages.Claimed("stale", view=NodeView("n", 4, ())),
    ),
    ("finish", messages.Finish(**WHO, node="n", power_state=1), messages.Finished(done=True, generation=5)),
    (
        "abort",
        messages.Abort(**WHO, node="n", step="spawn", code="no-fit", message="m"),
        messages.Aborted(accepted=True, released="c", generation=6),
    ),
    ("release", messages.Release("h", "i", "n", "c"), messages.Released(released=False)),
]


def work(kind: str) -> messages.Work:
    demand = Demand(vcpus=2, memory_mb=512, disk_gb=1, shared_vcpus=0)
    return messages.Work(
        operation="o",
        attempt=1,
        kind=kind,
        instance="s",
        name="server",
        project_id="p",
        user_id="u",
        host="h",
        node="n",
        demand=demand,
        vm_state="active",
    )


@pytest.mark.parametrize(("method", "record", "answer"), CALLS, ids=[method for method, _, _ in CALLS])
def test_each_call_sends_its_record_and_returns_the_answer(method: str, record: Any, answer: Any) -> None:
    recorder = Recorder(messages.to_wire(answer))
    assert getattr(ConductorClient(recorder, CALLER), method)(record) == answer
    ((context, target, sent, arguments),) = recorder.sent
    assert (context, target, sent) == (CALLER, wire.Target("conductor", "1.0"), method)
    assert messages.from_wire(arguments["record"], type(record)) == record


def test_run_casts_the_id_of_the_operation() -> None:
    recorder = Recorder()
    ConductorClient(recorder, CALLER).run("o")
    assert recorder.sent == [(CALLER, wire.Target("conductor", "1.0"), "run", {"operation": "o"})]
    assert recorder.timeouts == []


def test_node_view_sends_the_node_and_its_host() -> None:
    view = NodeView("n", 7, ())
    recorder = Recorder(messages.to_wire(view))
    assert ConductorClient(recorder, CALLER).node_view("n", "h") == view
    assert recorder.sent[0][3] == {"node": "n", "host": "h"}


def test_answer_returns_nothing() -> None:
    recorder = Recorder()
    ConductorClient(recorder, CALLER).answer(messages.Answer("r", "h", {"a": [1]}))
    assert recorder.sent[0][2] == "answer"


def test_the_timeout_is_that_of_the_client() -> None:
    recorder = Recorder(messages.to_wire(messages.Heard()))
    client = ConductorClient(recorder, CALLER, timeout=3.5).with_context(Context("req-2"))
    client.heartbeat(messages.Heartbeat("h", "i"))
    assert recorder.timeouts == [3.5]
    assert recorder.sent[0][0] == Context("req-2")


@pytest.mark.parametrize(
    "kind", ["create", "unshelve", "unshelve_in_place", "shelve", "shelve_offload", "delete"]
)
def test_work_is_cast_to_its_host_under_the_name_of_its_kind(kind: str) -> None:
    recorder = Recorder()
    ComputeClient(recorder, CALLER).perform("h", work(kind))
    ((_, target, method, arguments),) = recorder.sent
    assert (target, method) == (wire.Target("compute", "1.0", "h"), kind)
    assert messages.from_wire(arguments["record"], messages.Work) == work(kind)


def test_a_forced_delete_is_the_work_of_a_delete() -> None:
    recorder = Recorder()
    ComputeClient(recorder, CALLER).perform("h", work("force_delete"))
    assert recorder.sent[0][2] == "delete"


def test_a_report_is_asked_of_one_host() -> None:
    recorder = Recorder()
    ComputeClient(recorder, CALLER).report("h", messages.ReportRequest("r", "tracker"))
    assert recorder.sent[0][1:3] == (wire.Target("compute", "1.0", "h"), "report")


def test_nothing_is_ever_sent_to_all_workers_or_any_of_them() -> None:
    recorder = Recorder()
    with pytest.raises(ValueError, match="a worker is rung by its host's name"):
        ComputeClient(recorder, CALLER).perform("", work("create"))
    assert recorder.sent == []


@pytest.mark.parametrize("client", [ConductorClient, ComputeClient])
def test_an_unsupported_pin_is_a_start_up_error(client: Any) -> None:
    with pytest.raises(errors.ConfigurationError, match="upgrade_levels"):
        client(Recorder(), CALLER, pin="7.0")


def test_every_kind_of_work_has_a_method() -> None:
    recorder = Recorder()
    for method in set(COMPUTE.methods) - {"report"}:
        ComputeClient(recorder, CALLER).perform("h", work(method))
    assert {sent[2] for sent in recorder.sent} == set(COMPUTE.methods) - {"report"}


# --- calls made again -----------------------------------------------------------------------


class Stopwatch(RealRuntime):
    """A runtime whose clock moves only when somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def monotonic(self) -> float:
        return self.time


class Pauses:
    """An event that is set, or never; it keeps how long it was waited for."""

    def __init__(self, clock: Stopwatch, set_after: int = 1000) -> None:
        self._clock = clock
        self._set_after = set_after
        self.waited: list[float] = []

    def set(self) -> None: ...
    def clear(self) -> None: ...

    def is_set(self) -> bool:
        return len(self.waited) >= self._set_after

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waited.append(timeout)
        self._clock.time += timeout
        return self.is_set()


class Flaky:
    """Fails some times, then answers."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.asked: list[str] = []

    def __call__(self, record: str) -> str:
        self.asked.append(record)
        if self.failures:
            raise self.failures.pop(0)
        return f"answer to {record}"


LOST = [
    wire.CallTimeout("lost"),
    wire.Undeliverable("away"),
    wire.RemoteUnavailable("the database is away"),
    errors.Unavailable("away"),
]


def test_a_call_is_made_again_until_it_is_answered() -> None:
    clock, flaky = Stopwatch(), Flaky(*LOST)
    assert CallAgain(clock, stop=Pauses(clock))(flaky, "x") == "answer to x"
    assert flaky.asked == ["x"] * 5


def test_pauses_grow_and_are_never_quite_the_same() -> None:
    clock, flaky = Stopwatch(), Flaky(*[wire.CallTimeout("lost")] * 9)
    pauses = Pauses(clock)
    CallAgain(clock, stop=pauses, first=0.1, longest=5.0)(flaky, "x")
    longest = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses.waited, longest, strict=True))


def test_after_its_time_the_last_failure_is_raised() -> None:
    clock, flaky = Stopwatch(), Flaky(*[wire.CallTimeout("lost")] * 1000)
    with pytest.raises(wire.CallTimeout):
        CallAgain(clock, stop=Pauses(clock), seconds=10)(flaky, "x")
    assert clock.time == pytest.approx(10)


def test_a_stop_ends_it() -> None:
    clock, flaky = Stopwatch(), Flaky(*[wire.Undeliverable("away")] * 1000)
    with pytest.raises(wire.Undeliverable):
        CallAgain(clock, stop=Pauses(clock, set_after=3))(flaky, "x")
    assert len(flaky.asked) == 3


@pytest.mark.parametrize(
    "error",
    [wire.RemoteError("KeyError"), wire.NoSuchMethod("no"), errors.Conflict("pinned"), ValueError("x")],
)
def test_other_errors_are_raised_at_once(error: Exception) -> None:
    clock, flaky = Stopwatch(), Flaky(error)
    with pytest.raises(type(error)):
        CallAgain(clock, stop=Pauses(clock))(flaky, "x")
    assert len(flaky.asked) == 1
