"""Live migration: the guest goes on; abort, force, and what may come between."""

from __future__ import annotations

import json
from typing import Literal

import pytest

from pinfold.db import moves
from pinfold.model import errors
from pinfold.rpcapi.messages import Control
from tests.moves.conftest import MakeTown, on_both
from tests.moves.invariants import check, cpus_of, records
from tests.moves.test_faults import fails, on
from tests.moves.town import P1, P2, P4, Town

RUNS, OFF = 1, 4


@on_both
def test_the_guest_goes_on_elsewhere_on_pins_that_are_chosen_there(town: Town) -> None:
    beside = town.boot(P2, "n2")
    server = town.boot(P2, "n1")
    town.write_disk(server, b"what it wrote")
    town.live_migrate(server, "n2")
    town.pump()
    check(town)
    assert (town.state(server), town.guests(server)) == ("active", {"n2": RUNS})
    assert town.roles(server) == {"current": "n2"}
    assert town.used("n1") == set()
    assert town.read_disk(server, 13) == b"what it wrote"
    pins = {record.instance: cpus_of(record.placement) for record in records(town)}
    assert not pins[beside] & pins[server]
    assert not any("power" in event for event in town.events[-6:])


def test_a_stopped_server_is_not_moved_live(town: Town) -> None:
    server = town.boot(P2, stopped=True)
    with pytest.raises(errors.Conflict, match="must be active or paused"):
        town.live_migrate(server)


def test_a_host_with_another_cpu_is_refused_before_anything_is_moved(make_town: MakeTown) -> None:
    town = make_town(hosts=("n1", "n2"), cpus={"n2": "newer"})
    server = town.boot(P2, "n1")
    before = town.picture()
    town.events.clear()
    town.live_migrate(server)
    town.pump()
    check(town)
    assert town.picture() == before
    fault = town.row(server).fault
    assert fault is not None
    assert fault["message"].endswith(
        f"n2 cannot go on with guest {server}: it runs on fake with CPU fake, and here is fake with CPU newer."
    )
    assert not [event for event in town.events if event.startswith("n1 driver")]


def test_the_next_host_is_tried_after_one_that_cannot_take_it(make_town: MakeTown) -> None:
    town = make_town(cpus={"n2": "newer"})
    server = town.boot(P2, "n1")
    town.boot(P1, "n3")  # so that n2 comes first
    town.live_migrate(server)
    town.pump()
    check(town)
    assert town.guests(server) == {"n3": RUNS}
    assert town.used("n2") == set()


@pytest.mark.parametrize(
    "call", ["n2 conductor.claim", "n2 driver.check_live_migration", "n1 driver.live_migrate"]
)
def test_a_failure_leaves_it_where_it_was_and_running(town: Town, call: str) -> None:
    server = town.boot(P2, "n1")
    before = town.picture()
    if "driver" in call:
        on(town, call, fails)
    else:
        town.fill("n2")
        before = town.picture()
    town.live_migrate(server, "n2")
    town.pump()
    town.at = None
    check(town)
    assert town.picture() == before
    assert town.row(server).fault is not None


@pytest.mark.parametrize("wish", ["abort", "force"])
def test_one_that_takes_long_is_aborted_or_forced_to_its_end(
    town: Town, wish: Literal["abort", "force"]
) -> None:
    server = town.boot(P2, "n1")
    rule = {"call": "live_migrate", "effect": "hang"}
    (town.folder / "faults.json").write_text(json.dumps([rule]))
    town.live_migrate(server, "n2")
    operation = town.operation(server).id

    def wished() -> None:
        town.book.write(lambda session: moves.wish(session, server, operation, wish == "abort"))
        town.box.compute.control("n1", Control(operation, wish))

    on(town, "n1 driver.live_migrate", wished)
    town.pump()
    town.at = None
    check(town)
    assert town.state(server) == "active"
    assert town.guests(server) == ({"n1": RUNS} if wish == "abort" else {"n2": RUNS})
    assert town.operation(server).result == ("failed" if wish == "abort" else "succeeded")


@pytest.mark.parametrize("when", ["before", "after"])
def test_deleted_while_it_is_handed_over_nothing_is_left(town: Town, when: str) -> None:
    server = town.boot(P4, "n1")
    town.live_migrate(server, "n2")
    on(town, "n1 driver.live_migrate", lambda: town.ask("delete", server), when)
    town.pump()
    town.at = None
    town.settle(server)
    check(town)
    assert town.claims() == []
    assert town.guests(server) == {}


def test_nothing_else_takes_it_over_while_it_is_handed_over(town: Town) -> None:
    server = town.boot(P4, "n1")
    town.live_migrate(server, "n2")
    refused: list[str] = []

    def reboot() -> None:
        for kind in ("hard_reboot", "shelve"):
            with pytest.raises(errors.Conflict):
                town.in_place(kind, server) if kind == "hard_reboot" else town.ask(kind, server)
            refused.append(kind)

    on(town, "n1 driver.live_migrate", reboot)
    town.pump()
    town.at = None
    check(town)
    assert refused == ["hard_reboot", "shelve"]
    assert town.guests(server) == {"n2": RUNS}


@on_both
def test_the_source_dies_right_after_it_has_handed_the_guest_over(town: Town) -> None:
    server = town.boot(P4, "n1")
    town.live_migrate(server, "n2")

    def dies() -> None:
        from tests.compute.world import Killed

        town.box.die("n1")
        raise Killed

    on(town, "n1 driver.live_migrate", dies, "after")
    town.pump()
    town.at = None
    town.sweep(server)
    check(town)
    assert (town.state(server), town.guests(server)) == ("active", {"n2": RUNS})
    assert town.roles(server) == {"leftover": "n1", "current": "n2"}
    town.restart("n1")
    check(town)
    assert town.roles(server) == {"current": "n2"}


@on_both
def test_a_guest_does_not_come_where_the_other_end_has_said_that_it_is_not(town: Town) -> None:
    """The source's worker is silent for a while, its hypervisor is not."""
    server = town.boot(P4, "n1")
    town.live_migrate(server, "n2")

    def stalls() -> None:
        town.at = None
        town.kill("n1")
        town.sweep(server)
        assert town.open_kind(server) is None
        assert town.roles(server) == {"current": "n1"}

    on(town, "n1 driver.live_migrate", stalls, "before")
    town.pump()
    check(town)
    assert town.guests(server) == {"n1": RUNS}
    town.restart("n1")
    town.live_migrate(server, "n2")
    town.pump()
    check(town)
    assert (town.roles(server), town.guests(server)) == ({"current": "n2"}, {"n2": RUNS})
