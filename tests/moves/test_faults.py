"""Faults that were reported of other systems' moves: each as a test that names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.compute.jobs import Key
from pinfold.compute.operations import PLANS
from pinfold.compute.operations.runner import Runner
from pinfold.db import aggregates, quotas
from pinfold.rpcapi import wire
from pinfold.virt.driver import DriverError
from tests.compute.world import Killed
from tests.moves.conftest import MakeTown, on_both
from tests.moves.invariants import check, cpus_of, records
from tests.moves.town import CONTEXT, P1, P2, P4, P6, Town, demand

RUNS, OFF = 1, 4


def on(town: Town, wanted: str, act: Callable[[], None], when: str = "before", times: int = 1) -> None:
    """Do ``act`` at the next ``times`` events of this name."""
    left = times

    def at(number: int, event: str, moment: str) -> None:
        nonlocal left
        if event.endswith(wanted) and moment == when and left:
            left -= 1
            town.at = None
            try:
                act()
            finally:
                town.at = at

    town.at = at


def fails() -> None:
    raise DriverError("no")


def audit(town: Town) -> None:
    for worker in town.workers.values():
        if worker.up:
            worker.reconcile()


def audited(town: Town) -> None:
    """An audit of every host before and after each event, but for those inside the node's lock."""

    def at(number: int, event: str, when: str) -> None:
        if "claim" in event:
            return
        town.at = None
        for worker in town.workers.values():
            worker.audit.look(worker.nodes[0])
            assert not [text for text in worker.audit.differences[worker.nodes[0]] if text.kind == "tracker"]
        check(town)
        town.at = at

    town.at = at


def test_f009_pins_are_those_of_the_destinations_claim(town: Town) -> None:
    other = town.boot(P2, "n2")
    server = town.boot(P2, "n1")
    town.migrate(server, "n2")
    town.pump()
    pins = {record.instance: cpus_of(record.placement) for record in records(town) if record.node == "n2"}
    assert not pins[other] & pins[server]
    assert town.used("n2") == pins[other] | pins[server]
    town.confirm(server)
    town.pump()
    check(town)
    assert town.used("n1") == set()


def test_f010_f013_an_audit_counts_both_ends_at_every_moment(town: Town) -> None:
    server, beside = town.boot(P2, "n1"), town.boot(P2, "n2")
    sizes: list[tuple[int, int]] = []
    town.resize(server, P4)
    town.box.compute.work.clear()
    town.sweep(server)
    town.revert(server)
    town.pump()
    town.migrate(server, "n2")

    def at(number: int, event: str, when: str) -> None:
        if "claim" not in event:
            town.at = None
            audit(town)
            sizes.append((len(town.used("n1")), len(town.used("n2"))))
            town.at = at

    town.at = at
    town.pump()
    town.at = None
    assert set(sizes) == {(2, 4)}
    check(town)
    assert town.state(server) == "resized"
    assert town.roles(beside) == {"current": "n2"}


@pytest.mark.parametrize("end", ["confirm", "revert"])
def test_f011_f012_the_old_pins_are_held_to_the_end_whatever_audit_comes_between(
    town: Town, end: str
) -> None:
    server, beside = town.boot(P4, "n1"), town.boot(P2, "n1")
    old = town.used("n1")
    town.migrate(server, "n2")
    audited(town)
    town.pump()
    assert town.used("n1") == old
    getattr(town, end)(server)
    town.pump()
    town.at = None
    check(town)
    assert town.state(server) == "active"
    assert (town.used("n1") == old) == (end == "revert")
    assert len(town.used("n1")) == (6 if end == "revert" else 2)
    assert town.roles(beside) == {"current": "n1"}


def test_f028_a_restart_of_the_source_keeps_the_old_guest_and_does_not_start_it(town: Town) -> None:
    server = town.boot(P2, "n1")
    old = town.used("n1")
    town.migrate(server, "n2")
    town.pump()
    town.kill("n1")
    town.restart("n1")
    audit(town)
    check(town)
    assert town.guests(server) == {"n1": OFF, "n2": RUNS}
    assert town.used("n1") == old
    town.revert(server)
    town.pump()
    check(town)
    assert (town.state(server), town.guests(server)) == ("active", {"n1": RUNS})
    assert town.used("n2") == set()


@pytest.mark.parametrize(("end", "left"), [("confirm", 4), ("revert", 2)])
def test_f037_right_after_it_with_no_audit_only_one_size_is_counted(
    make_town: MakeTown, end: str, left: int
) -> None:
    town = make_town(hosts=("n1",), allow_resize_to_same_host=True)
    server = town.boot(P2)
    town.resize(server, P4)
    town.pump()
    getattr(town, end)(server)
    town.pump()
    assert len(town.used("n1")) == left
    view = town.box.view("n1")
    assert [claim.memory_mb for claim in view.claims] == [512]


def test_f062_the_host_is_that_of_the_guest_also_when_a_late_step_fails(town: Town) -> None:
    server = town.boot(P2, "n1")
    town.migrate(server, "n2")
    town.pump()
    on(town, "driver.power_on", fails)
    town.revert(server)
    town.pump()
    town.at = None
    assert town.place(server) == ("n1", "n1")
    assert list(town.guests(server)) == ["n1"]
    assert town.row(server).fault is not None
    town.settle(server)
    assert (town.state(server), town.guests(server)) in (("stopped", {"n1": OFF}), ("active", {"n1": RUNS}))
    check(town)


def test_f063_what_one_move_asked_for_is_not_kept(make_town: MakeTown) -> None:
    town = make_town(hosts=("n1", "n2"))
    server = town.boot(P4, "n1")
    town.migrate(server)
    town.pump()
    town.confirm(server)
    town.pump()
    town.ask("shelve", server)
    town.pump()
    full = [town.boot(P6, "n2") for _ in range(2)]
    town.ask("unshelve", server)
    town.pump()
    assert town.place(server)[0] == "n1"
    assert town.row(server).hints == {}
    assert full


def test_f064_what_is_scheduled_is_the_present_size(make_town: MakeTown) -> None:
    town = make_town(hosts=("n1", "n2"))
    server = town.boot(P4, "n1")
    town.resize(server, P1)
    town.pump()
    town.confirm(server)
    town.pump()
    town.ask("shelve", server)
    town.pump()
    filled = [town.boot(P6, "n1"), town.boot(P6, "n1"), town.boot(P6, "n2"), town.boot(P6, "n2")]
    town.ask("unshelve", server)
    town.pump()
    assert town.state(server) == "active"
    assert sum(len(town.used(node)) for node in ("n1", "n2")) == 24 + 1
    assert filled


def test_f064_a_revert_puts_the_size_back_that_is_scheduled(make_town: MakeTown) -> None:
    """And nothing of the larger one is asked for by the unshelve."""
    town = make_town(hosts=("n1", "n2"))
    server = town.boot(P1, "n1")
    town.resize(server, P4)
    town.pump()
    town.revert(server)
    town.pump()
    town.ask("shelve", server)
    town.pump()
    for node in ("n1", "n1", "n2", "n2"):
        town.boot(P6, node)
    town.ask("unshelve", server)
    town.pump()
    assert town.state(server) == "active"
    assert sum(len(town.used(node)) for node in ("n1", "n2")) == 24 + 1


def test_f065_no_worker_is_asked_anything_by_another(town: Town) -> None:
    """A returning worker asks the conductor only, and is done although its server is being evacuated."""
    server = town.boot(P4, "n1")
    town.power_cut("n1")
    town.evacuate(server, "n2")
    town.events.clear()
    town.restart("n1")
    assert {event.split(".")[0].split()[1] for event in town.events if event.startswith("n1")} <= {
        "conductor"
    }
    town.pump()
    check(town)


def test_f070_a_confirm_that_fails_frees_the_source_all_the_same(town: Town) -> None:
    server = town.boot(P4, "n1")
    town.migrate(server, "n2")
    town.pump()
    moved = town.operation(server).id
    on(town, "driver.confirm_migration", fails)
    town.confirm(server)
    town.pump()
    town.at = None
    check(town)
    assert town.used("n1") == set()
    assert len(town.used("n2")) == 4
    assert (town.state(server), town.place(server)[0]) == ("active", "n2")
    assert town.outcome(moved) == "error"
    town.ask("delete", server)
    town.pump()
    assert town.used("n2") == set()


@pytest.mark.parametrize("call", ["migrate_disk", "finish_migration"])
def test_f071_a_step_that_fails_is_taken_back_on_both_ends(town: Town, call: str) -> None:
    server = town.boot(P4, "n1")
    before = town.picture()
    on(town, f"driver.{call}", fails)
    town.resize(server, P6)
    town.pump()
    town.at = None
    check(town)
    assert town.picture() == before
    assert town.row(server).fault is not None
    town.ask("delete", server)
    town.pump()
    assert not any(town.used(node) for node in ("n1", "n2", "n3"))


@on_both
def test_f072_a_refusing_host_holds_nothing_when_the_next_is_tried(town: Town) -> None:
    server = town.boot(P2, "n1")
    refusing: list[str] = []

    def at(number: int, event: str, when: str) -> None:
        host, call = event.split()
        if call == "conductor.claim" and when == "before" and not refusing:
            # others have come first: the fresh view that it gets has no room
            refusing.append(host)
            town.at = None
            town.fill(host)
            town.at = at

    town.resize(server, P4)
    town.at = at
    town.pump()
    town.at = None
    check(town)
    assert town.state(server) == "resized", town.row(server).fault
    third = town.roles(server)["current"]
    assert third not in ("n1", *refusing)
    assert len(town.used(third)) == 4
    assert len(town.used("n1")) == 2
    town.confirm(server)
    town.pump()
    assert town.used("n1") == set()


@pytest.mark.parametrize(
    "event", ["n2 conductor.claim", "n1 driver.migrate_disk", "n2 driver.finish_migration"]
)
@pytest.mark.parametrize("fate", ["fails", "goes on"])
def test_f075_a_server_deleted_during_a_move_leaves_nothing(town: Town, event: str, fate: str) -> None:
    server = town.boot(P4, "n1")

    def deleted() -> None:
        town.ask("delete", server)
        if fate == "fails":
            raise wire.CallTimeout("no reply") if "conductor" in event else DriverError("no")

    town.migrate(server, "n2")
    on(town, event, deleted, "after")
    town.pump()
    town.at = None
    town.settle(server)
    check(town)
    assert town.claims() == []
    assert town.guests(server) == {}
    assert [image.id for image in town.images.list()] == [town.image]


def test_f079_a_lost_reply_before_anything_was_changed_changes_nothing(make_town: MakeTown) -> None:
    town = make_town(hosts=("n1", "n2"))
    server = town.boot(P4, "n1")
    before = town.picture()

    def lost() -> None:
        raise wire.CallTimeout("no reply")

    on(town, "n2 conductor.claim", lost, times=100)
    town.patience = 0.2
    town.migrate(server)
    town.settle(server)
    town.at = None
    town.settle(server)
    check(town)
    assert town.picture() == before
    assert town.operation(server).result == "failed"


def test_f085_after_a_refused_claim_the_next_one_starts_clean(make_town: MakeTown) -> None:
    town = make_town(hosts=("n1", "n2"))
    server = town.boot(P2, "n1")
    on(town, "driver.finish_migration", fails)
    town.migrate(server)
    town.pump()
    town.at = None
    assert town.used("n2") == set()
    town.migrate(server)
    town.pump()
    check(town)
    assert town.state(server) == "resized"
    assert len(town.used("n2")) == 2


def test_f088_a_delete_ends_the_copy_of_a_disk(town: Town) -> None:
    server = town.boot(P4, "n1")
    town.migrate(server, "n2")
    worker = town.workers["n1"]
    town.deliver(town.box.compute.work.pop(0))
    work = town.box.compute.work.pop(0)
    assert work.leg == "send"
    copied: list[str] = []

    def deleted() -> None:
        town.ask("delete", server)
        town.box.sweeper.outbox()
        there = town.box.compute.work[-1]
        worker.tools.jobs.refuse_others(server, Key(there.operation, there.attempt, there.node))

    on(town, "driver.migrate_disk", deleted, "after")
    on_store = worker.watch
    on_store.on("store.upload", "before", lambda: copied.append("uploaded"))
    done = worker.tools.runtime.event()

    def run() -> None:
        Runner(worker.tools, PLANS).run(CONTEXT, work, worker.tools.runtime.monotonic() + 10)
        done.set()

    worker.tools.jobs.submit(server, run, key=Key(work.operation, work.attempt, work.node), seconds=10)
    assert done.wait(10)
    town.at = None
    assert copied == []
    town.settle(server)
    check(town)
    assert town.claims() == []
    assert [image.id for image in town.images.list()] == [town.image]


def test_f039_a_conductor_killed_at_any_statement_leaves_claims_and_free_cpus_that_add_up(
    make_town: MakeTown,
) -> None:
    """Of a create and of a delete: each transaction is there or it is not."""
    town = make_town(hosts=("n1",))
    numbers: list[int] = []

    def counted(number: int) -> None:
        server = town.box.ask_create(demand(P4), image=town.image)
        for request in (None, "delete"):
            if request is not None:
                town.ask(request, server)
            with killed_at_statement(town, number) as seen:
                town.pump()
            numbers.append(seen())
            town.restart_dead()
            town.settle(server)
            check(town)
        assert town.used("n1") == set()

    counted(-1)
    for number in range(max(numbers)):
        counted(number)
    for size in (P6, P6, P2):
        assert town.state(town.boot(size)) == "active"


@contextmanager
def killed_at_statement(town: Town, number: int) -> Iterator[Callable[[], int]]:
    """Whoever sends the so-manieth statement to the database dies; how many were sent."""
    count = 0

    def before(*_: object) -> None:
        nonlocal count
        count += 1
        if count - 1 == number:
            raise Killed

    sa.event.listen(town.book.engine, "before_cursor_execute", before)
    try:
        yield lambda: count
    finally:
        sa.event.remove(town.book.engine, "before_cursor_execute", before)


def test_f078_a_create_that_every_host_fails_ends_in_error_and_holds_nothing(make_town: MakeTown) -> None:
    town = make_town(hosts=("n1", "n2"), max_attempts=2)
    on(town, "driver.spawn", fails, times=2)
    server = town.box.ask_create(demand(P4), image=town.image)
    town.pump()
    town.at = None
    check(town)
    row = town.row(server)
    assert (row.vm_state, town.open_kind(server)) == ("error", None)
    assert row.fault is not None
    assert "tried on 2 hosts" in row.fault["message"]
    assert town.claims() == []


@on_both
def test_f081_a_delete_cut_short_after_the_guest_is_gone_gives_everything_back(town: Town) -> None:
    server = town.boot(P4, "n1")

    def dies() -> None:
        raise Killed

    on(town, "n1 driver.destroy", dies, "after")
    town.ask("delete", server)
    town.pump()
    town.at = None
    assert len(town.used("n1")) == 4
    town.restart("n1")
    town.settle(server)
    check(town)
    assert town.row(server).deleted_at is not None
    assert town.used("n1") == set()
    used = town.book.read(lambda session: quotas.used_by_servers(session, "project")).project
    assert not any(used.values())
    assert [town.state(town.boot(P6, "n1")) for _ in range(2)] == ["active", "active"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_f087_a_claim_that_was_not_answered_at_first_is_in_book_and_tracker_alike(
    town: Town, when: str
) -> None:
    def lost() -> None:
        raise wire.CallTimeout("no reply")

    on(town, "n1 conductor.claim", lost, when)
    town.boot(P4, "n1")
    town.at = None
    check(town)
    assert len(town.used("n1")) == 4
    audit(town)
    assert not [
        found for worker in town.workers.values() for found in worker.audit.differences.values() if found
    ]


@pytest.mark.parametrize("kind", ["unshelve", "evacuate", "migrate"])
def test_f103_a_server_is_placed_in_its_own_zone_only(make_town: MakeTown, kind: str) -> None:
    """There are no cells here: an availability zone is the partition that a server belongs to."""
    town = make_town(hosts=("n1", "n2", "n3"))
    for zone, hosts in (("a", ("n1", "n2")), ("b", ("n3",))):
        town.book.write(lambda session, zone=zone, hosts=hosts: _zone(session, zone, hosts))  # type: ignore[misc]
    server = town.boot(P4, "n1")
    town.pin_to_zone(server, "a")
    if kind == "unshelve":
        town.ask("shelve", server)
        town.pump()
        town.fill("n1")
    elif kind == "evacuate":
        town.power_cut("n1")
    town.fill("n2")
    before = town.picture()
    town.ask(kind, server) if kind == "unshelve" else getattr(town, kind)(server)
    town.pump()
    check(town)
    assert town.picture() == before
    assert town.used("n3") == set()
    fault = town.row(server).fault
    assert fault is not None
    assert "is not in its availability zone" in fault["message"]


def _zone(session: Session, zone: str, hosts: tuple[str, ...]) -> None:
    aggregate = aggregates.add(session, zone, zone, zone)
    for host in hosts:
        aggregates.add_host(session, aggregate.id, host)
