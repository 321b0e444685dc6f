"""Whatever dies: the sweeper runs an operation on from its recorded step, or unwinds it."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from pinfold.conductor.scheduler import Place, Proposal
from pinfold.conductor.sweeper import Sweeper
from pinfold.db.models import Operation, Outbox
from pinfold.image.files import FileStore
from pinfold.model import errors, states
from pinfold.rpcapi.messages import Release, Released
from tests.conductor.box import Box, pinned


def test_a_lost_bell_is_rung_again(box: Box) -> None:
    """F021: the message to the conductor never came."""
    box.compute.deaf = {"n1", "n2"}
    server = box.ask_create()
    assert box.compute.work == []
    box.compute.deaf = set()
    box.age(server)
    box.sweep()
    assert box.last.instance == server
    box.claim(box.last)
    box.finish(box.last)
    assert box.server(server).vm_state == states.ACTIVE


def test_an_operation_within_its_lease_is_left_alone(box: Box) -> None:
    box.ask_create()
    box.claim(box.last)
    casts = len(box.compute.work)
    box.sweep()
    assert len(box.compute.work) == casts


def test_a_heartbeat_renews_the_leases_it_names_and_no_others(box: Box) -> None:
    """R13."""
    server = box.ask_create()
    work = box.last
    box.claim(work)
    box.age(server)
    assert box.beat(work.host, work).refused == ()
    assert _lease_left(box, server)
    box.age(server)
    box.beat(work.host)
    assert not _lease_left(box, server)


def _lease_left(box: Box, server: str) -> bool:
    return box.operation(server).lease_until > 1.0


def test_a_heartbeat_learns_which_operations_are_not_its_own_any_more(box: Box) -> None:
    server = box.ask_create()
    work = box.last
    box.claim(work)
    box.ask("delete", server)
    assert box.beat(work.host, work).refused == (work.operation,)


def test_a_worker_that_comes_back_is_given_its_operation_again_with_its_claim(box: Box) -> None:
    """F022: killed after the claim."""
    server = box.ask_create(pinned(4))
    work = box.last
    claimed = box.claim(work)
    box.register(work.host)
    box.sweep()
    again = box.last
    assert (again.operation, again.node) == (work.operation, work.node)
    assert again.attempt > work.attempt
    assert again.claim == claimed.claim
    assert box.claim(again).placement == claimed.placement
    box.finish(again)
    assert box.server(server).vm_state == states.ACTIVE
    assert len(box.used(work.node)) == 4


def test_a_create_whose_host_stays_dead_ends_in_error_with_a_leftover(box: Box) -> None:
    """R1, R9: its guest may still run there, so its CPUs stay taken and no other host is tried."""
    server = box.ask_create(pinned(4))
    work = box.last
    box.claim(work)
    box.die(work.host)
    box.age(server)
    casts = len(box.compute.work)
    box.sweep()
    assert len(box.compute.work) == casts
    assert box.server(server).vm_state == states.ERROR
    assert box.claims(server) == [("leftover", work.node)]
    assert work.host in (box.server(server).fault or {})["message"]


def test_an_unshelve_that_left_a_leftover_cannot_be_tried_until_its_host_has_cleaned_up(box: Box) -> None:
    server = box.boot(pinned(4))
    box.shelve(server)
    box.ask("unshelve", server)
    work = box.last
    claim = box.claim(work).claim or ""
    box.die(work.host)
    box.age(server)
    box.sweep()
    assert box.server(server).vm_state == states.SHELVED_OFFLOADED
    with pytest.raises(errors.Conflict, match=f"host {work.host} may still run"):
        box.ask("unshelve", server)
    box.register(work.host)
    record = Release(work.host, box.incarnations[work.host], work.node, claim)
    assert box.call("release", record, Released).released
    box.ask("unshelve", server)
    box.claim(box.last)
    assert box.finish(box.last).done


def test_an_operation_past_its_deadline_is_unwound_even_while_its_lease_is_renewed(box: Box) -> None:
    """A driver call that does not return: its claim becomes a leftover."""
    server = box.boot(pinned(4))
    box.shelve(server)
    box.ask("unshelve", server)
    work = box.last
    box.claim(work)
    box.age(server, lease=False, deadline=True)
    box.beat(work.host, work)
    box.sweep()
    assert box.server(server).vm_state == states.SHELVED_OFFLOADED
    assert box.claims(server) == [("leftover", work.node)]
    assert not box.finish(work).done


def test_a_shelve_whose_host_died_before_the_image_was_recorded_changes_nothing(box: Box) -> None:
    server = box.boot()
    box.ask("shelve", server)
    work = box.last
    box.begin(work, "power_off")
    box.make_image(work.snapshot or "")
    box.die(work.host)
    box.age(server)
    box.sweep()
    assert box.server(server).vm_state == states.ACTIVE
    assert box.claims(server) == [("current", work.node)]
    box.sweep()
    assert box.images.list() == []


def test_a_shelve_whose_host_died_after_the_image_was_recorded_goes_forward(box: Box) -> None:
    """R4: its disk is in the image; the guest may still be there."""
    server = box.boot(pinned(4))
    box.ask("shelve", server)
    work = box.last
    for step in ("power_off", "snapshot", "record"):
        box.begin(work, step)
    box.make_image(work.snapshot or "")
    box.die(work.host)
    box.age(server)
    box.sweep()
    assert box.server(server).vm_state == states.SHELVED_OFFLOADED
    assert box.server(server).shelved_image == work.snapshot
    assert box.claims(server) == [("leftover", work.node)]


def test_a_shelve_goes_on_from_its_recorded_step(box: Box) -> None:
    """F022: killed after the snapshot."""
    server = box.boot()
    box.ask("shelve", server)
    work = box.last
    for step in ("power_off", "snapshot", "record"):
        box.begin(work, step)
    box.register(work.host)
    box.sweep()
    again = box.last
    assert again.step == "record"
    assert again.snapshot == work.snapshot
    assert box.begin(again, "record").offload
    box.begin(again, "destroy")
    assert box.finish(again, 4).done


def test_a_delete_whose_host_died_is_finished_with_a_leftover(box: Box) -> None:
    server = box.boot()
    box.ask("delete", server)
    work = box.last
    box.begin(work, "destroy")
    box.die(work.host)
    box.age(server)
    box.sweep()
    assert box.server(server).vm_state == states.DELETED
    assert box.claims(server) == [("leftover", work.node)]


def test_a_failing_delete_is_tried_again_and_never_undone(box: Box) -> None:
    """F090."""
    server = box.boot()
    box.ask("delete", server)
    box.begin(box.last, "destroy")
    box.abort(box.last, "destroy", message="The hypervisor is busy.", clean=False)
    assert box.operation(server).task_state == "deleting"
    box.age(server)
    box.sweep()
    assert box.last.attempt == 2
    box.begin(box.last, "destroy")
    box.finish(box.last)
    assert box.server(server).vm_state == states.DELETED


def test_what_is_in_the_outbox_is_done_by_another_conductor_if_one_dies(box: Box) -> None:
    server = box.boot()
    image = box.shelve(server)
    box.ask("delete", server)
    assert box.outbox() == [image]
    assert box.book.write(box.sweeper._take_outbox)
    assert box.outbox() == [image]


def test_a_deed_that_got_the_number_of_one_that_is_done_stays_in_the_outbox(box: Box, tmp_path: Path) -> None:
    """Another conductor has done it meanwhile, and SQLite has given its number to the next."""

    class Slow(FileStore):
        def delete(self, image: str) -> None:
            box.book.write(lambda session: session.execute(sa.update(Outbox).values(subject="the next")))

    server = box.boot()
    box.shelve(server)
    box.ask("delete", server)
    event = box.runtime.event()
    store = Slow(box.runtime, str(tmp_path))
    sweeper = Sweeper(box.book, box.runner, box.compute, store, box.runtime, box.settings, event, event)  # type: ignore[arg-type]
    assert sweeper.outbox() == 1
    assert box.outbox() == ["the next"]


def test_the_image_of_a_shelve_that_failed_is_looked_for_again_when_its_worker_has_stopped(box: Box) -> None:
    """It may have been written after the first look, by a worker that died then."""
    server = box.boot()
    box.ask("shelve", server)
    image = box.last.snapshot
    assert image is not None
    box.begin(box.last, "snapshot")
    box.ask("delete", server)
    box.sweep()
    box.make_image(image)
    assert box.outbox() == [image]
    box.book.write(lambda session: session.execute(sa.update(Outbox).values(due_at=0.0)))
    box.sweep()
    assert box.images.list() == []
    assert box.outbox() == []


def test_two_conductors_that_run_one_operation_cast_it_once(box: Box) -> None:
    server = box.ask_create()
    casts = len(box.compute.work)
    operation = box.operation(server).id
    seen = box.book.read(lambda session: box.runner._look(session, operation))
    assert seen is not None
    box.age(server)
    box.sweep()
    assert len(box.compute.work) == casts + 1
    bell = box.book.write(
        lambda session: box.runner._decide(
            session, operation, seen[0].attempt, Proposal((Place("n1", "n1"),))
        )
    )
    assert bell.work == ()
    assert box.book.read(lambda s: s.scalar(sa.select(sa.func.count()).select_from(Operation))) == 1
