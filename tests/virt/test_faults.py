"""Faults to order: each rule strikes the calls that it is about, as often and for as long as it says."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pinfold.runtime import RealRuntime
from pinfold.virt.driver import SHUTDOWN, DriverError
from pinfold.virt.fake import FakeDriver
from pinfold.virt.faults import OrderedFault
from tests.virt.conftest import spec


class Clock(RealRuntime):
    """Real, but notes how long it was asked to sleep, and sleeps shorter."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []
        self.asleep = threading.Event()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.asleep.set()
        time.sleep(min(seconds, 0.005))


class Bench:
    """Fake hosts with one fault file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "faults.json"
        self.clock = Clock()

    def host(self, name: str = "host-1") -> FakeDriver:
        """A worker's driver, with guest x on node n."""
        state = str(self.root / "hypervisor" / name)
        FakeDriver(self.clock, name, ["n"], state).spawn(spec("x", node="n"), iter([b"disk"]))
        return FakeDriver(self.clock, name, ["n"], state, str(self.file))

    def order(self, *rules: Mapping[str, object]) -> None:
        """Write the file as a careful tester does."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(rules))
        os.replace(fresh, self.file)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def fails(call: Callable[[], object]) -> bool:
    try:
        call()
        return False
    except OrderedFault:
        return True


def fail(**rule: object) -> dict[str, object]:
    return {"call": "*", "effect": "fail", **rule}


def test_without_a_fault_file_nothing_happens(bench: Bench) -> None:
    assert bench.host().list("n")


def test_a_rule_acts_from_the_moment_it_is_written_until_it_is_taken_out(bench: Bench) -> None:
    driver = bench.host()
    for _ in range(3):
        bench.order(fail(call="list"))
        assert fails(lambda: driver.list("n"))
        bench.order()
        assert not fails(lambda: driver.list("n"))
    bench.order(fail(call="list"))
    bench.file.unlink()
    assert not fails(lambda: driver.list("n"))


def test_the_form_that_the_contract_gives_is_understood(bench: Bench) -> None:
    driver = bench.host()
    bench.order(
        {"host": "host-1", "call": "power_off", "server": "x", "effect": "fail", "seconds": 2.0, "times": 1}
        | {"when": "before"}
    )
    assert fails(lambda: driver.power_off("n", "x"))
    assert driver.power_off("n", "x") == SHUTDOWN


@pytest.mark.parametrize(
    ("call", "act"),
    [
        ("spawn", lambda driver: driver.spawn(spec("y", node="n"), iter([b"y"]))),
        ("destroy", lambda driver: driver.destroy("n", "x")),
        ("power_on", lambda driver: driver.power_on("n", "x")),
        ("power_off", lambda driver: driver.power_off("n", "x")),
        ("reboot", lambda driver: driver.reboot("n", "x")),
        ("pause", lambda driver: driver.pause("n", "x")),
        ("unpause", lambda driver: driver.unpause("n", "x")),
        ("suspend", lambda driver: driver.suspend("n", "x")),
        ("resume", lambda driver: driver.resume("n", "x")),
        ("snapshot", lambda driver: list(driver.snapshot("n", "x"))),
        ("console_log", lambda driver: driver.console_log("n", "x")),
        ("inventory", lambda driver: driver.inventory("n")),
        ("list", lambda driver: driver.list("n")),
    ],
)
def test_each_call_is_struck_by_its_name_and_by_no_other(
    bench: Bench, call: str, act: Callable[[FakeDriver], object]
) -> None:
    driver = bench.host()
    bench.order(fail(call="live_migrate"))
    act(driver)
    for when in ("before", "after"):
        bench.order(fail(call=call, when=when))
        with pytest.raises(OrderedFault, match=f"{call} .*{when} its work"):
            act(driver)


def test_before_leaves_the_work_undone_and_after_has_it_done(bench: Bench) -> None:
    driver = bench.host()
    for when, left in (("before", ["x"]), ("after", [])):
        bench.order(fail(call="destroy", when=when))
        assert fails(lambda: driver.destroy("n", "x"))
        assert [guest.instance for guest in driver.list("n")] == left


def test_a_snapshot_that_fails_after_its_work_has_given_all_its_data(bench: Bench) -> None:
    driver = bench.host()
    bench.order(fail(call="snapshot", when="after"))
    pieces = driver.snapshot("n", "x")
    assert next(pieces).startswith(b"disk")
    with pytest.raises(OrderedFault):
        next(pieces)


@pytest.mark.parametrize(
    ("rule", "struck"),
    [
        ({"host": "*"}, True),
        ({"host": "host-1"}, True),
        ({"host": "host-2"}, False),
        ({"server": "x"}, True),
        ({"server": "y"}, False),
        ({"call": "pause"}, True),
        ({"call": "unpause"}, False),
        ({"when": "after"}, True),
        ({"times": 0}, False),
        ({"times": None}, True),
    ],
)
def test_a_rule_is_about_its_host_call_and_server(
    bench: Bench, rule: dict[str, object], struck: bool
) -> None:
    driver = bench.host()
    bench.order(fail(**rule))
    assert fails(lambda: driver.pause("n", "x")) == struck


def test_a_rule_about_one_server_leaves_calls_about_none_alone(bench: Bench) -> None:
    driver = bench.host()
    bench.order(fail(server="x"))
    assert driver.list("n")


def test_delay_makes_the_call_late(bench: Bench) -> None:
    driver = bench.host()
    bench.order({"call": "pause", "effect": "delay", "seconds": 2.0})
    driver.pause("n", "x")
    assert bench.clock.slept == [2.0]


def test_rules_act_in_their_order_up_to_the_one_that_fails(bench: Bench) -> None:
    driver = bench.host()
    late = {"call": "*", "effect": "delay", "seconds": 1.0}
    bench.order(late, fail(times=1), {**late, "seconds": 5.0})
    assert fails(lambda: driver.pause("n", "x"))
    driver.pause("n", "x")
    assert bench.clock.slept == [1.0, 1.0, 5.0]


def test_a_hanging_call_goes_on_when_its_rule_is_taken_out(bench: Bench) -> None:
    driver = bench.host()
    hang = {"call": "pause", "effect": "hang"}
    bench.order(hang)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(driver.pause, "n", "x")
        assert bench.clock.asleep.wait(10)
        bench.order(fail(call="list", times=0), hang)  # other rules come and go
        assert driver.list("n")
        assert not call.done()
        bench.order()
        call.result(timeout=10)


def test_a_call_that_hangs_after_its_work_has_done_it(bench: Bench) -> None:
    driver = bench.host()
    bench.order({"call": "destroy", "effect": "hang", "when": "after"})
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(driver.destroy, "n", "x")
        assert bench.clock.asleep.wait(10)
        assert driver.list("n") == ()
        assert not call.done()
        bench.file.unlink()
        call.result(timeout=10)


def test_times_counts_the_strikes_and_then_the_rule_is_spent(bench: Bench) -> None:
    driver = bench.host()
    bench.order(fail(times=2))
    assert [fails(lambda: driver.list("n")) for _ in range(5)] == [True, True, False, False, False]


def test_the_count_outlives_the_worker(bench: Bench) -> None:
    before = bench.host()
    bench.order(fail(times=2))
    assert fails(lambda: before.list("n"))
    after = FakeDriver(
        bench.clock, "host-1", ["n"], str(bench.root / "hypervisor" / "host-1"), str(bench.file)
    )
    assert fails(lambda: after.list("n"))
    assert not fails(lambda: after.list("n"))


def test_all_hosts_share_the_count_of_a_rule_for_any_host(bench: Bench) -> None:
    drivers = [bench.host("host-1"), bench.host("host-2")]
    bench.order(fail(times=1))
    assert [fails(lambda driver=driver: driver.list("n")) for driver in drivers] == [True, False]  # type: ignore[misc]


def test_each_rule_has_a_count_of_its_own_even_when_two_are_alike(bench: Bench) -> None:
    driver = bench.host()
    bench.order(fail(times=1), fail(times=1))
    assert [fails(lambda: driver.list("n")) for _ in range(3)] == [True, True, False]


def test_writing_the_file_anew_starts_the_counts_anew(bench: Bench) -> None:
    driver = bench.host()
    for _ in range(3):
        bench.order(fail(times=1))
        assert [fails(lambda: driver.list("n")) for _ in range(2)] == [True, False]


def strikes(root: Path, number: int) -> int:
    """How many of 50 calls of one host fail."""
    name = f"host-{number}"
    driver = FakeDriver(
        RealRuntime(), name, ["n"], str(root / "hypervisor" / name), str(root / "faults.json")
    )
    return sum(fails(lambda: driver.list("n")) for _ in range(50))


def exit_with_strikes(root: Path, number: int) -> None:
    """The same in a process of its own, whose exit code is the answer."""
    sys.exit(strikes(root, number))


def test_calls_at_once_in_threads_and_processes_are_counted_exactly(bench: Bench) -> None:
    bench.order(fail(times=33))
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=exit_with_strikes, args=(bench.root, number)) for number in range(3)]
    for process in processes:
        process.start()
    with ThreadPoolExecutor(3) as threads:
        here = sum(threads.map(lambda number: strikes(bench.root, number), range(3, 6)))
    for process in processes:
        process.join(60)
    assert here + sum(process.exitcode or 0 for process in processes) == 33


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "malformed|truncated"),
        ("[", "malformed|truncated"),
        ('{"call": "*"}', "array"),
        ('[{"call": "*"}]', "effect"),
        ('[{"call": "*", "effect": "explode"}]', "explode"),
        ('[{"call": "spawm", "effect": "fail"}]', "no call 'spawm'"),
        ('[{"call": "*", "effect": "fail", "tmies": 1}]', "tmies"),
        ('[{"call": "*", "effect": "delay", "seconds": -1}]', "seconds"),
        ('[{"call": "*", "effect": "fail", "times": -1}]', "times"),
        ('[{"call": "*", "effect": "fail", "when": "during"}]', "during"),
    ],
)
def test_a_file_that_cannot_be_understood_fails_the_call_and_is_logged(
    bench: Bench, caplog: pytest.LogCaptureFixture, content: str, why: str
) -> None:
    driver = bench.host()
    bench.file.write_text(content)
    with caplog.at_level(logging.ERROR), pytest.raises(DriverError, match=why) as error:
        driver.list("n")
    assert error.value.code == "fault-file"
    assert str(bench.file) in caplog.text
    bench.order()
    assert driver.list("n")


def test_a_file_that_is_just_being_written_is_waited_for(bench: Bench) -> None:
    class Writing(Clock):
        def sleep(self, seconds: float) -> None:
            bench.order(fail(call="list"))

    bench.host()
    driver = FakeDriver(
        Writing(), "host-1", ["n"], str(bench.root / "hypervisor" / "host-1"), str(bench.file)
    )
    bench.file.write_text('[{"call": "li')
    assert fails(lambda: driver.list("n"))


def test_a_file_rewritten_in_place_within_one_tick_of_the_clock_is_seen(bench: Bench) -> None:
    driver = bench.host()
    bench.order()
    tick = bench.file.stat().st_mtime_ns
    for call in ("list", "spawn", "pause"):
        bench.file.write_text(json.dumps([fail(call=call)]).ljust(100))
        os.utime(bench.file, ns=(tick, tick))
        assert fails(lambda: driver.list("n")) == (call == "list")
