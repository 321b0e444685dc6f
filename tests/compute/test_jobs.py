"""Lanes and threads: one job per instance, a bound that what hangs does not eat."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from pinfold.compute.fence import Ended, Fence, Fenced
from pinfold.compute.jobs import Jobs, Key
from pinfold.runtime import RealRuntime

RUNTIME = RealRuntime()


def eventually(what: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until it holds."""
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.005)


def key(operation: str, attempt: int = 1, node: str = "n1") -> Key:
    return Key(operation, attempt, node)


class Held:
    """A job that runs until it is let go."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.go = threading.Event()

    def __call__(self) -> None:
        self.started.set()
        assert self.go.wait(20)


def test_jobs_of_one_instance_run_one_after_another_in_their_order() -> None:
    jobs = Jobs(RUNTIME, 8)
    order: list[int] = []
    first = Held()
    assert jobs.submit("a", first, key=key("o"), seconds=10)
    for attempt in range(2, 6):
        jobs.submit("a", lambda attempt=attempt: order.append(attempt), key=key("o", attempt), seconds=10)  # type: ignore[misc]
    assert first.started.wait(10)
    assert order == []
    first.go.set()
    assert jobs.drain(10)
    assert order == [2, 3, 4, 5]


def test_jobs_of_different_instances_run_side_by_side() -> None:
    jobs = Jobs(RUNTIME, 8)
    both = threading.Barrier(2, timeout=10)

    def meet() -> None:
        both.wait()

    for name in "ab":
        jobs.submit(name, meet, key=key(name), seconds=10)
    assert jobs.drain(10)
    assert not both.broken


def test_a_message_that_comes_twice_is_taken_once_while_it_is_under_way() -> None:
    """F023."""
    jobs = Jobs(RUNTIME, 8)
    first = Held()
    assert jobs.submit("a", first, key=key("o"), seconds=10)
    assert not jobs.submit("a", first, key=key("o"), seconds=10)
    assert jobs.submit("a", lambda: None, key=key("o", 2), seconds=10)
    assert jobs.submit("a", lambda: None, key=key("o", 1, "n2"), seconds=10)
    first.go.set()
    assert jobs.drain(10)
    assert jobs.submit("a", lambda: None, key=key("o"), seconds=10)


def test_what_is_under_way_is_named_from_its_arrival_on_by_its_newest_attempt() -> None:
    """R13."""
    jobs = Jobs(RUNTIME, 1)
    first = Held()
    jobs.submit("a", first, key=key("o", 1), seconds=10)
    jobs.submit("a", lambda: None, key=key("o", 2), seconds=10)
    jobs.submit("b", lambda: None, key=key("p", 7), seconds=10)
    assert jobs.under_way() == (("o", 2), ("p", 7))
    first.go.set()
    assert jobs.drain(10)
    assert jobs.under_way() == ()


def test_no_more_run_at_once_than_the_bound() -> None:
    jobs = Jobs(RUNTIME, 2)
    held = [Held() for _ in range(5)]
    for number, job in enumerate(held):
        jobs.submit(f"server-{number}", job, key=key(str(number)), seconds=30)
    eventually(lambda: sum(job.started.is_set() for job in held) == 2)
    time.sleep(0.05)
    assert [job.started.is_set() for job in held] == [True, True, False, False, False]
    for job in held:
        job.go.set()
    assert jobs.drain(10)
    assert all(job.started.is_set() for job in held)


def test_a_call_that_hangs_past_its_time_no_longer_counts_but_keeps_its_lane() -> None:
    jobs = Jobs(RUNTIME, 1)
    hung, mine, other = Held(), Held(), Held()
    jobs.submit("a", hung, key=key("o"), seconds=0.05)
    jobs.submit("a", mine, key=key("o", 2), seconds=30)
    jobs.submit("b", other, key=key("p"), seconds=30)
    assert hung.started.wait(10)

    def looked() -> bool:
        jobs.look()
        return other.started.is_set()

    eventually(looked)
    assert not mine.started.is_set()
    other.go.set()
    hung.go.set()
    assert mine.started.wait(10)
    mine.go.set()
    assert jobs.drain(10)


def test_the_audit_takes_a_lane_only_when_it_is_free() -> None:
    jobs = Jobs(RUNTIME, 8)
    first = Held()
    jobs.submit("a", first, key=key("o"), seconds=10)
    assert jobs.try_submit("a", lambda: None, seconds=10) is None
    done = jobs.try_submit("b", lambda: None, seconds=10)
    assert done is not None
    assert done.wait(10)
    first.go.set()
    assert jobs.drain(10)


def test_a_job_that_raises_frees_its_lane_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    jobs = Jobs(RUNTIME, 8)

    def broken() -> None:
        raise ValueError("a mistake of ours")

    jobs.submit("a", broken, key=key("o"), seconds=10)
    assert jobs.drain(10)
    assert "a mistake of ours" in caplog.text
    assert not jobs.is_busy("a")


def test_refused_work_is_known_until_it_ends() -> None:
    jobs = Jobs(RUNTIME, 8)
    first = Held()
    jobs.submit("a", first, key=key("o"), seconds=10)
    jobs.refuse([("o", 2), ("p", 1)])
    assert not jobs.is_refused(key("o"))
    jobs.refuse([("o", 1)])
    assert jobs.is_refused(key("o"))
    first.go.set()
    assert jobs.drain(10)
    assert not jobs.is_refused(key("o"))


def test_a_closed_pool_takes_nothing_and_drops_what_waits() -> None:
    jobs = Jobs(RUNTIME, 1)
    first, second = Held(), Held()
    jobs.submit("a", first, key=key("o"), seconds=10)
    jobs.submit("b", second, key=key("p"), seconds=10)
    jobs.close()
    assert not jobs.submit("c", lambda: None, key=key("q"), seconds=10)
    assert not jobs.drain(0.05)
    first.go.set()
    assert jobs.drain(10)
    assert not second.started.is_set()


def test_a_fence_is_open_for_a_lease_from_when_the_renewal_was_sent() -> None:
    assert not Fence(RUNTIME, 5.0).is_open
    fence = Fence(RUNTIME, 5.0)
    fence.renewed(RUNTIME.monotonic() - 4.9)
    assert fence.is_open
    fence.renewed(RUNTIME.monotonic() - 5.1)
    assert fence.is_open, "an older renewal that is heard later takes nothing back"
    late = Fence(RUNTIME, 5.0)
    late.renewed(RUNTIME.monotonic() - 5.1)
    assert not late.is_open


def test_who_waits_at_a_fence_goes_on_when_the_worker_is_heard_again() -> None:
    fence = Fence(RUNTIME, 5.0)
    passed = threading.Event()

    def wait() -> None:
        fence.wait(time.monotonic() + 20)
        passed.set()

    for _ in range(3):
        threading.Thread(target=wait, daemon=True).start()
    time.sleep(0.05)
    assert not passed.is_set()
    fence.renewed(RUNTIME.monotonic())
    assert passed.wait(10)


def test_a_fence_is_given_up_at_the_deadline_and_never_opens_again_once_ended() -> None:
    fence = Fence(RUNTIME, 5.0)
    with pytest.raises(Fenced):
        fence.wait(RUNTIME.monotonic() + 0.05)
    fence.renewed(RUNTIME.monotonic())
    fence.end("superseded")
    assert not fence.is_open
    with pytest.raises(Ended, match="superseded"):
        fence.wait(RUNTIME.monotonic() + 10)
