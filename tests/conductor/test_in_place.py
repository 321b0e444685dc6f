"""Operations on servers in their places, as the conductor writes them: the claim stays, whatever becomes of them."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from pinfold.db import starts
from pinfold.db.models import Instance
from pinfold.image.store import Image
from pinfold.model import errors, power, states
from pinfold.model.rebuild import holds_both
from pinfold.model.request import Demand, demand_for
from pinfold.model.work import Times
from pinfold.rpcapi.messages import Guests, GuestsRequest, PowerSeen
from tests.conductor.box import WHO, Box, pinned
from tests.conductor.conftest import MakeBox

ENDS = {
    "stop": states.STOPPED,
    "pause": states.PAUSED,
    "suspend": states.SUSPENDED,
    "reboot": states.ACTIVE,
    "hard_reboot": states.ACTIVE,
    "create_image": states.ACTIVE,
}


def two_cells(vcpus: int) -> Demand:
    """Dedicated CPUs in two NUMA cells."""
    specs = {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2"}
    return demand_for(vcpus=vcpus, memory_mb=512, disk_gb=1, extra_specs=specs, image_properties={})


@pytest.mark.parametrize("kind", ENDS)
def test_an_operation_in_place_keeps_the_claim_and_its_generation(box: Box, kind: str) -> None:
    server = box.boot(pinned(4))
    node = box.last.node
    before = box.view(node)
    box.ask(kind, server)
    work = box.do()
    assert (work.kind, work.claim) == (kind, before.claims[0].id)
    assert box.server(server).vm_state == ENDS[kind]
    assert box.operation(server).result == "succeeded"
    assert box.view(node) == before
    box.check()


@pytest.mark.parametrize("kind", ENDS)
def test_one_that_fails_leaves_the_server_as_it_was_with_a_fault(box: Box, kind: str) -> None:
    """F077: and nothing in the way of the next."""
    server = box.boot(pinned(4))
    before = box.view(box.last.node)
    box.ask(kind, server)
    box.begin(box.last, box.operation(server).step or states.KINDS[kind].steps[0].name)
    box.abort(box.last, states.KINDS[kind].steps[0].name, message="The hypervisor said no.")
    row = box.server(server)
    assert (row.vm_state, (row.fault or {})["message"]) == (states.ACTIVE, "The hypervisor said no.")
    assert box.view(box.last.node) == before
    box.ask("delete", server)
    box.do(box.last, 0)
    assert box.server(server).vm_state == states.DELETED


@pytest.mark.parametrize("kind", ENDS)
def test_one_whose_bell_was_lost_is_rung_again(box: Box, kind: str) -> None:
    """F021."""
    server = box.boot(pinned(4))
    box.compute.deaf = {"n1", "n2"}
    box.ask(kind, server)
    box.compute.deaf = set()
    box.age(server)
    box.sweep()
    assert (box.last.kind, box.last.attempt) == (kind, 2)
    box.do()
    assert box.server(server).vm_state == ENDS[kind]


@pytest.mark.parametrize("kind", [*ENDS, "rebuild"])
def test_one_whose_host_died_ends_with_the_server_as_it_was(box: Box, kind: str) -> None:
    server = box.boot(pinned(4))
    before = box.view(box.last.node)
    if kind == "rebuild":
        box.ask_rebuild(server, two_cells(4))
        box.begin(box.last, "prepare")
        assert box.refit(box.last).outcome == "accepted"
    else:
        box.ask(kind, server)
    box.die(box.last.host)
    box.age(server)
    box.sweep()
    row = box.server(server)
    assert row.vm_state == states.ACTIVE
    assert row.fault is not None
    assert box.operation(server).open_key is None
    assert box.view(box.last.node).claims == before.claims
    box.check()


def test_a_late_finish_of_one_that_has_been_given_up_is_refused_and_undone(box: Box) -> None:
    server = box.boot()
    box.ask("stop", server)
    work = box.last
    box.begin(work, "power_off")
    box.age(server, deadline=True)
    box.sweep()
    assert box.server(server).vm_state == states.ACTIVE
    finished = box.finish(work, 4)
    assert (finished.done, finished.undo) == (False, True)
    assert box.server(server).vm_state == states.ACTIVE


def test_a_hard_reboot_takes_over_what_hangs(box: Box) -> None:
    server = box.boot()
    box.ask("pause", server)
    hanging = box.last
    box.begin(hanging, "pause")
    box.ask("hard_reboot", server)
    assert box.last.kind == "hard_reboot"
    assert not box.finish(hanging, 3).done
    box.do(box.last)
    assert box.server(server).vm_state == states.ACTIVE


@pytest.mark.parametrize("kind", ["stop", "create_image", "rebuild", "shelve"])
def test_a_hard_reboot_does_not_take_over_what_has_more_to_lose(box: Box, kind: str) -> None:
    server = box.boot()
    if kind == "rebuild":
        box.ask_rebuild(server)
    else:
        box.ask(kind, server)
    with pytest.raises(errors.Conflict, match="under way"):
        box.ask("hard_reboot", server)


# --- rebuild ------------------------------------------------------------------------------------------


def test_a_rebuild_with_the_same_demands_touches_no_claim_however_often(box: Box) -> None:
    """F033."""
    server = box.boot(pinned(2))
    before = box.view(box.last.node)
    for image in ("one", "two") * 5:
        box.ask_rebuild(server, image=image)
        assert not box.last.refit
        box.do()
        assert box.server(server).image_ref == image
        assert box.view(box.last.node) == before
    box.check()


def test_a_rebuild_that_asks_for_something_else_is_planned_anew_and_holds_both_meanwhile(box: Box) -> None:
    """F033: never more than once, and never less than what runs."""
    server = box.boot(pinned(4))
    node, old = box.last.node, box.used(box.last.node)
    box.ask_rebuild(server, two_cells(4))
    work = box.last
    assert work.refit
    box.begin(work, "prepare")
    refitted = box.refit(work)
    assert refitted.placement is not None
    new = {cpu for cell in refitted.placement.cells for cpu in cell.pins.values()}
    assert {cell.cell for cell in refitted.placement.cells} == {0, 1}
    assert box.used(node) == old | new
    assert len(box.view(node).claims) == 1
    box.begin(work, "rebuild")
    assert box.used(node) == old | new
    box.finish(work)
    assert box.used(node) == new
    assert box.server(server).demand == two_cells(4)
    box.check()


def test_a_refit_that_is_asked_for_again_is_answered_as_before(box: Box) -> None:
    """F023: also for the next attempt, whose worker has planned something else."""
    server = box.boot(pinned(4))
    box.ask_rebuild(server, two_cells(4))
    box.begin(box.last, "prepare")
    first = box.refit(box.last)
    held = box.view(box.last.node)
    assert box.refit(box.last) == first
    box.age(server)
    box.sweep()
    assert box.last.attempt == 2
    assert box.last.placement == first.placement
    assert box.refit(box.last) == first
    assert box.view(box.last.node) == held


def test_a_refit_that_was_planned_on_an_old_view_is_planned_again(box: Box) -> None:
    server = box.boot(pinned(4))
    before = box.view(box.last.node)
    box.ask_rebuild(server, two_cells(4))
    box.begin(box.last, "prepare")
    stale = box.refit(box.last, generation=before.generation - 1)
    assert (stale.outcome, stale.view) == ("stale", before)
    assert box.view(box.last.node) == before


def test_a_refit_is_refused_to_an_attempt_that_is_over(box: Box) -> None:
    server = box.boot(pinned(4))
    before = box.view(box.last.node).claims
    box.ask_rebuild(server, two_cells(4))
    late = box.last
    box.begin(late, "prepare")
    box.ask("delete", server)
    assert box.refit(late).outcome == "refused"
    assert box.view(late.node).claims == before


@pytest.mark.parametrize("how", ["abort", "reset", "delete"])
def test_a_rebuild_that_ends_before_the_disk_is_touched_holds_what_it_held(box: Box, how: str) -> None:
    server = box.boot(pinned(4))
    node, old = box.last.node, box.view(box.last.node).claims
    demand = box.server(server).demand
    box.ask_rebuild(server, two_cells(4), image="other", name="new")
    box.begin(box.last, "prepare")
    box.refit(box.last)
    if how == "abort":
        box.abort(box.last, "prepare", code="image-gone", message="Gone.")
        assert box.server(server).vm_state == states.ACTIVE
    elif how == "reset":
        box.reset(server, "active")
    else:
        box.ask("delete", server)
    assert box.view(node).claims == old
    row = box.server(server)
    assert (row.image_ref, row.name, row.demand) == ("tiny", "a", demand)
    box.check()


def test_a_rebuild_that_fails_in_the_middle_ends_in_error_and_holds_both(box: Box) -> None:
    server = box.boot(pinned(4))
    node, old = box.last.node, box.used(box.last.node)
    box.ask_rebuild(server, two_cells(4), image="other")
    work = box.last
    box.begin(work, "prepare")
    box.refit(work)
    both = box.used(node)
    box.begin(work, "rebuild")
    box.abort(work, "rebuild", message="The disk said no.", clean=False)
    row = box.server(server)
    assert (row.vm_state, row.image_ref) == (states.ERROR, "other")
    assert box.used(node) == both > old
    box.check()
    box.ask_rebuild(server)
    assert box.last.refit
    box.begin(box.last, "prepare")
    box.refit(box.last)
    box.begin(box.last, "rebuild")
    box.finish(box.last)
    assert len(box.used(node)) == 4
    assert not holds_both(box.view(node).claims[0].placement)
    assert box.server(server).vm_state == states.ACTIVE
    box.check()


def test_a_server_in_error_that_holds_both_is_deleted_with_all_of_it(box: Box) -> None:
    server = box.boot(pinned(4))
    node = box.last.node
    box.ask_rebuild(server, two_cells(4))
    box.begin(box.last, "prepare")
    box.refit(box.last)
    box.begin(box.last, "rebuild")
    box.die(node)
    box.age(server)
    box.sweep()
    assert box.server(server).vm_state == states.ERROR
    box.register(node)
    box.ask("delete", server)
    box.do(box.last, 0)
    assert box.used(node) == set()


# --- images -------------------------------------------------------------------------------------------


def test_an_image_that_is_not_complete_goes_with_its_operation(box: Box) -> None:
    """F092."""
    server = box.boot()
    box.ask("create_image", server)
    work = box.last
    box.begin(work, "snapshot")
    now = box.runtime.now()
    box.images.create(Image(work.snapshot or "", "image", "queued", "project", "private", now, now))
    box.age(server, deadline=True)
    box.sweep()
    box.sweep()
    assert box.images.list() == []


def test_an_image_that_is_complete_stays_whatever_becomes_of_its_operation(box: Box) -> None:
    """F092."""
    server = box.boot()
    box.ask("create_image", server)
    work = box.last
    box.begin(work, "snapshot")
    box.make_image(work.snapshot or "")
    box.ask("delete", server)
    box.sweep()
    assert [image.id for image in box.images.list()] == [work.snapshot]


# --- reset-state --------------------------------------------------------------------------------------


def test_a_reset_ends_what_is_open_and_its_worker_is_refused(box: Box) -> None:
    server = box.boot()
    box.ask("shelve", server)
    work = box.last
    box.begin(work, "power_off")
    box.reset(server, "active")
    assert box.server(server).vm_state == states.ACTIVE
    assert box.operation(server).open_key is None
    begun = box.begin(work, "snapshot")
    assert (begun.accepted, begun.undo) == (False, True)


def test_a_reset_releases_no_claim_and_a_half_made_one_is_left_to_its_worker(box: Box) -> None:
    """R1: only the worker, having looked, gives a claim back."""
    server = box.boot(pinned(4))
    box.shelve(server)
    box.ask("unshelve", server)
    work = box.last
    box.claim(work)
    box.reset(server, "active")
    assert box.server(server).vm_state == states.SHELVED_OFFLOADED
    assert box.claims(server) == [("leftover", work.node)]
    assert len(box.used(work.node)) == 4
    assert not box.finish(work).done
    assert box.server(server).vm_state == states.SHELVED_OFFLOADED


def test_a_reset_never_takes_over_a_delete(box: Box) -> None:
    server = box.boot()
    box.ask("delete", server)
    with pytest.raises(errors.Conflict, match="never undone"):
        box.reset(server, "active")
    box.do(box.last, 0)


def test_a_reset_keeps_the_only_copy_of_a_disk(box: Box) -> None:
    """I4: the guest of a shelve past its record may be gone already."""
    server = box.boot()
    box.ask("shelve", server)
    work = box.last
    for step in ("power_off", "snapshot", "record", "destroy"):
        box.begin(work, step)
    box.make_image(work.snapshot or "")
    box.reset(server, "error")
    assert box.server(server).vm_state == states.ERROR
    assert not box.finish(work, 4).done
    box.reset(server, "active")
    assert box.server(server).vm_state == states.SHELVED
    box.sweep()
    assert box.images.get(work.snapshot or "").status == "active"
    box.ask("shelve_offload", server)
    box.do(box.last, 4)
    box.ask("unshelve", server)
    assert box.last.image == work.snapshot


def test_a_reset_to_active_waits_for_a_disk_that_is_being_replaced(box: Box) -> None:
    server = box.boot()
    box.ask_rebuild(server)
    box.begin(box.last, "prepare")
    box.begin(box.last, "rebuild")
    with pytest.raises(errors.Conflict, match="being replaced"):
        box.reset(server, "active")
    box.reset(server, "error")
    assert box.server(server).vm_state == states.ERROR


def test_a_shelve_after_a_reset_lets_go_of_the_image_before(box: Box) -> None:
    """F067: neither is leaked, and the newer stays."""
    server = box.boot()
    old = box.shelve(server)
    box.ask("unshelve", server)
    box.claim(box.last)
    box.finish(box.last)
    box.book.write(
        lambda session: session.execute(
            sa.update(Instance).where(Instance.id == server).values(shelved_image=old)
        )
    )
    new = box.shelve(server)
    box.sweep()
    assert [image.id for image in box.images.list()] == [new]


# --- soft delete --------------------------------------------------------------------------------------


@pytest.fixture
def soft(make_box: MakeBox) -> Box:
    """Deleted servers are kept for a thousand seconds."""
    box = make_box(times=Times(keep_deleted=1000.0))
    box.register("n1")
    box.register("n2")
    return box


def _soft_deleted(box: Box) -> str:
    server = box.boot(pinned(4))
    box.ask("delete", server, soft=True)
    box.do(box.last, 4)
    assert box.server(server).vm_state == states.SOFT_DELETED
    return server


def _age(box: Box, server: str) -> None:
    box.book.write(
        lambda session: session.execute(
            sa.update(Instance).where(Instance.id == server).values(soft_deleted_at=1.0)
        )
    )


def test_a_soft_deleted_server_is_reclaimed_when_its_time_is_over(soft: Box) -> None:
    server = _soft_deleted(soft)
    casts = len(soft.compute.work)
    soft.sweep()
    assert len(soft.compute.work) == casts
    assert len(soft.used(soft.last.node)) == 4
    _age(soft, server)
    soft.sweep()
    assert soft.last.kind == "delete"
    soft.do(soft.last, 0)
    assert soft.server(server).vm_state == states.DELETED
    assert soft.used(soft.last.node) == set()


def test_a_server_that_is_being_restored_is_not_reclaimed(soft: Box) -> None:
    server = _soft_deleted(soft)
    _age(soft, server)
    soft.ask("restore", server)
    soft.sweep()
    assert soft.last.kind == "restore"
    bell = soft.book.write(
        lambda session: starts.reclaim(session, server, WHO, soft.times, operation_id=soft.runtime.new_id())
    )
    assert bell.work == ()
    soft.do(soft.last)
    row = soft.server(server)
    assert (row.vm_state, row.soft_deleted_at, row.deleted_at) == (states.ACTIVE, None, None)


def test_a_second_soft_delete_does_not_put_off_the_end(soft: Box) -> None:
    server = _soft_deleted(soft)
    _age(soft, server)
    soft.ask("delete", server, soft=True)
    soft.do(soft.last, 4)
    assert soft.server(server).soft_deleted_at == 1.0


def test_a_soft_delete_takes_over_and_is_taken_over(soft: Box) -> None:
    server = soft.boot()
    soft.ask("pause", server)
    hanging = soft.last
    soft.begin(hanging, "pause")
    soft.ask("delete", server, soft=True)
    assert soft.last.kind == "soft_delete"
    casts = len(soft.compute.work)
    soft.ask("delete", server, soft=True)
    assert len(soft.compute.work) == casts
    soft.ask("delete", server, force=True)
    assert soft.last.kind == "force_delete"
    soft.do(soft.last, 0)
    assert soft.server(server).vm_state == states.DELETED


def test_a_server_whose_guest_is_going_already_is_not_kept(soft: Box) -> None:
    server = soft.boot()
    soft.ask("shelve", server)
    work = soft.last
    for step in ("power_off", "snapshot", "record"):
        soft.begin(work, step)
    soft.ask("delete", server, soft=True)
    assert soft.last.kind == "delete"


def test_a_shelved_server_that_is_soft_deleted_needs_its_image_no_more(make_box: MakeBox) -> None:
    box = make_box(shelved_offload_time=-1)
    box.register("n1")
    server = box.boot()
    box.shelve(server)
    box.ask("delete", server, soft=True)
    box.do(box.last, 4)
    box.sweep()
    assert box.images.list() == []
    box.ask("restore", server)
    box.do(box.last)
    assert box.server(server).vm_state == states.ACTIVE


# --- what an audit has seen ---------------------------------------------------------------------------


def _seen(box: Box, server: str, power_state: int, **fields: str) -> None:
    node = box.claims(server)[0][1] if box.claims(server) else "n1"
    values = {"vm_state": box.server(server).vm_state, "node": node, "host": node, **fields}
    record = PowerSeen(
        values["host"],
        box.incarnations[values["host"]],
        values["node"],
        server,
        values["vm_state"],
        power_state,
    )
    box.call("power_seen", record, type(None))


def test_a_guest_that_its_user_has_shut_down_becomes_stopped_by_an_operation(box: Box) -> None:
    server = box.boot(pinned(4))
    _seen(box, server, power.SHUTDOWN)
    assert (box.last.kind, box.operation(server).task_state) == ("power_sync", "powering-off")
    assert box.server(server).vm_state == states.ACTIVE
    box.do(box.last, 4)
    assert box.server(server).vm_state == states.STOPPED
    assert len(box.used(box.last.node)) == 4


def test_a_guest_that_a_failed_operation_has_left_off_is_started_by_an_operation(box: Box) -> None:
    server = box.boot()
    box.ask("stop", server)
    box.begin(box.last, "power_off")
    box.abort(box.last, "power_off")
    _seen(box, server, power.SHUTDOWN)
    assert box.last.kind == "power_restore"
    box.do()
    row = box.server(server)
    assert (row.vm_state, row.fault) == (states.ACTIVE, None)


@pytest.mark.parametrize("kind", ["unpause", "resume"])
def test_a_guest_that_a_failed_operation_has_left_running_makes_its_server_active(
    box: Box, kind: str
) -> None:
    server = box.boot()
    box.ask({"unpause": "pause", "resume": "suspend"}[kind], server)
    box.do(box.last, power.PAUSED)
    box.ask(kind, server)
    box.begin(box.last, kind)
    box.abort(box.last, kind)
    _seen(box, server, power.RUNNING)
    assert box.last.kind == "power_restore"
    box.do()
    assert box.server(server).vm_state == states.ACTIVE


def test_the_guest_of_a_shelved_server_that_is_found_running_is_stopped(make_box: MakeBox) -> None:
    """An unshelve has failed after it had started it, and could not take that back."""
    box = make_box(shelved_offload_time=-1)
    box.register("n1")
    server = box.boot()
    box.shelve(server)
    box.ask("unshelve", server)
    box.begin(box.last, "power_on")
    box.abort(box.last, "power_on")
    _seen(box, server, power.RUNNING)
    assert box.last.kind == "power_sync"
    box.do(box.last, power.SHUTDOWN)
    assert box.server(server).vm_state == states.SHELVED


@pytest.mark.parametrize("why", ["open", "moved on", "another node", "a leftover elsewhere", "forced down"])
def test_what_an_audit_has_seen_is_not_followed_when_something_speaks_against_it(box: Box, why: str) -> None:
    server = box.boot(node="n1")
    if why == "open":
        box.ask("pause", server)
    elif why == "a leftover elsewhere":
        box.book.write(
            lambda session: session.execute(
                sa.text("UPDATE claims SET role = 'leftover', slot = NULL WHERE instance_id = :id"),
                {"id": server},
            )
        )
    elif why == "forced down":
        box.die("n1")
    fields = {"moved on": {"vm_state": "stopped"}, "another node": {"node": "n2", "host": "n2"}}.get(why, {})
    casts = len(box.compute.work)
    _seen(box, server, power.SHUTDOWN, **fields)
    assert len(box.compute.work) == casts
    assert box.server(server).vm_state == states.ACTIVE


def test_what_fits_nothing_is_only_noted(box: Box) -> None:
    server = box.boot()
    casts = len(box.compute.work)
    _seen(box, server, power.PAUSED)
    assert len(box.compute.work) == casts
    row = box.server(server)
    assert (row.vm_state, row.power_state) == (states.ACTIVE, power.PAUSED)


def test_a_worker_is_told_of_all_its_servers_in_a_constant_number_of_statements(box: Box) -> None:
    """F114."""
    seen: list[int] = []
    for count in (1, 4):
        while len(box.view("n1").claims) < count:
            box.boot(pinned(1), node="n1")
        statements: list[str] = []

        def note(*arguments: object, into: list[str] = statements) -> None:
            into.append(str(arguments[2]))

        sa.event.listen(box.book.engine, "before_cursor_execute", note)
        told = box.call("guests", GuestsRequest("n1", box.incarnations["n1"], "n1"), Guests)
        sa.event.remove(box.book.engine, "before_cursor_execute", note)
        assert len(told.guests) == count
        seen.append(len(statements))
    assert seen[0] == seen[1]


def test_the_guests_of_a_node_are_told_to_its_present_worker_only(box: Box) -> None:
    with pytest.raises(errors.Conflict):
        box.call("guests", GuestsRequest("n1", "another", "n1"), Guests)
    with pytest.raises(errors.NotFound):
        box.call("guests", GuestsRequest("n1", box.incarnations["n1"], "n2"), Guests)
