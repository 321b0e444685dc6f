"""Servers that were moved, and whose state an admin resets before the move is confirmed or reverted."""

from __future__ import annotations

import pytest

from pinfold.model import errors
from tests.moves.conftest import MakeTown, on_both
from tests.moves.invariants import check
from tests.moves.town import P2, P4, Town

OFF = 4


def moved(town: Town, state: str = "error") -> tuple[str, str]:
    """A server that was resized on n1 and reset to ``state``, and the host where it runs now."""
    server = town.boot(P4)
    town.resize(server, P2)
    town.pump()
    assert town.roles(server)["outgoing"] == "n1"
    town.box.reset(server, state)
    return server, town.place(server)[0]


@pytest.mark.parametrize("kind", ["stop", "hard_reboot", "rebuild"])
def test_f002_while_it_has_two_places_nothing_but_their_end_is_accepted(town: Town, kind: str) -> None:
    server, _ = moved(town)
    before = town.picture()
    with pytest.raises(errors.Conflict, match="holds the place of an earlier move"):
        town.box.ask_rebuild(server) if kind == "rebuild" else town.in_place(kind, server)
    assert town.picture() == before


def test_reset_to_active_it_waits_for_its_confirmation_again(town: Town) -> None:
    server, new = moved(town)
    town.box.reset(server, "active")
    assert town.state(server) == "resized"
    town.confirm(server)
    town.pump()
    check(town)
    assert (town.state(server), town.roles(server)) == ("active", {"current": new})


@pytest.mark.parametrize("state", ["active", "error"])
@pytest.mark.parametrize(("end", "call"), [("confirm", "confirm_migration"), ("revert", "destroy")])
def test_a_move_whose_end_has_removed_a_guest_is_not_reset_to_wait_for_its_end_again(
    town: Town, end: str, call: str, state: str
) -> None:
    """It would be confirmed without its new guest, or reverted without its old one."""
    server = town.boot(P4)
    town.resize(server, P2)
    town.pump()
    refused: list[str] = []

    def at(number: int, event: str, when: str) -> None:
        if event.endswith(f"driver.{call}") and when == "after":
            town.at = None
            with pytest.raises(errors.Conflict, match="wait for its end"):
                town.box.reset(server, state)
            refused.append(event)

    town.at = at
    getattr(town, end)(server)
    town.pump()
    check(town)
    assert len(refused) == 1
    assert (town.state(server), [*town.roles(server)]) == ("active", ["current"])


@on_both
def test_an_evacuation_gives_up_both_places_once_there_is_a_new_guest(town: Town) -> None:
    server, new = moved(town)
    (other,) = {"n1", "n2", "n3"} - {"n1", new}
    town.power_cut(new)
    town.evacuate(server, stops=True)
    town.pump()
    check(town)
    assert town.state(server) == "stopped"
    assert town.roles(server)["current"] == other
    assert town.row(server).moved_from is None
    town.restart(new)
    town.settle(server)
    check(town)
    assert town.roles(server) == {"current": other}
    assert town.guests(server) == {other: OFF}


def test_an_evacuation_that_fails_leaves_both_places(make_town: MakeTown) -> None:
    town = make_town(hosts=("n1", "n2"))
    server, _ = moved(town)
    town.power_cut("n2")
    before = town.picture()
    town.evacuate(server)
    town.pump()
    fault = town.row(server).fault
    assert fault is not None
    assert "1 is where it is now, 1 is down" in fault["message"]
    assert town.picture() == before
    town.box.reset(server, "active")
    town.force_down("n2")
    town.revert(server)
    town.pump()
    check(town)
    assert (town.state(server), town.place(server)[0]) == ("active", "n1")


@on_both
def test_a_move_to_a_host_that_is_fenced_is_reverted_without_it(town: Town) -> None:
    server, new = moved(town, "active")
    town.power_cut(new)
    with pytest.raises(errors.Conflict, match=f"{new} is down"):
        town.revert(server)
    town.force_down(new)
    town.revert(server)
    town.pump()
    check(town)
    assert town.state(server) == "active"
    assert town.roles(server) == {"current": "n1", "leftover": new}
    assert town.row(server).flavor["vcpus"] == 4
    town.force_down(new, down=False)
    town.restart(new)
    town.settle(server)
    check(town)
    assert town.roles(server) == {"current": "n1"}
    assert set(town.guests(server)) == {"n1"}
