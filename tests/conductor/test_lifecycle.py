"""Create, shelve, offload, unshelve and delete, as the conductor writes them."""

from __future__ import annotations

import pytest

from pinfold.image.store import ImageNotFound
from pinfold.model import errors, states
from tests.conductor.box import Box, pinned
from tests.conductor.conftest import MakeBox


def test_a_new_server_shows_scheduling_until_it_is_claimed_and_spawning_until_it_runs(box: Box) -> None:
    server = box.ask_create()
    assert (box.server(server).vm_state, box.operation(server).task_state) == ("building", "scheduling")
    box.claim(box.last)
    assert (box.server(server).vm_state, box.operation(server).task_state) == ("building", "spawning")
    box.finish(box.last)
    assert (box.server(server).vm_state, box.operation(server).task_state) == ("active", None)


def test_a_claim_holds_its_cpus_from_its_commit_on(box: Box) -> None:
    server = box.ask_create(pinned(4))
    assert box.used(box.last.node) == set()
    box.claim(box.last)
    assert len(box.used(box.last.node)) == 4
    assert box.claims(server) == [("incoming", box.last.node)]
    box.finish(box.last)
    assert box.claims(server) == [("current", box.last.node)]


def test_founding_fact_1_usage_is_dropped_at_once_on_offload(box: Box) -> None:
    """F002: the transaction that says SHELVED_OFFLOADED is the one that frees the CPUs."""
    server = box.boot(pinned(4))
    node = box.last.node
    box.shelve(server)
    assert box.server(server).vm_state == states.SHELVED_OFFLOADED
    assert box.used(node) == set()
    assert box.claims(server) == []


def test_founding_fact_2_an_abort_clears_host_node_and_numa_data(box: Box) -> None:
    """F001: they are the claim, and the abort deletes the claim."""
    server = box.boot(pinned(4))
    box.shelve(server)
    box.ask("unshelve", server)
    for _host in range(2):
        work = box.last
        box.claim(work)
        box.abort(work)
    assert box.claims(server) == []
    assert box.used("n1") == box.used("n2") == set()
    assert box.server(server).vm_state == states.SHELVED_OFFLOADED
    assert box.operation(server).open_key is None
    box.check()


def test_founding_fact_3_an_unshelving_servers_claim_is_never_taken_for_an_offloaded_ones(box: Box) -> None:
    """F004, F005: its vm_state is still offloaded, and its claim counts all the same."""
    server = box.boot(pinned(4))
    box.shelve(server)
    box.ask("unshelve", server)
    work = box.last
    box.claim(work)
    assert box.server(server).vm_state == states.SHELVED_OFFLOADED
    assert len(box.used(work.node)) == 4
    box.sweep()
    assert len(box.used(work.node)) == 4
    box.finish(work)
    assert len(box.used(work.node)) == 4


def test_founding_fact_4_the_host_is_not_forgotten_before_its_resources_are_freed(box: Box) -> None:
    """F003: until the offload's last write the claim, and with it the host, is there."""
    server = box.boot(pinned(4))
    node = box.last.node
    box.ask("shelve", server)
    work = box.last
    for step in ("power_off", "snapshot", "record", "destroy"):
        box.begin(work, step)
        assert box.claims(server) == [("current", node)]
    finished = box.finish(work, 4)
    assert finished.released is not None
    assert box.claims(server) == []


def test_founding_fact_5_a_failed_unshelve_and_a_delete_free_nothing_twice(box: Box) -> None:
    """F001, F006: the delete is done in the API, without a message, whoever has the CPUs by then."""
    server = box.boot(pinned(4))
    box.shelve(server)
    box.ask("unshelve", server)
    for _host in range(2):
        work = box.last
        box.claim(work)
        box.abort(work)
    other = box.boot(pinned(4), "other")
    held = box.used(box.last.node)
    casts = len(box.compute.work)
    box.ask("delete", server)
    assert len(box.compute.work) == casts
    assert box.server(server).vm_state == states.DELETED
    assert box.used("n1") | box.used("n2") == held
    assert len(box.claims(other)) == 1


def test_a_shelve_keeps_its_place_when_offload_is_off(make_box: MakeBox) -> None:
    box = make_box(shelved_offload_time=-1)
    box.register("n1")
    server = box.boot(pinned(4))
    image = box.shelve(server)
    assert box.server(server).vm_state == states.SHELVED
    assert len(box.used("n1")) == 4
    box.sweep()
    assert box.server(server).vm_state == states.SHELVED
    box.ask("unshelve", server)
    assert box.last.kind == "unshelve_in_place"
    box.begin(box.last, "power_on")
    assert box.operation(server).task_state == "powering-on"
    box.finish(box.last)
    assert box.server(server).vm_state == states.ACTIVE
    box.sweep()
    with pytest.raises(ImageNotFound):
        box.images.get(image)


def test_a_server_shelved_for_long_enough_is_offloaded_by_the_sweeper(make_box: MakeBox) -> None:
    box = make_box(shelved_offload_time=1000)
    box.register("n1")
    server = box.boot(pinned(4))
    box.shelve(server)
    box.sweep()
    assert box.operation(server).kind == "shelve"
    soon = make_box(shelved_offload_time=0.000001)
    soon.incarnations = box.incarnations
    soon.sweep()
    assert soon.last.kind == "shelve_offload"
    soon.begin(soon.last, "destroy")
    soon.finish(soon.last, 4)
    assert box.server(server).vm_state == states.SHELVED_OFFLOADED
    assert box.used("n1") == set()


def test_a_good_unshelve_deletes_the_image_it_started_from_and_no_other(box: Box) -> None:
    """F067."""
    server = box.boot()
    image = box.shelve(server)
    box.make_image("another")
    box.ask("unshelve", server)
    box.claim(box.last)
    assert box.images.get(image).status == "active"
    box.finish(box.last)
    box.sweep()
    assert [kept.id for kept in box.images.list()] == ["another"]
    assert box.outbox() == []


def test_a_delete_of_an_offloaded_server_deletes_its_image(box: Box) -> None:
    """F067."""
    server = box.boot()
    box.shelve(server)
    box.ask("delete", server)
    box.sweep()
    assert box.images.list() == []


def test_an_unshelve_whose_image_is_gone_ends_in_error_without_troubling_a_host(box: Box) -> None:
    """F093."""
    server = box.boot()
    image = box.shelve(server)
    box.images.delete(image)
    casts = len(box.compute.work)
    box.ask("unshelve", server)
    assert len(box.compute.work) == casts
    assert box.server(server).vm_state == states.ERROR
    assert image in (box.server(server).fault or {})["message"]
    assert box.claims(server) == []
    assert box.operation(server).task_state is None


def test_a_failed_unshelve_has_a_fault_that_says_why_and_the_next_good_one_clears_it(box: Box) -> None:
    server = box.boot()
    box.shelve(server)
    box.ask("unshelve", server)
    for _host in range(2):
        box.claim(box.last)
        box.abort(box.last, message="Spawn failed: no such machine type.")
    fault = box.server(server).fault
    assert fault is not None
    assert fault["message"] == (
        "No valid host was found: of 2 hosts, 2 could not start it. "
        "The last error was: Spawn failed: no such machine type."
    )
    box.ask("unshelve", server)
    box.claim(box.last)
    box.finish(box.last)
    assert box.server(server).fault is None


def test_no_valid_host_says_in_one_sentence_how_many_hosts_were_refused_for_what(box: Box) -> None:
    box.boot(pinned(7), name="b", node="n1")
    box.boot(pinned(7), name="c", node="n1")
    box.register("n3")
    box.die("n3")
    server = box.ask_create(pinned(14))
    message = (box.server(server).fault or {})["message"]
    assert message.startswith("No valid host was found: of 3 hosts, ")
    assert "1 is down" in message
    assert box.server(server).vm_state == states.ERROR
    refused = {refusal["node"]: refusal["reasons"] for refusal in box.operation(server).refusals}
    assert refused["n3"][0]["constraint"] == "down"
    assert {reason["cell"] for reason in refused["n1"]} == {0, 1}


def test_a_refused_claim_goes_to_the_next_host_and_costs_no_try(box: Box) -> None:
    server = box.ask_create()
    first = box.last
    box.abort(first, "claim", code="no-fit", message="No room.")
    assert box.last.node != first.node
    assert box.last.attempt > first.attempt
    box.claim(box.last)
    box.finish(box.last)
    assert box.server(server).vm_state == states.ACTIVE


def test_a_server_in_a_wrong_state_is_refused_by_name(box: Box) -> None:
    server = box.boot()
    with pytest.raises(errors.Conflict, match="vm_state is active; it must be shelved"):
        box.ask("shelve_offload", server)
    with pytest.raises(errors.NotFound):
        box.ask("shelve", "no-such-server")


def test_two_requests_at_once_are_one_operation(box: Box) -> None:
    """F025: the second finds the operation of the first open."""
    server = box.boot()
    box.ask("shelve", server)
    with pytest.raises(errors.Conflict, match="operation shelve is under way"):
        box.ask("shelve", server)


def test_actions_on_a_host_that_is_down_are_refused_and_a_delete_leaves_a_leftover(box: Box) -> None:
    """F021."""
    server = box.boot(pinned(4))
    node = box.last.node
    box.die(node)
    with pytest.raises(errors.Conflict, match="is down"):
        box.ask("shelve", server)
    casts = len(box.compute.work)
    box.ask("delete", server)
    assert len(box.compute.work) == casts
    assert box.server(server).vm_state == states.DELETED
    assert box.claims(server) == [("leftover", node)]
    assert len(box.used(node)) == 4


def test_a_delete_that_is_repeated_is_not_sent_again(box: Box) -> None:
    """F089."""
    server = box.boot()
    box.ask("delete", server)
    casts = len(box.compute.work)
    box.ask("delete", server)
    assert len(box.compute.work) == casts
    box.begin(box.last, "destroy")
    box.finish(box.last)
    with pytest.raises(errors.NotFound):
        box.ask("delete", server)
    box.check()
