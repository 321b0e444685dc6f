"""Rebuilds and images on a worker: what fails, what is repeated, and what is taken over in the middle."""

from __future__ import annotations

import pytest

from pinfold.image.store import Image, ImageNotFound
from pinfold.model import states
from pinfold.model.rebuild import holds_both
from pinfold.virt.driver import RUNNING, SHUTDOWN, DriverError
from tests.compute.books import SERVER_IMAGE, pinned
from tests.compute.test_races import Stuck
from tests.compute.world import NODE, World

OTHER = "other"


def _fail() -> None:
    raise DriverError("The hypervisor said no.")


def _image(world: World, data: bytes = b"another system") -> str:
    now = world.runtime.now()
    world.images.create(Image(OTHER, "other", "queued", "project", "public", now, now))
    world.images.upload(OTHER, [data])
    return OTHER


def _disk(world: World, server: str) -> bytes:
    return b"".join(world.hypervisor.snapshot(NODE, server))[:14]


def test_a_rebuild_gives_the_guest_the_disk_of_the_image(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    world.run(world.book.rebuild(server, image=_image(world)))
    assert _disk(world, server) == b"another system"
    assert world.guests() == {server: RUNNING}
    world.check()


def test_ten_rebuilds_of_which_some_fail_never_change_what_is_used(world: World) -> None:
    """F033, CVE-2017-17051: and there is room for a p4 and a p2 afterwards."""
    server = world.boot(world.book.create(pinned(2)))
    images = [SERVER_IMAGE, _image(world)]
    used = world.used()
    for number in range(10):
        if number % 3 == 2:
            world.watch.on("driver.rebuild", "before" if number % 2 else "after", _fail)
        world.run(world.book.rebuild(server, image=images[number % 2]))
        assert world.used() == used
        assert len(world.book.claims(NODE)) == 1
    world.boot(world.book.create(pinned(4)))
    world.boot(world.book.create(pinned(2)))
    world.check()


def test_a_rebuild_whose_image_is_gone_leaves_the_old_disk(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    work = world.book.rebuild(server, pinned(4, cells=2), image=_image(world))
    world.images.delete(OTHER)
    before = world.used()
    world.run(work)
    assert world.book.server(server).vm_state == states.ACTIVE
    assert "image other is gone" in (world.book.server(server).fault or "")
    assert world.guests() == {server: RUNNING}
    assert world.used() == before
    world.check()


def test_a_rebuild_for_which_there_is_no_room_leaves_everything_as_it_was(world: World) -> None:
    """Its own CPUs count as free for it, those of others do not."""
    server = world.boot(world.book.create(pinned(4)))
    world.boot(world.book.create(pinned(6)))
    before = world.picture()
    world.run(world.book.rebuild(server, pinned(2, cells=2)))
    row = world.book.server(server)
    assert row.vm_state == states.ACTIVE
    assert "no room" in (row.fault or "")
    assert world.picture().claims == before.claims
    assert world.picture().guests == before.guests
    world.check()


def test_a_rebuild_into_more_cells_may_use_its_own_cpus(world: World) -> None:
    """Six of a cell's seven, and one is free: the server goes over two cells because its own count as free."""
    world.boot(world.book.create(pinned(6)))
    server = world.boot(world.book.create(pinned(6)))
    world.run(world.book.rebuild(server, pinned(2, cells=2)))
    assert world.book.server(server).vm_state == states.ACTIVE
    assert len(world.used()) == 8
    world.check()


def test_a_rebuild_that_fails_in_the_middle_ends_in_error_and_a_second_one_mends_it(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    old = world.used()
    world.watch.on("driver.rebuild", "before", _fail)
    world.run(world.book.rebuild(server, pinned(4, cells=2)))
    row = world.book.server(server)
    assert (row.vm_state, row.open_kind) == (states.ERROR, None)
    assert row.fault is not None
    assert world.used() > old, "nobody can say which guest is there"
    assert world.refused == []
    world.check()
    world.run(world.book.rebuild(server, pinned(4, cells=2)))
    assert world.book.server(server).vm_state == states.ACTIVE
    assert len(world.used()) == 4
    (claim,) = world.book.claims(NODE)
    assert not holds_both(claim.placement)
    world.check()


@pytest.mark.parametrize("kind", ["hard_reboot", "stop"])
def test_what_a_failed_rebuild_left_can_be_used_on_what_it_holds(world: World, kind: str) -> None:
    server = world.boot(world.book.create(pinned(4)))
    world.watch.on("driver.rebuild", "before", _fail)
    world.run(world.book.rebuild(server, pinned(4, cells=2)))
    world.run(world.book.ask(kind, server))
    assert world.guests() == {server: RUNNING if kind == "hard_reboot" else SHUTDOWN}
    assert world.refused == []
    world.run(world.book.ask("delete", server))
    assert world.used() == frozenset()
    world.check()


def test_a_delete_in_the_middle_of_a_rebuild_removes_whichever_guest_there_is(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    work = world.book.rebuild(server, pinned(4, cells=2))
    stuck = Stuck(world, "driver.rebuild")
    thread = world.run_aside(work)
    assert stuck.reached.wait(10)
    delete = world.book.ask("delete", server)
    stuck.go.set()
    thread.join(10)
    world.run(delete)
    assert world.guests() == {}
    assert world.used() == frozenset()
    world.check()


def test_a_stop_that_hangs_past_its_deadline_is_taken_back_when_it_returns(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    work = world.book.ask("stop", server)
    stuck = Stuck(world, "driver.power_off", "after")
    thread = world.run_aside(work)
    assert stuck.reached.wait(10)
    world.book.expire(work)
    assert world.book.server(server).vm_state == states.ACTIVE
    stuck.go.set()
    thread.join(10)
    assert world.guests() == {server: RUNNING}
    world.check()


def test_a_stop_that_is_taken_over_by_a_delete_starts_nothing_again(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    stuck = Stuck(world, "driver.power_off", "after")
    thread = world.run_aside(world.book.ask("stop", server))
    assert stuck.reached.wait(10)
    delete = world.book.ask("delete", server)
    stuck.go.set()
    thread.join(10)
    assert world.guests() == {server: SHUTDOWN}
    world.run(delete)
    assert world.guests() == {}
    world.check()


# --- images -------------------------------------------------------------------------------------------


def test_a_server_deleted_while_its_image_is_saved_leaves_no_image(world: World) -> None:
    """F092: the upload is held, the server deleted, the upload let go."""
    server = world.boot(world.book.create(pinned(4)))
    work = world.book.ask("create_image", server)
    stuck = Stuck(world, "store.upload")
    thread = world.run_aside(work)
    assert stuck.reached.wait(10)
    delete = world.book.ask("delete", server)
    world.book.outbox()
    stuck.go.set()
    thread.join(10)
    world.run(delete)
    world.book.outbox()
    with pytest.raises(ImageNotFound):
        world.images.get(work.snapshot or "")
    assert world.guests() == {}


def test_a_server_deleted_when_its_image_is_complete_leaves_the_image(world: World) -> None:
    """F092: only the worker's last word had not been heard."""
    server = world.boot(world.book.create(pinned(4)))
    work = world.book.ask("create_image", server)
    stuck = Stuck(world, "conductor.finish")
    thread = world.run_aside(work)
    assert stuck.reached.wait(10)
    delete = world.book.ask("delete", server)
    stuck.go.set()
    thread.join(10)
    world.run(delete)
    world.book.outbox()
    assert world.images.get(work.snapshot or "").status == "active"


def test_an_image_that_is_complete_although_the_store_said_no_counts(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    work = world.book.ask("create_image", server)
    world.watch.on("store.upload", "after", _fail)
    world.run(work)
    assert world.book.server(server).fault is None
    assert world.images.get(work.snapshot or "").status == "active"


def test_an_image_that_could_not_be_saved_leaves_the_server_running_and_no_record(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    before = world.picture()
    world.watch.on("store.upload", "before", _fail)
    world.run(world.book.ask("create_image", server))
    row = world.book.server(server)
    assert (row.vm_state, row.open_kind) == (states.ACTIVE, None)
    assert row.fault is not None
    assert world.picture().images == before.images
    assert world.picture().guests == before.guests
