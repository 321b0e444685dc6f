"""Nobody starts the guest of a server again while another of its guests may run elsewhere."""

from __future__ import annotations

import pytest

from pinfold.model import errors
from tests.compute.world import Killed
from tests.moves.invariants import check
from tests.moves.town import P2, Town

RUNS, OFF = 1, 4


def half_moved(town: Town) -> str:
    """A server whose move to n2 failed when the worker there died with the new guest running."""
    server = town.boot(P2)
    town.migrate(server, "n2")

    def at(number: int, event: str, when: str) -> None:
        if event == "n2 driver.finish_migration" and when == "after":
            raise Killed

    town.at = at
    town.pump()
    town.at = None
    town.kill("n2")
    town.settle(server)
    assert town.roles(server) == {"current": "n1", "leftover": "n2"}
    assert town.guests(server) == {"n1": OFF, "n2": RUNS}
    return server


def test_f032_a_server_whose_new_guest_may_run_shows_that_it_is_off(town: Town) -> None:
    server = half_moved(town)
    row = town.row(server)
    assert row.power_state == OFF
    assert row.fault is not None
    assert "stays off until host n2 has said" in row.fault["message"]


@pytest.mark.parametrize("kind", ["reboot", "hard_reboot", "rebuild"])
def test_f032_it_is_started_again_only_when_the_other_host_is_back_or_fenced(town: Town, kind: str) -> None:
    server = half_moved(town)
    with pytest.raises(errors.Conflict, match="host n2 may still run its former guest"):
        town.box.ask_rebuild(server) if kind == "rebuild" else town.in_place(kind, server)
    town.restart("n2")
    town.settle(server)
    check(town)
    assert town.guests(server) == {"n1": RUNS}
    assert town.row(server).power_state == RUNS


def test_f032_nor_after_it_has_been_stopped(town: Town) -> None:
    server = half_moved(town)
    town.in_place("stop", server)
    town.pump()
    with pytest.raises(errors.Conflict, match="host n2 may still run its former guest"):
        town.in_place("start", server)
    town.force_down("n2")
    town.in_place("start", server)
    town.pump()
    assert town.guests(server)["n1"] == RUNS


def test_f032_its_image_starts_nowhere_either(town: Town) -> None:
    server = half_moved(town)
    town.ask("shelve", server)
    town.pump()
    with pytest.raises(errors.Conflict, match="host n2 may still run its former guest"):
        town.ask("unshelve", server)


def test_an_evacuated_server_is_rebooted_while_the_dead_host_is_still_down(town: Town) -> None:
    server = town.boot(P2)
    town.power_cut("n1")
    town.evacuate(server)
    town.pump()
    town.in_place("hard_reboot", server)
    town.pump()
    check(town)
    assert town.state(server) == "active"
