"""Resize and cold migration: what is where after each step, and after anything that fails."""

from __future__ import annotations

import pytest

from pinfold.model import errors
from tests.moves.conftest import MakeTown, on_both
from tests.moves.invariants import check
from tests.moves.town import P1, P2, P4, S2, Town, flavor

RUNS, OFF = 1, 4


@on_both
def test_a_resized_server_runs_elsewhere_with_its_disk_and_keeps_its_old_place(town: Town) -> None:
    server = town.boot(P2)
    old = town.used("n1")
    town.write_disk(server, b"what it wrote")
    town.resize(server, P4)
    town.pump()
    check(town)
    assert town.state(server) == "resized"
    target = town.roles(server)["current"]
    assert target != "n1"
    assert town.roles(server) == {"outgoing": "n1", "current": target}
    assert town.used("n1") == old
    assert len(town.used(target)) == 4
    assert town.guests(server) == {"n1": OFF, target: RUNS}
    assert town.read_disk(server, 13) == b"what it wrote"
    assert town.row(server).flavor["name"] == "p4"
    assert town.row(server).demand.vcpus == 4
    town.confirm(server)
    town.pump()
    check(town)
    assert town.state(server) == "active"
    assert town.roles(server) == {"current": target}
    assert town.used("n1") == set()
    assert town.guests(server) == {target: RUNS}
    assert town.row(server).moved_from is None
    town.settle(server)
    assert [image.id for image in town.images.list()] == [town.image]


@on_both
def test_a_reverted_server_is_as_it_was(town: Town) -> None:
    server = town.boot(P2)
    before = town.picture()
    town.resize(server, P4)
    town.pump()
    town.write_disk(server, b"lost with the revert")
    town.revert(server)
    town.pump()
    check(town)
    assert town.picture() == before
    assert town.row(server).demand.vcpus == 2


@pytest.mark.parametrize("end", ["confirm", "revert"])
def test_a_server_that_was_stopped_stays_so(town: Town, end: str) -> None:
    server = town.boot(P2, stopped=True)
    town.migrate(server)
    town.pump()
    assert town.state(server) == "resized"
    assert set(town.guests(server).values()) == {OFF}
    getattr(town, end)(server)
    town.pump()
    check(town)
    assert town.state(server) == "stopped"
    assert set(town.guests(server).values()) == {OFF}
    assert town.row(server).power_state == OFF


def test_confirmed_after_its_user_has_shut_it_down_it_is_stopped(town: Town) -> None:
    server = town.boot(P2)
    town.migrate(server)
    town.pump()
    town.workers[town.place(server)[0]].hypervisor.power_off(town.place(server)[1], server)
    for worker in town.workers.values():
        worker.reconcile()
    town.confirm(server)
    town.pump()
    check(town)
    assert town.state(server) == "stopped"


@on_both
def test_a_resize_on_its_own_host_holds_both_places_until_it_is_confirmed(make_town: MakeTown) -> None:
    town = make_town(hosts=("n1",), allow_resize_to_same_host=True)
    server = town.boot(P2)
    old = town.used("n1")
    town.write_disk(server, b"what it wrote")
    town.resize(server, P4)
    town.pump()
    check(town)
    assert town.roles(server) == {"outgoing": "n1", "current": "n1"}
    assert len(town.used("n1")) == 6
    assert town.guests(server) == {"n1": RUNS}
    assert town.read_disk(server, 13) == b"what it wrote"
    town.confirm(server)
    town.pump()
    check(town)
    assert len(town.used("n1")) == 4
    assert not old & town.used("n1")
    assert not list(town.folder.glob("hypervisor/n1/n1/aside/*"))


def test_a_revert_on_its_own_host_brings_the_old_guest_back(make_town: MakeTown) -> None:
    town = make_town(hosts=("n1",), allow_resize_to_same_host=True)
    server = town.boot(P2)
    before = town.picture()
    town.resize(server, P4)
    town.pump()
    town.write_disk(server, b"lost with the revert")
    town.revert(server)
    town.pump()
    check(town)
    assert town.picture() == before


def test_from_shared_to_dedicated_and_back(town: Town) -> None:
    server = town.boot(S2)
    town.resize(server, P4)
    town.pump()
    town.confirm(server)
    town.pump()
    node = town.roles(server)["current"]
    assert len(town.used(node)) == 4
    town.resize(server, S2)
    town.pump()
    town.confirm(server)
    town.pump()
    check(town)
    assert not any(town.used(node) for node in ("n1", "n2", "n3"))


def test_a_smaller_disk_the_same_flavor_and_the_own_host_are_refused(town: Town) -> None:
    server = town.boot(flavor("big", 1, disk=5))
    with pytest.raises(errors.InvalidRequest, match="cannot shrink"):
        town.resize(server, P1)
    with pytest.raises(errors.InvalidRequest, match="must change flavor"):
        town.resize(server, flavor("big", 1, disk=5))
    with pytest.raises(errors.InvalidRequest, match="on host n1 already"):
        town.migrate(server, "n1")


def test_a_flavor_that_was_made_anew_under_its_id_is_another(town: Town) -> None:
    server = town.boot(flavor("big", 1, disk=5))
    town.resize(server, flavor("big", 2, disk=5))
    town.pump()
    assert (town.state(server), town.row(server).flavor["vcpus"]) == ("resized", 2)


@on_both
def test_no_valid_host_leaves_it_as_it_was_with_a_fault(make_town: MakeTown) -> None:
    town = make_town(hosts=("n1",))
    server = town.boot(P2)
    before = town.picture()
    town.resize(server, P4)
    town.pump()
    assert town.picture() == before
    fault = town.row(server).fault
    assert fault is not None
    assert "No valid host was found: of 1 host, 1 is where it is now" in fault["message"]
    assert town.operation(server).refusals


@on_both
def test_it_is_confirmed_by_itself_after_the_window(make_town: MakeTown) -> None:
    """F074: the server and its move change in one transaction, so there is no moment between them."""
    town = make_town(resize_confirm_window=1)
    server = town.boot(P2)
    town.resize(server, P4)
    town.pump()
    assert town.box.sweeper.confirmations() == 0
    town.age_move(server)
    assert town.box.sweeper.confirmations() == 1
    town.pump()
    check(town)
    assert town.state(server) == "active"


def test_what_cannot_be_confirmed_yet_is_said_once_and_done_when_its_host_is_back(
    make_town: MakeTown, caplog: pytest.LogCaptureFixture
) -> None:
    town = make_town(resize_confirm_window=1)
    server = town.boot(P2)
    town.resize(server, P4)
    town.pump()
    town.age_move(server)
    town.power_cut("n1")
    with caplog.at_level("INFO"):
        for _ in range(3):
            town.box.sweeper.confirmations()
    said = [record.getMessage() for record in caplog.records if "left as it is" in record.getMessage()]
    why = "Cannot confirm_resize the server: the compute service of host n1 is down."
    assert said == [f"Server {server} is left as it is for now: {why}"]
    town.restart("n1")
    town.box.sweeper.confirmations()
    town.pump()
    check(town)
    assert town.state(server) == "active"


def test_to_another_numa_shape_and_back(town: Town) -> None:
    two = flavor("two", 4)
    two["extra_specs"] = {**two["extra_specs"], "hw:numa_nodes": "2"}
    server = town.boot(P4)
    assert len(cells_of(town, server)) == 1
    town.resize(server, two)
    town.pump()
    check(town)
    assert len(cells_of(town, server)) == 2
    town.revert(server)
    town.pump()
    check(town)
    assert len(cells_of(town, server)) == 1
    town.resize(server, two)
    town.pump()
    town.confirm(server)
    town.pump()
    check(town)
    assert len(cells_of(town, server)) == 2
    assert len(town.used(town.place(server)[1])) == 4


def cells_of(town: Town, server: str) -> set[int]:
    """The host cells of its current claim."""
    (claim,) = [claim for claim in town.claims() if (claim.instance_id, claim.role) == (server, "current")]
    assert claim.placement is not None
    return {cell.cell for cell in claim.placement.cells}
