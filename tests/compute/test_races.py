"""Operations that are taken over, end meanwhile, hang, or meet a worker that is cut off."""

from __future__ import annotations

import threading

import pytest

from pinfold.compute.jobs import Key
from pinfold.image.store import ImageNotFound
from pinfold.model import errors, states
from pinfold.model.work import Work
from pinfold.virt.driver import PAUSED, RUNNING, SHUTDOWN, SUSPENDED, DriverError
from tests.compute.books import pinned
from tests.compute.test_jobs import eventually
from tests.compute.world import HOST, NODE, World


def _offloaded(world: World) -> str:
    server = world.boot(world.book.create(pinned(4)))
    world.run(world.book.ask("shelve", server))
    assert world.book.server(server).vm_state == states.SHELVED_OFFLOADED
    return server


class Stuck:
    """An event that does not come back until it is let go."""

    def __init__(self, world: World, event: str, when: str = "before") -> None:
        self.reached = threading.Event()
        self.go = threading.Event()
        world.watch.on(event, when, self._wait)

    def _wait(self) -> None:
        self.reached.set()
        assert self.go.wait(20)


def _fail() -> None:
    raise DriverError("The hypervisor said no.")


def test_a_spawn_that_hangs_past_its_deadline_holds_its_cpus_until_it_returns_and_is_removed(
    world: World,
) -> None:
    """R1: nobody says that the guest is gone but the worker that has looked."""
    server = _offloaded(world)
    work = world.book.ask("unshelve", server)
    stuck = Stuck(world, "driver.spawn")
    thread = world.run_aside(work)
    assert stuck.reached.wait(10)
    world.book.expire(work)
    assert world.book.server(server).vm_state == states.SHELVED_OFFLOADED
    assert [claim.role for claim in world.book.claims(NODE)] == ["leftover"]
    assert len(world.used()) == 4
    stuck.go.set()
    thread.join(10)
    assert world.guests() == {}
    assert world.used() == frozenset()
    assert world.book.server(server).image is not None
    world.check()


def test_a_delete_takes_over_an_unshelve_whose_guest_is_then_removed(world: World) -> None:
    """F017: the delete's own message waits in the server's lane."""
    server = _offloaded(world)
    work = world.book.ask("unshelve", server)
    stuck = Stuck(world, "driver.spawn", "after")
    thread = world.run_aside(work)
    assert stuck.reached.wait(10)
    delete = world.book.ask("delete", server)
    stuck.go.set()
    thread.join(10)
    assert world.guests() == {}
    assert len(world.used()) == 4, "the claim is the delete's now"
    world.run(delete)
    assert world.book.server(server).vm_state == states.DELETED
    assert world.used() == frozenset()
    world.check()


def test_an_older_attempt_inside_the_driver_gives_way_to_the_newer_one(world: World) -> None:
    """R7: the newer adopts the claim, with its pins."""
    server = _offloaded(world)
    work = world.book.ask("unshelve", server)
    stuck = Stuck(world, "driver.spawn", "after")
    thread = world.run_aside(work)
    assert stuck.reached.wait(10)
    before = world.used()
    newer = world.book.again(work)
    stuck.go.set()
    thread.join(10)
    assert world.guests() == {}
    world.run(newer)
    assert world.book.server(server).vm_state == states.ACTIVE
    assert world.used() == before
    world.check()


def test_a_late_message_of_an_old_unshelve_never_touches_the_guest_of_a_newer_one(world: World) -> None:
    """F023: a refused claim removes nothing."""
    server = _offloaded(world)
    old = world.book.ask("unshelve", server)
    world.watch.on("driver.spawn", "before", _fail)
    world.run(old)
    world.run(world.book.ask("unshelve", server))
    before = world.picture()
    world.run(old)
    assert world.picture() == before
    assert world.guests() == {server: RUNNING}


@pytest.mark.parametrize("kind", ["shelve", "unshelve"])
def test_a_message_that_comes_after_the_server_was_deleted_does_nothing(world: World, kind: str) -> None:
    """F023."""
    server = _offloaded(world) if kind == "unshelve" else world.boot(world.book.create(pinned(4)))
    work = world.book.ask(kind, server)
    world.run(work)
    if kind == "unshelve":
        world.run(world.book.ask("delete", server))
    else:
        world.book.delete_locally(server)
    before = world.picture()
    world.run(work)
    assert world.picture() == before
    assert world.guests() == {}
    world.check()


def test_a_shelve_that_was_deleted_under_way_leaves_the_guest_off_and_no_image(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    work = world.book.ask("shelve", server)
    stuck = Stuck(world, "store.upload", "after")
    thread = world.run_aside(work)
    assert stuck.reached.wait(10)
    delete = world.book.ask("delete", server)
    stuck.go.set()
    thread.join(10)
    assert world.guests() == {server: SHUTDOWN}
    world.run(delete)
    assert [image for image, _ in world.picture().images] == ["tiny"]
    world.check()


def test_a_shelve_that_ended_at_its_deadline_runs_again_when_the_snapshot_returns(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    before = world.picture()
    work = world.book.ask("shelve", server)
    stuck = Stuck(world, "driver.snapshot")
    thread = world.run_aside(work)
    assert stuck.reached.wait(10)
    world.book.expire(work)
    stuck.go.set()
    thread.join(10)
    assert world.picture() == before
    world.check()


@pytest.mark.parametrize("how", ["ended", "failed"])
def test_a_shelve_taken_back_late_starts_nothing_on_a_host_that_is_forced_down(
    world: World, how: str
) -> None:
    """R8: it may have been evacuated by now."""
    server = world.boot(world.book.create(pinned(4)))
    work = world.book.ask("shelve", server)
    stuck = Stuck(world, "driver.snapshot")
    if how == "failed":
        world.watch.on("driver.snapshot", "after", _fail)
    thread = world.run_aside(work)
    assert stuck.reached.wait(10)
    world.book.expire(work)
    world.book.force_down(HOST)
    stuck.go.set()
    thread.join(10)
    assert world.guests() == {server: SHUTDOWN}


def test_a_late_message_of_a_shelve_that_failed_starts_nothing(world: World) -> None:
    """F023: the server has been stopped since."""
    server = world.boot(world.book.create(pinned(4)))
    work = world.book.ask("shelve", server)
    world.watch.on("driver.snapshot", "before", _fail)
    world.run(work)
    world.hypervisor.power_off(NODE, server)
    world.book.set_state(server, states.STOPPED)
    world.run(work)
    assert world.guests() == {server: SHUTDOWN}


def test_an_image_that_was_recorded_is_never_taken_back(world: World) -> None:
    """R4: the reply to ``record`` was lost, and a newer attempt has the operation."""
    server = world.boot(world.book.create(pinned(4)))
    work = world.book.ask("shelve", server)
    newer: list[Work] = []

    def swept() -> None:
        newer.append(world.book.again(work))
        raise errors.Unavailable("no reply")

    begun = 0

    def third(number: int, event: str, when: str) -> None:
        nonlocal begun
        if (event, when) == ("conductor.begin", "after"):
            begun += 1
            if begun == 3:
                swept()

    world.watch.at = third
    world.run(work)
    world.watch.at = None
    assert world.book.server(server).vm_state == states.SHELVED
    assert world.guests() == {server: SHUTDOWN}
    assert newer[0].step == "record"
    world.watch.events.clear()
    world.run(newer[0])
    assert "driver.snapshot" not in world.watch.events
    assert world.book.server(server).vm_state == states.SHELVED_OFFLOADED
    assert len(world.picture().images) == 2
    world.check()


def test_a_guest_whose_finish_has_no_answer_is_not_removed(world: World) -> None:
    """R3: not while the line is dead, nor because the worker is fenced meanwhile."""
    server = _offloaded(world)
    work = world.book.ask("unshelve", server)
    world.watch.lose("conductor.finish", "after", times=4)
    world.watch.on("conductor.finish", "after", lambda: setattr(world.fence, "_sent", float("-inf")))
    world.run(work)
    assert world.book.server(server).vm_state == states.ACTIVE
    assert world.guests() == {server: RUNNING}


def test_a_worker_that_stops_while_finish_has_no_answer_leaves_guest_and_claim_to_the_next(
    world: World,
) -> None:
    """R3."""
    server = _offloaded(world)
    work = world.book.ask("unshelve", server)
    world.watch.lose("conductor.finish", "before", times=1000)
    thread = world.run_aside(work)
    eventually(lambda: "conductor.finish" in world.watch.events)
    world.stop.set()
    thread.join(10)
    assert world.guests() == {server: RUNNING}
    assert [claim.role for claim in world.book.claims(NODE)] == ["incoming"]
    world.start_worker()
    assert world.guests() == {server: RUNNING}, "no new incarnation removes an incoming guest"
    world.run(world.book.again(work))
    assert world.book.server(server).vm_state == states.ACTIVE
    world.check()


def test_an_image_that_is_gone_ends_an_unshelve_in_error(world: World) -> None:
    server = _offloaded(world)
    work = world.book.ask("unshelve", server)
    world.images.delete(work.image or "")
    world.run(work)
    seen = world.book.server(server)
    assert seen.vm_state == states.ERROR
    assert "image" in (seen.fault or "")
    assert world.used() == frozenset()
    world.check()


def test_an_image_that_goes_while_it_is_read_is_gone_too(world: World) -> None:
    server = _offloaded(world)
    work = world.book.ask("unshelve", server)
    world.watch.on("store.download", "after", lambda: _raise(ImageNotFound("Its data is gone.")))
    world.run(work)
    assert world.book.server(server).vm_state == states.ERROR
    world.check()


def _raise(error: Exception) -> None:
    raise error


def test_a_store_that_does_not_answer_for_a_moment_is_tried_again(world: World) -> None:
    server = _offloaded(world)
    world.watch.on("store.download", "before", lambda: _raise(errors.Unavailable("no answer")), times=2)
    world.run(world.book.ask("unshelve", server))
    assert world.book.server(server).vm_state == states.ACTIVE
    world.watch.on("store.upload", "after", lambda: _raise(errors.Unavailable("no answer")), times=2)
    world.run(world.book.ask("shelve", server))
    assert world.book.server(server).vm_state == states.SHELVED_OFFLOADED
    world.check()


def test_a_store_that_does_not_answer_at_all_fails_the_unshelve_and_keeps_the_image(world: World) -> None:
    server = _offloaded(world)
    before = world.picture()
    work = world.book.ask("unshelve", server)
    world.watch.on("store.download", "before", lambda: _raise(errors.Unavailable("no answer")), times=1000)
    world.run(work, seconds=0.5)
    assert world.picture() == before
    assert "image" in (world.book.server(server).fault or "")
    world.check()


def test_a_failed_guest_that_cannot_be_removed_leaves_a_leftover_that_the_audit_ends(world: World) -> None:
    """F001: its CPUs are not given to anybody while it may run."""
    server = _offloaded(world)
    world.watch.on("driver.spawn", "after", _fail)
    world.watch.on("driver.destroy", "before", _fail, times=2)
    world.run(world.book.ask("unshelve", server))
    assert world.book.server(server).vm_state == states.SHELVED_OFFLOADED
    assert [claim.role for claim in world.book.claims(NODE)] == ["leftover"]
    assert world.guests() == {server: RUNNING}
    world.reconcile()
    assert world.guests() == {}
    assert world.used() == frozenset()
    world.check()


def test_no_room_is_told_to_the_conductor_and_takes_nothing(world: World) -> None:
    """F012: others were faster after the conductor had chosen this node."""
    late = world.book.create(pinned(4))
    others = {world.boot(world.book.create(pinned(4))) for _ in range(3)}
    before = world.used()
    world.run(late)
    assert world.book.server(late.instance).vm_state == states.ERROR
    assert world.book.server(late.instance).fault is not None
    assert world.used() == before
    assert set(world.guests()) == others
    world.check()


def test_a_delete_whose_guest_cannot_be_removed_in_time_ends_with_a_leftover(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    work = world.book.ask("delete", server)
    world.watch.on("driver.destroy", "before", _fail, times=1000)
    world.run(work, seconds=0.5)
    assert server in world.guests()
    assert len(world.used()) == 4
    world.book.expire(work)
    assert world.book.server(server).vm_state == states.DELETED
    assert len(world.used()) == 4, "its guest may still run"
    world.start_worker()
    assert world.guests() == {}
    assert world.used() == frozenset()
    world.check()


def test_an_offload_past_its_deadline_goes_forward_with_a_leftover(world: World) -> None:
    """R4."""
    server = world.boot(world.book.create(pinned(4)))
    world.watch.on("driver.destroy", "before", _fail, times=1000)
    world.run(world.book.ask("shelve", server), seconds=0.5)
    assert world.book.server(server).vm_state == states.SHELVED_OFFLOADED
    assert [claim.role for claim in world.book.claims(NODE)] == ["leftover"]
    world.start_worker()
    assert world.guests() == {}
    world.check()


@pytest.mark.parametrize(
    ("vm_state", "power_state"),
    [
        (states.ACTIVE, RUNNING),
        (states.STOPPED, SHUTDOWN),
        (states.PAUSED, PAUSED),
        (states.SUSPENDED, SUSPENDED),
    ],
)
def test_a_shelve_that_fails_leaves_the_guest_as_it_was(
    world: World, vm_state: str, power_state: int
) -> None:
    server = world.boot(world.book.create(pinned(4)))
    _bring(world, server, power_state)
    world.book.set_state(server, vm_state)
    before = world.picture()
    world.watch.on("driver.snapshot", "before", _fail)
    world.run(world.book.ask("shelve", server))
    assert world.picture() == before
    stopped = [event for event in world.watch.events if event.startswith("driver.power_off")]
    assert stopped == ["driver.power_off" if vm_state == states.ACTIVE else "driver.power_off at once"]


def _bring(world: World, server: str, power_state: int) -> None:
    change = {
        SHUTDOWN: world.hypervisor.power_off,
        PAUSED: world.hypervisor.pause,
        SUSPENDED: world.hypervisor.suspend,
    }.get(power_state)
    if change is not None:
        change(NODE, server)


def test_a_shelve_without_a_guest_says_so(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    world.hypervisor.destroy(NODE, server)
    world.run(world.book.ask("shelve", server))
    seen = world.book.server(server)
    assert seen.vm_state == states.ACTIVE
    assert "no guest" in (seen.fault or "")
    assert len(world.used()) == 4


def test_what_the_guest_wrote_before_a_shelve_is_there_after_an_unshelve(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    disk = world.folder / "hypervisor" / HOST / NODE / "guests" / server / "disk"
    with open(disk, "r+b") as file:
        file.seek(700_000)
        file.write(b"written by the guest")
    world.run(world.book.ask("shelve", server))
    assert not disk.exists()
    world.run(world.book.ask("unshelve", server))
    with open(disk, "rb") as file:
        file.seek(700_000)
        assert file.read(20) == b"written by the guest"


def test_a_worker_that_is_cut_off_starts_nothing_until_it_is_heard_again(world: World) -> None:
    work = world.book.create(pinned(4))
    world.fence._sent = float("-inf")
    thread = world.run_aside(work)
    eventually(lambda: "conductor.claim" in world.watch.events)
    thread.join(0.2)
    assert thread.is_alive()
    assert "driver.spawn" not in world.watch.events
    world.fence.renewed(world.runtime.monotonic())
    thread.join(10)
    assert world.book.server(work.instance).vm_state == states.ACTIVE
    world.check()


def test_an_incarnation_that_is_over_touches_no_guest_any_more(world: World) -> None:
    """R6: what it was doing is the next one's, who may have spawned the guest anew."""
    work = world.book.create(pinned(4))
    world.watch.on("driver.spawn", "after", lambda: world.fence.end("superseded"))
    world.watch.on("driver.spawn", "after", _fail)
    world.run(work)
    assert world.guests() == {work.instance: RUNNING}
    assert "conductor.abort" not in world.watch.events


def test_work_that_the_conductor_has_given_away_is_not_begun(world: World) -> None:
    """Between its claim and its spawn it hears of it with a heartbeat."""
    work = world.book.create(pinned(4))
    held = threading.Event()

    def run() -> None:
        held.wait(10)
        world.run(work)

    world.jobs.submit(work.instance, run, key=Key(work.operation, work.attempt, work.node), seconds=30)
    world.watch.on("conductor.claim", "after", lambda: world.jobs.refuse([(work.operation, work.attempt)]))
    held.set()
    assert world.jobs.drain(10)
    assert "driver.spawn" not in world.watch.events
    assert world.guests() == {}


def _take(world: World, work: Work) -> None:
    """As a cast is taken: other threads can say that it is refused."""
    key = Key(work.operation, work.attempt, work.node)
    assert world.jobs.submit(work.instance, lambda: world.run(work), key=key, seconds=30)
    assert world.jobs.drain(10)


def test_a_snapshot_that_has_ended_meanwhile_is_left_off_and_leaves_no_image(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    images = {image.id for image in world.images.list()}
    work = world.book.ask("shelve", server)

    def end() -> None:
        world.book.expire(work)
        world.book.outbox()
        world.jobs.refuse([(work.operation, work.attempt)])

    world.watch.on("driver.snapshot", "after", end)
    _take(world, work)
    assert "store.upload" not in world.watch.events
    assert {image.id for image in world.images.list()} == images
    assert world.guests() == {server: RUNNING}


def test_a_snapshot_goes_on_when_the_book_says_that_it_is_still_its_own(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    work = world.book.ask("shelve", server)
    world.watch.on("driver.snapshot", "after", lambda: world.jobs.refuse([(work.operation, work.attempt)]))
    world.watch.lose("conductor.begin", "before")
    _take(world, work)
    assert world.book.server(server).image is not None


def test_a_driver_error_is_told_in_words_and_one_of_ours_is_not(world: World) -> None:
    server = _offloaded(world)
    world.watch.on("driver.spawn", "before", _fail)
    world.run(world.book.ask("unshelve", server))
    assert "The hypervisor said no." in (world.book.server(server).fault or "")
    world.watch.on("driver.spawn", "before", lambda: _raise(KeyError("inner secret")))
    world.run(world.book.ask("unshelve", server))
    assert "inner secret" not in (world.book.server(server).fault or "")
