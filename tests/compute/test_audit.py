"""Book and hypervisor compared: what follows from a difference, as the model's audit has it."""

from __future__ import annotations

import logging

import msgspec
import pytest

from pinfold.compute import resume
from pinfold.compute.audit import decide
from pinfold.model import states
from pinfold.model.host import ClaimView
from pinfold.rpcapi.messages import GuestView
from pinfold.virt.driver import CRASHED, PAUSED, RUNNING, SHUTDOWN, SUSPENDED, Guest, GuestSpec
from tests.compute.books import Server, pinned
from tests.compute.world import HOST, NODE, World


def _view(*roles: str, **fields: object) -> GuestView:
    claims = tuple(ClaimView(f"claim-{number}", "a", role, 512, 1, 0) for number, role in enumerate(roles))
    view = GuestView("a", "n1", states.ACTIVE, claims=claims)
    return msgspec.structs.replace(view, **fields)


def _guest(power_state: int) -> Guest:
    return Guest("a", "n1", power_state)


OFF, UP = _guest(SHUTDOWN), _guest(RUNNING)


@pytest.mark.parametrize(
    ("view", "guest", "action"),
    [
        pytest.param(_view(), UP, "destroy", id="no claim"),
        pytest.param(_view(), OFF, "destroy", id="no claim, off"),
        pytest.param(_view(vm_state=states.DELETED), UP, "destroy", id="deleted"),
        pytest.param(_view(), None, "nothing", id="nothing here"),
        pytest.param(_view(vm_state=None), UP, "report", id="never heard of"),
        pytest.param(_view("leftover"), UP, "destroy", id="leftover with a guest"),
        pytest.param(_view("leftover"), None, "release", id="leftover without a guest"),
        pytest.param(_view("leftover", "leftover"), None, "release", id="two leftovers"),
        pytest.param(_view("leftover", open_operation="o"), UP, "destroy", id="leftover, operation open"),
        pytest.param(_view("incoming"), UP, "nothing", id="incoming with a guest"),
        pytest.param(_view("incoming"), OFF, "nothing", id="incoming with a guest that is off"),
        pytest.param(_view("incoming"), None, "nothing", id="incoming without a guest"),
        pytest.param(_view("current"), UP, "nothing", id="all is well"),
        pytest.param(_view("current"), None, "report", id="the guest has vanished"),
        pytest.param(_view("current"), OFF, "tell", id="its user has shut it down"),
        pytest.param(_view("current"), _guest(CRASHED), "tell", id="crashed"),
        pytest.param(_view("current"), _guest(SUSPENDED), "tell", id="suspended behind the book's back"),
        pytest.param(_view("current"), _guest(PAUSED), "report", id="paused behind the book's back"),
        pytest.param(_view("current", power_state=RUNNING), _guest(PAUSED), "tell", id="paused, news"),
        pytest.param(_view("current", power_state=PAUSED), _guest(PAUSED), "report", id="paused, known"),
        pytest.param(_view("current", vm_state=states.STOPPED), OFF, "nothing", id="stopped"),
        pytest.param(_view("current", vm_state=states.STOPPED), UP, "tell", id="stopped, but runs"),
        pytest.param(
            _view("current", vm_state=states.STOPPED, open_operation="o"), UP, "nothing", id="starting"
        ),
        pytest.param(_view("current", vm_state=states.PAUSED), _guest(PAUSED), "nothing", id="paused"),
        pytest.param(_view("current", vm_state=states.PAUSED), OFF, "tell", id="paused, but off"),
        pytest.param(_view("current", vm_state=states.PAUSED), UP, "report", id="paused, but runs"),
        pytest.param(
            _view("current", vm_state=states.SUSPENDED), OFF, "nothing", id="suspended, shown as off"
        ),
        pytest.param(_view("current", vm_state=states.SUSPENDED), UP, "report", id="suspended, but runs"),
        pytest.param(_view("current", vm_state=states.SHELVED), UP, "tell", id="shelved, but runs"),
        pytest.param(_view("current", vm_state=states.SOFT_DELETED), OFF, "nothing", id="soft-deleted"),
        pytest.param(_view("current", vm_state=states.SOFT_DELETED), UP, "tell", id="soft-deleted, but runs"),
        pytest.param(_view("current", vm_state=states.ERROR), UP, "nothing", id="in error, runs"),
        pytest.param(_view("current", vm_state=states.ERROR), OFF, "nothing", id="in error, off"),
        pytest.param(_view("current", vm_state=states.SHELVED), OFF, "nothing", id="shelved"),
        pytest.param(_view("current", open_operation="o"), OFF, "nothing", id="off, operation open"),
        pytest.param(_view("current", forced_down=True), OFF, "nothing", id="off, host forced down"),
        pytest.param(_view("current", other_claims=1), OFF, "nothing", id="off, another claim elsewhere"),
        pytest.param(_view("current", "incoming"), OFF, "nothing", id="off, being resized here"),
        pytest.param(_view("outgoing"), OFF, "nothing", id="outgoing"),
        pytest.param(_view("current", "leftover"), UP, "keep_old", id="claim and a newer leftover"),
    ],
)
def test_what_follows_from_a_difference(view: GuestView, guest: Guest | None, action: str) -> None:
    """R3, R8 of the model; F018, F019."""
    assert decide(view, guest).action == action


@pytest.mark.parametrize(
    ("view", "guest", "action"),
    [
        pytest.param(_view("current"), OFF, "power_on", id="off after a power cut"),
        pytest.param(_view("current"), _guest(CRASHED), "power_on", id="crashed"),
        pytest.param(_view("current"), UP, "nothing", id="all is well"),
        pytest.param(_view("current", vm_state=states.STOPPED), OFF, "nothing", id="stopped"),
        pytest.param(_view("current", vm_state=states.PAUSED), OFF, "tell", id="its memory is lost"),
        pytest.param(_view("current", open_operation="o"), OFF, "nothing", id="off, operation open"),
        pytest.param(_view("current", forced_down=True), OFF, "nothing", id="off, host forced down"),
        pytest.param(_view("current", other_claims=1), OFF, "nothing", id="off, another claim elsewhere"),
        pytest.param(_view("incoming"), OFF, "nothing", id="incoming"),
    ],
)
def test_what_follows_at_the_start_of_the_worker(view: GuestView, guest: Guest | None, action: str) -> None:
    """R8: a guest that its host's power cut has stopped is started."""
    assert decide(view, guest, starting=True).action == action


def test_ones_own_operation_does_not_forbid_to_start_the_guest_again() -> None:
    view = _view("current", open_operation="mine")
    assert resume.is_allowed(view, apart_from="mine")
    assert not resume.is_allowed(view)


def _stray(world: World, instance: str) -> None:
    """A guest that nobody has asked for."""
    world.hypervisor.spawn(GuestSpec(instance, "stray", NODE, 1, 512, 1), iter([b"disk"]))


def test_the_guest_of_a_server_deleted_while_its_host_was_away_is_removed_and_its_cpus_freed(
    world: World,
) -> None:
    server = world.boot(world.book.create(pinned(4)))
    world.book.leave(server)
    assert [claim.role for claim in world.book.claims(NODE)] == ["leftover"]
    world.start_worker()
    assert world.guests() == {}
    assert world.book.claims(NODE) == ()
    world.check()


def test_a_leftover_is_released_only_after_its_guest_is_gone(world: World) -> None:
    """R1."""
    server = world.boot(world.book.create(pinned(4)))
    world.book.leave(server)
    world.watch.on("driver.destroy", "before", _fail)
    world.reconcile()
    assert server in world.guests()
    assert len(world.used()) == 4
    world.reconcile()
    assert world.guests() == {}
    assert world.used() == frozenset()
    world.check()


def _fail() -> None:
    raise OSError("the disk said no")


def test_a_guest_that_a_power_cut_stopped_runs_again_after_the_start(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    world.hypervisor.power_off(NODE, server)
    world.start_worker()
    assert world.guests() == {server: RUNNING}


def test_a_guest_on_a_host_that_is_forced_down_stays_off(world: World) -> None:
    """R8: it may run elsewhere by now."""
    server = world.boot(world.book.create(pinned(4)))
    world.hypervisor.power_off(NODE, server)
    world.book.force_down(HOST)
    world.start_worker()
    assert world.guests() == {server: SHUTDOWN}


def test_a_server_with_an_open_operation_is_left_to_it(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    world.hypervisor.power_off(NODE, server)
    world.book.ask("shelve", server)
    world.reconcile()
    assert world.guests() == {server: SHUTDOWN}


def test_a_guest_that_the_book_has_never_heard_of_is_only_reported(world: World) -> None:
    _stray(world, "stranger")
    world.reconcile()
    assert world.guests() == {"stranger": RUNNING}
    assert any("stranger" in str(difference) for difference in world.audit.differences[NODE])


def test_a_hypervisor_that_suddenly_shows_nothing_changes_nothing(world: World) -> None:
    """More likely the listing is wrong than every guest is gone."""
    kept = world.boot(world.book.create(pinned(2)))
    left = world.boot(world.book.create(pinned(2)))
    world.book.leave(left)
    world.hypervisor.destroy(NODE, kept)
    world.hypervisor.destroy(NODE, left)
    world.start_worker()
    assert len(world.used()) == 4
    assert any("no guest at all" in str(difference) for difference in world.audit.differences[NODE])


def test_where_most_guests_have_no_claim_none_is_touched(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The database is more likely an old one than three guests of offloaded servers are strays at once."""
    servers = [world.boot(world.book.create(pinned(2))) for _ in range(3)]
    for server in servers:
        world.run(world.book.ask("shelve", server))
        _stray(world, server)
    world.reconcile()
    assert set(world.guests()) == set(servers)
    (difference,) = world.audit.differences[NODE]
    assert (difference.kind, difference.did) == ("mass", "")
    assert any(record.levelno == logging.ERROR for record in caplog.records)


def test_a_book_that_has_gone_back_destroys_no_guest(world: World) -> None:
    """A database that was restored knows nothing of what came after its copy was made."""
    server = world.boot(world.book.create(pinned(2)))
    world.run(world.book.ask("shelve", server))
    _stray(world, server)
    known = world.tracker.view(NODE)
    world.tracker.load(msgspec.structs.replace(known, generation=known.generation + 5))
    world.reconcile()
    assert set(world.guests()) == {server}
    (difference,) = world.audit.differences[NODE]
    assert difference.kind == "mass"
    assert "an older copy" in str(difference)


def test_what_was_done_about_a_difference_is_written_down(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    world.book.leave(server)
    world.reconcile()
    (difference,) = world.audit.differences[NODE]
    assert (difference.kind, difference.server) == ("leftover", server)
    assert difference.did == "its guest was removed, and with it any leftover"
    assert "Cause: its worker was down" in str(difference)
    world.reconcile()
    assert world.audit.differences[NODE] == []


def test_what_could_not_be_done_is_not_said_to_be_done(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    world.book.leave(server)
    world.fence.end("superseded")
    world.reconcile()
    (difference,) = world.audit.differences[NODE]
    assert (difference.server, difference.did) == (server, "")


def test_a_vanished_guest_is_reported_and_its_claim_kept(world: World) -> None:
    gone = world.boot(world.book.create(pinned(2)))
    world.boot(world.book.create(pinned(2)))
    world.hypervisor.destroy(NODE, gone)
    world.reconcile()
    assert len(world.used()) == 4
    assert any(gone in str(difference) for difference in world.audit.differences[NODE])


def test_a_claim_that_is_incoming_is_never_audited_away(world: World) -> None:
    """F005: an audit while the guest is being spawned."""
    work = world.book.create(pinned(4))
    world.watch.on("driver.spawn", "before", world.reconcile)
    world.watch.on("driver.spawn", "after", world.reconcile)
    world.run(work)
    assert world.book.server(work.instance).vm_state == states.ACTIVE
    assert len(world.used()) == 4
    world.check()


def test_the_tracker_is_brought_back_to_the_book(world: World) -> None:
    world.boot(world.book.create(pinned(4)))
    world.book.move_on(NODE)
    world.reconcile()
    assert {claim.id for claim in world.tracker.view(NODE).claims} == {
        claim.id for claim in world.book.claims(NODE)
    }
    assert world.audit.differences[NODE] == []


def test_a_server_that_somebody_works_on_is_left_alone(world: World) -> None:
    """R2: the lane is taken."""
    server = world.boot(world.book.create(pinned(4)))
    world.hypervisor.power_off(NODE, server)
    hold, held = world.runtime.event(), world.runtime.event()

    def work() -> None:
        held.set()
        hold.wait(10)

    assert world.jobs.try_submit(server, work, seconds=10) is not None
    assert held.wait(10)
    world.reconcile()
    assert world.guests() == {server: SHUTDOWN}
    hold.set()


def test_a_fenced_worker_audits_nothing_away(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    world.book.leave(server)
    world.fence.end("superseded")
    world.reconcile()
    assert server in world.guests()
    assert len(world.used()) == 4


def test_servers_that_are_as_the_book_says_cost_no_call_of_their_own(world: World) -> None:
    """F114."""
    for vm_state in (states.STOPPED, states.ACTIVE):
        server = world.boot(world.book.create(pinned(2)))
        if vm_state == states.STOPPED:
            world.run(world.book.ask("stop", server))
    world.watch.events.clear()
    world.reconcile()
    assert world.watch.events == ["conductor.node_view", "conductor.guests"]


def test_a_server_that_its_user_has_shut_down_from_inside_becomes_stopped(world: World) -> None:
    """By an operation of its own, which anybody can see."""
    server = world.boot(world.book.create(pinned(4)))
    world.hypervisor.power_off(NODE, server)
    world.reconcile()
    work = world.book.opened()
    assert work is not None
    assert (work.kind, work.instance) == ("power_sync", server)
    assert world.book.server(server).vm_state == states.ACTIVE
    world.run(work)
    assert world.book.server(server) == Server(states.STOPPED, None, None, None)
    world.reconcile()
    assert world.book.opened() is None
    assert len(world.used()) == 4


def test_a_guest_that_a_failed_operation_has_left_off_is_started_by_an_operation(world: World) -> None:
    """F062: nobody has shut it down."""
    server = world.boot(world.book.create(pinned(4)))
    world.watch.on("driver.power_off", "after", _fail)
    world.watch.on("driver.power_on", "before", _fail)
    world.run(world.book.ask("stop", server))
    assert world.guests() == {server: SHUTDOWN}
    assert world.book.server(server).vm_state == states.ACTIVE
    world.reconcile()
    work = world.book.opened()
    assert work is not None
    assert work.kind == "power_restore"
    world.run(work)
    assert world.guests() == {server: RUNNING}
    assert world.book.server(server) == Server(states.ACTIVE, None, None, None)


def test_a_guest_found_running_while_its_server_is_stopped_is_stopped_by_an_operation(world: World) -> None:
    server = world.boot(world.book.create(pinned(4)))
    world.run(world.book.ask("stop", server))
    world.hypervisor.power_on(NODE, server)
    world.reconcile()
    assert world.guests() == {server: RUNNING}
    work = world.book.opened()
    assert work is not None
    world.run(work)
    assert world.guests() == {server: SHUTDOWN}
    assert world.book.server(server).vm_state == states.STOPPED


def test_what_has_changed_since_the_audit_looked_is_not_followed(world: World) -> None:
    """The user is faster: the guest is off because a stop is under way."""
    server = world.boot(world.book.create(pinned(4)))
    world.hypervisor.power_off(NODE, server)

    def stop() -> None:
        world.book.ask("stop", server)

    world.watch.on("conductor.power_seen", "before", stop)
    world.reconcile()
    work = world.book.opened()
    assert work is not None
    assert work.kind == "stop"


def test_a_conductor_too_old_to_tell_of_guests_does_not_stop_the_audit(world: World) -> None:
    left = world.boot(world.book.create(pinned(4)))
    world.book.leave(left)
    world.watch.lose("conductor.guests", "before", times=100)
    world.tools.calls._stop.set()  # no second call
    assert world.audit._told(NODE) == {}
