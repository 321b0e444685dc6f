"""Evacuation from a dead host, and what becomes of what that host has."""

from __future__ import annotations

import pytest

from pinfold.model import errors
from pinfold.virt.driver import DriverError
from tests.compute.world import DISK
from tests.moves.conftest import MakeTown, on_both
from tests.moves.invariants import check
from tests.moves.town import P1, P2, P4, P6, Town

RUNS, OFF = 1, 4


def evacuated(town: Town) -> str:
    """A server whose host lost its power, and which runs elsewhere now."""
    server = town.boot(P4)
    town.power_cut("n1")
    town.evacuate(server)
    town.pump()
    assert town.row(server).fault is None
    assert town.state(server) == "active"
    return server


@on_both
def test_an_evacuated_server_runs_elsewhere_and_its_old_place_is_a_leftover(town: Town) -> None:
    server = evacuated(town)
    check(town)
    roles = town.roles(server)
    assert roles["leftover"] == "n1"
    assert town.guests(server) == {"n1": OFF, roles["current"]: RUNS}
    assert len(town.used("n1")) == 4
    town.restart("n1")
    check(town)
    assert town.roles(server) == {"current": roles["current"]}
    assert town.used("n1") == set()
    assert town.guests(server) == {roles["current"]: RUNS}


def test_a_host_that_is_up_is_not_evacuated(town: Town) -> None:
    server = town.boot(P4)
    with pytest.raises(errors.InvalidRequest, match="is up"):
        town.evacuate(server)
    town.force_down("n1")
    town.evacuate(server)
    town.pump()
    assert town.state(server) == "active"


@pytest.mark.parametrize(("stopped", "stops"), [(True, False), (False, True)])
def test_a_server_may_be_shut_down_after_it(town: Town, stopped: bool, stops: bool) -> None:
    server = town.boot(P2, stopped=stopped)
    town.power_cut("n1")
    town.evacuate(server, stops=stops)
    town.pump()
    assert town.state(server) == "stopped"
    assert set(town.guests(server).values()) == {OFF}
    assert town.row(server).power_state == OFF


def test_f014_evacuated_together_they_get_different_cpus_whatever_audit_comes_between(town: Town) -> None:
    servers = [town.boot(P1) for _ in range(5)]
    town.power_cut("n1")
    for server in servers:
        town.evacuate(server, "n2")
        town.workers["n2"].reconcile()
    while town.box.compute.work:
        town.deliver(town.box.compute.work.pop(0))
        town.workers["n2"].reconcile()
        check(town)
    assert len(town.used("n2")) == 5
    assert {town.state(server) for server in servers} == {"active"}


def test_f015_an_audit_amid_the_evacuation_frees_nothing(town: Town) -> None:
    server = town.boot(P4)
    town.power_cut("n1")
    town.evacuate(server, "n2")

    def at(number: int, event: str, when: str) -> None:
        # at the claim the audit would wait for the node's lock
        if event.startswith("n2 ") and "claim" not in event:
            town.at = None
            town.workers["n2"].audit.look("n2")
            town.at = at
            assert "driver" not in event or len(town.used("n2")) == 4

    town.at = at
    town.pump()
    town.at = None
    check(town)
    assert len(town.used("n2")) == 4


def test_f032_the_host_returns_during_the_evacuation_and_starts_nothing(town: Town) -> None:
    server = town.boot(P4)
    town.power_cut("n1")
    town.evacuate(server, "n2")

    def at(number: int, event: str, when: str) -> None:
        if event == "n2 driver.spawn" and when == "before":
            town.at = None
            town.restart("n1")
            assert town.guests(server) == {"n1": OFF}

    town.at = at
    town.pump()
    check(town)
    assert (town.state(server), town.place(server)[0]) == ("active", "n2")
    town.settle(server)
    assert town.used("n1") == set()
    assert len(town.used("n2")) == 4


@on_both
def test_f083_a_refused_evacuation_leaves_everything_as_it_was_and_can_be_tried_again(
    make_town: MakeTown,
) -> None:
    town = make_town(hosts=("n1", "n2"))
    full = [town.boot(P6, "n2"), town.boot(P6, "n2")]
    server = town.boot(P4)
    town.power_cut("n1")
    before = town.picture()
    town.evacuate(server)
    town.pump()
    assert town.picture() == before
    fault = town.row(server).fault
    assert fault is not None
    assert "No valid host" in fault["message"]
    town.ask("delete", full[0])
    town.pump()
    town.evacuate(server)
    town.pump()
    check(town)
    assert (town.state(server), town.place(server)[0]) == ("active", "n2")


def test_f083_an_operation_that_its_host_died_in_does_not_block_it(town: Town) -> None:
    server = town.boot(P4)
    town.ask("shelve", server)
    town.box.compute.work.clear()
    town.power_cut("n1")
    assert town.open_kind(server) == "shelve"
    town.evacuate(server)
    town.pump()
    check(town)
    assert town.state(server) == "active"


def test_one_that_failed_to_start_there_is_tried_elsewhere(town: Town) -> None:
    server = town.boot(P4)
    town.power_cut("n1")
    failed: list[str] = []

    def at(number: int, event: str, when: str) -> None:
        if event.endswith("driver.spawn") and when == "before" and not failed:
            failed.append(event.split()[0])
            raise DriverError("no")

    town.evacuate(server)
    town.at = at
    town.pump()
    check(town)
    assert town.state(server) == "active"
    assert town.place(server)[0] not in ("n1", *failed)


@on_both
def test_evacuated_again_before_the_first_host_is_back(town: Town) -> None:
    """Only once the operator says that it is fenced: the second host may run the guest, the first one's is off."""
    server = evacuated(town)
    second = town.place(server)[0]
    town.power_cut(second)
    with pytest.raises(errors.Conflict, match="n1 may still run"):
        town.evacuate(server)
    town.force_down("n1")
    town.evacuate(server)
    town.pump()
    check(town)
    third = town.place(server)[0]
    assert third not in ("n1", second)
    town.force_down("n1", False)
    for host in ("n1", second):
        town.restart(host)
    check(town)
    assert town.guests(server) == {third: RUNS}
    assert town.roles(server) == {"current": third}


@pytest.mark.parametrize("kind", ["delete", "shelve"])
def test_what_comes_after_it_is_exact_too(town: Town, kind: str) -> None:
    server = evacuated(town)
    town.ask(kind, server)
    town.settle(server)
    check(town)
    town.restart("n1")
    check(town)
    assert town.guests(server) == {}
    assert town.claims() == []


@on_both
def test_deleted_during_it_nothing_is_left(town: Town) -> None:
    server = town.boot(P4)
    town.power_cut("n1")
    town.evacuate(server, "n2")

    def at(number: int, event: str, when: str) -> None:
        if event == "n2 driver.spawn" and when == "after":
            town.at = None
            town.ask("delete", server)

    town.at = at
    town.settle(server)
    check(town)
    town.restart("n1")
    assert town.claims() == []
    assert town.guests(server) == {}


# --- with its disk on shared storage ---------------------------------------------------------


@pytest.fixture
def sharing(make_town: MakeTown) -> Town:
    """Three hosts on shared storage."""
    return make_town(sharing=("n1", "n2", "n3"))


TEXT = b"what it wrote"


def test_a_disk_on_shared_storage_goes_on_with_its_content(sharing: Town) -> None:
    server = sharing.boot(P4)
    sharing.write_disk(server, TEXT)
    sharing.power_cut("n1")
    sharing.evacuate(server)
    sharing.pump()
    check(sharing)
    assert sharing.read_disk(server, len(TEXT)) == TEXT
    assert sharing.place(server)[0] != "n1"
    # what the dead host has of it ends, and the disk does not
    sharing.restart("n1")
    check(sharing)
    assert sharing.guests(server) == {sharing.place(server)[1]: RUNS}
    assert sharing.read_disk(server, len(TEXT)) == TEXT


def test_one_that_is_to_be_off_is_not_started_on_its_disk(sharing: Town) -> None:
    server = sharing.boot(P2, stopped=True)
    sharing.write_disk(server, TEXT)
    sharing.power_cut("n1")
    sharing.evacuate(server, "n2")
    sharing.pump()
    check(sharing)
    assert (sharing.state(server), sharing.read_disk(server, len(TEXT))) == ("stopped", TEXT)
    console = sharing.disk(server, "n2").with_name("console.log")
    assert not console.exists()


@pytest.mark.parametrize("returns", [False, True], ids=["tried again", "its host is back"])
def test_an_evacuation_that_failed_leaves_the_disk(sharing: Town, returns: bool) -> None:
    server = sharing.boot(P4)
    sharing.write_disk(server, TEXT)
    sharing.power_cut("n1")
    before = sharing.picture()
    for worker in sharing.workers.values():
        worker.watch.on("driver.spawn", "after", lambda: _no(), times=1)
    sharing.evacuate(server)
    sharing.pump()
    check(sharing)
    assert sharing.picture() == before
    assert sharing.row(server).fault is not None
    if returns:
        sharing.restart("n1")
    else:
        sharing.evacuate(server)
        sharing.pump()
    sharing.settle(server)
    check(sharing)
    assert sharing.guests(server)[sharing.place(server)[1]] == RUNS
    assert sharing.read_disk(server, len(TEXT)) == TEXT


def _no() -> None:
    raise DriverError("no")


def test_evacuated_twice_it_still_has_its_disk(sharing: Town) -> None:
    server = sharing.boot(P4)
    sharing.write_disk(server, TEXT)
    for target in ("n2", "n3"):
        source = sharing.place(server)[0]
        sharing.power_cut(source)
        sharing.force_down(source)
        sharing.evacuate(server, target)
        sharing.pump()
        check(sharing)
        assert sharing.read_disk(server, len(TEXT)) == TEXT
    for host in ("n1", "n2"):
        sharing.force_down(host, False)
        sharing.restart(host)
    check(sharing)
    assert sharing.guests(server) == {"n3": RUNS}
    assert sharing.read_disk(server, len(TEXT)) == TEXT


@pytest.mark.parametrize("kind", ["delete", "shelve"])
def test_no_host_keeps_a_disk_of_one_that_was_deleted_or_shelved_since(sharing: Town, kind: str) -> None:
    server = evacuated(sharing)
    sharing.ask(kind, server)
    sharing.settle(server)
    sharing.restart("n1")
    check(sharing)
    assert sharing.claims() == []
    assert not list(sharing.folder.glob("hypervisor/*/*/guests/*"))


@pytest.mark.parametrize(("sharing", "said"), [(("n1", "n2"), False), (("n2",), True), ((), True)])
def test_who_is_wrong_about_the_disk_is_told_so(
    make_town: MakeTown, sharing: tuple[str, ...], said: bool
) -> None:
    town = make_town(hosts=("n1", "n2"), sharing=sharing)
    server = town.boot(P4)
    town.power_cut("n1")
    before = town.picture()
    town.evacuate(server, shared_storage=said)
    town.pump()
    check(town)
    assert town.picture() == before
    fault = town.row(server).fault
    assert fault is not None
    assert "Invalid state of instance files on shared storage" in fault["message"]
    town.evacuate(server, shared_storage=not said)
    town.pump()
    check(town)
    assert town.place(server)[0] == "n2"


def test_a_host_that_shares_nothing_makes_it_from_its_image(make_town: MakeTown) -> None:
    town = make_town(hosts=("n1", "n2"), sharing=("n1",))
    server = town.boot(P4)
    town.write_disk(server, TEXT)
    town.power_cut("n1")
    town.evacuate(server)
    town.pump()
    check(town)
    assert town.read_disk(server, len(TEXT)) == DISK[: len(TEXT)]
