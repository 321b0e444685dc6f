"""Each operation of the worker: it succeeds; every step twice; failure at every step unwinds; undo twice; and its
process may die at any instant."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from pinfold.compute.operations import PLANS
from pinfold.compute.operations.attempt import Attempt
from pinfold.compute.operations.runner import Deed, Plan
from pinfold.model import power, states
from pinfold.model.rebuild import holds_both
from pinfold.model.request import Demand
from pinfold.model.work import Work
from pinfold.virt.driver import DriverError
from tests.compute.books import pinned
from tests.compute.conftest import MakeWorld
from tests.compute.world import NODE, Killed, Picture, World


class Story(msgspec.Struct, frozen=True):
    """An operation with what must be there before it."""

    name: str
    kind: str
    prepare: Callable[[World], Work]
    ends: str
    """The server's vm_state once it has succeeded."""
    fails: str
    """And once it has failed."""
    forward_from: str | None = None
    """The first driver call that is never undone."""


def _boot(world: World) -> str:
    return world.boot(world.book.create(pinned(4)))


def _shelved(world: World, *, at_once: bool = False) -> str:
    server = _boot(world)
    world.book.offload_at_once(at_once)
    world.run(world.book.ask("shelve", server))
    return server


def _in_state(world: World, *kinds: str) -> str:
    """A server that has been through these operations."""
    server = _boot(world)
    for kind in kinds:
        world.run(world.book.ask(kind, server))
    return server


def _plain(kind: str, ends: str, *before: str, name: str | None = None) -> Story:
    """An operation that is one call of the hypervisor, after others that lead to where it starts."""
    fails = {(): states.ACTIVE, ("stop",): states.STOPPED, ("pause",): states.PAUSED}.get(before)
    return Story(
        name or kind,
        kind,
        lambda world: world.book.ask(kind, _in_state(world, *before)),
        ends,
        fails or {"suspend": states.SUSPENDED, "soft_delete": states.SOFT_DELETED}[before[0]],
    )


def _audited(world: World, *, after_a_failure: bool) -> Work:
    """What the audit has found: a guest that is off, of a server that should run."""
    server = _boot(world)
    if after_a_failure:
        world.watch.on("driver.power_off", "before", _fail)
        world.run(world.book.ask("stop", server))
    world.hypervisor.power_off(NODE, server)
    world.reconcile()
    work = world.book.opened()
    assert work is not None
    return work


def _rebuild(world: World, *before: str, demand: Demand | None = None) -> Work:
    return world.book.rebuild(_in_state(world, *before), demand)


def _shelve_to_keep(world: World) -> Work:
    world.book.offload_at_once(False)
    return world.book.ask("shelve", _boot(world))


STORIES = (
    Story("create", "create", lambda world: world.book.create(pinned(4)), states.ACTIVE, states.ERROR),
    Story(
        "shelve",
        "shelve",
        lambda world: world.book.ask("shelve", _boot(world)),
        states.SHELVED_OFFLOADED,
        states.ACTIVE,
        "driver.destroy",
    ),
    Story("shelve that keeps its place", "shelve", _shelve_to_keep, states.SHELVED, states.ACTIVE),
    Story(
        "shelve_offload",
        "shelve_offload",
        lambda world: world.book.ask("shelve_offload", _shelved(world)),
        states.SHELVED_OFFLOADED,
        states.SHELVED,
        "driver.destroy",
    ),
    Story(
        "unshelve",
        "unshelve",
        lambda world: world.book.ask("unshelve", _shelved(world, at_once=True)),
        states.ACTIVE,
        states.SHELVED_OFFLOADED,
    ),
    Story(
        "unshelve_in_place",
        "unshelve_in_place",
        lambda world: world.book.ask("unshelve", _shelved(world)),
        states.ACTIVE,
        states.SHELVED,
    ),
    Story(
        "delete",
        "delete",
        lambda world: world.book.ask("delete", _boot(world)),
        states.DELETED,
        states.DELETED,
        "driver.destroy",
    ),
    Story(
        "force_delete",
        "force_delete",
        lambda world: world.book.ask("delete", _boot(world)),
        states.DELETED,
        states.DELETED,
        "driver.destroy",
    ),
    _plain("stop", states.STOPPED),
    _plain("start", states.ACTIVE, "stop"),
    _plain("reboot", states.ACTIVE),
    _plain("hard_reboot", states.ACTIVE),
    _plain("hard_reboot", states.ACTIVE, "stop", name="hard reboot of a stopped server"),
    _plain("hard_reboot", states.ACTIVE, "pause", name="hard reboot of a paused server"),
    _plain("hard_reboot", states.ACTIVE, "suspend", name="hard reboot of a suspended server"),
    _plain("pause", states.PAUSED),
    _plain("unpause", states.ACTIVE, "pause"),
    _plain("suspend", states.SUSPENDED),
    _plain("resume", states.ACTIVE, "suspend"),
    _plain("soft_delete", states.SOFT_DELETED),
    _plain("soft_delete", states.SOFT_DELETED, "pause", name="soft delete of a paused server"),
    _plain("restore", states.ACTIVE, "soft_delete"),
    _plain("create_image", states.ACTIVE),
    _plain("create_image", states.STOPPED, "stop", name="create_image of a stopped server"),
    _plain("create_image", states.PAUSED, "pause", name="create_image of a paused server"),
    Story(
        "power_sync",
        "power_sync",
        lambda world: _audited(world, after_a_failure=False),
        states.STOPPED,
        states.ACTIVE,
    ),
    Story(
        "power_restore",
        "power_restore",
        lambda world: _audited(world, after_a_failure=True),
        states.ACTIVE,
        states.ACTIVE,
    ),
    Story("rebuild", "rebuild", _rebuild, states.ACTIVE, states.ACTIVE),
    Story(
        "rebuild of a stopped server",
        "rebuild",
        lambda world: _rebuild(world, "stop"),
        states.STOPPED,
        states.STOPPED,
    ),
    Story(
        "rebuild that asks for two cells",
        "rebuild",
        lambda world: _rebuild(world, demand=pinned(4, cells=2)),
        states.ACTIVE,
        states.ACTIVE,
    ),
)
BY_NAME = pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)


def told(world: World, story: Story) -> tuple[Work, Picture]:
    """Prepare a story; its work, and how things were before its operation was opened."""
    work = story.prepare(world)
    if work.instance not in world.servers:
        world.servers.append(work.instance)
    before = world.picture()
    world.watch.events.clear()
    return work, before


def assert_succeeded(world: World, story: Story, work: Work) -> None:
    """It is done, and everything is as it should be."""
    server = world.book.server(work.instance)
    assert (server.vm_state, server.open_kind, server.fault) == (story.ends, None, None)
    claims = [claim for claim in world.book.claims(work.node) if claim.instance == work.instance]
    expected = power.OF_STATE[story.ends]
    if story.ends in (states.SHELVED_OFFLOADED, states.DELETED):
        assert claims == []
        assert world.guests() == {}
    else:
        assert [claim.role for claim in claims] == ["current"]
        assert world.guests() == {work.instance: expected}
        assert len(world.used()) == 4
        assert not holds_both(claims[0].placement)
    if story.kind == "create_image":
        assert world.images.get(work.snapshot or "").status == "active"
    world.check()


@BY_NAME
def test_every_plan_has_a_deed_for_each_step_and_an_undo_where_one_is_declared(story: Story) -> None:
    plan = PLANS[story.kind]
    assert list(plan.deeds) == [step.name for step in plan.steps]
    for step in plan.steps:
        assert (plan.deeds[step.name].undo is not None) == (step.undo is not None)


@BY_NAME
def test_an_operation_succeeds(world: World, story: Story) -> None:
    work, _ = told(world, story)
    world.run(work)
    assert_succeeded(world, story, work)


@BY_NAME
def test_every_step_and_every_call_may_happen_twice(world: World, story: Story) -> None:
    """F004, F023."""
    work, _ = told(world, story)
    world.watch.doubled = True
    world.run(work, plans={work.kind: _doubled(PLANS[work.kind])})
    world.watch.doubled = False
    assert_succeeded(world, story, work)


@BY_NAME
def test_a_message_that_comes_again_afterwards_changes_nothing(world: World, story: Story) -> None:
    """F023."""
    work, _ = told(world, story)
    world.run(work)
    after = world.picture()
    world.run(work)
    assert world.picture() == after
    world.check()


def _doubled(plan: Plan) -> Plan:
    deeds = {
        name: Deed(_twice(deed.do), _twice(deed.undo) if deed.undo else None, deed.begins)
        for name, deed in plan.deeds.items()
    }
    return msgspec.structs.replace(plan, deeds=deeds)


def _twice(act: Callable[[Attempt], None]) -> Callable[[Attempt], None]:
    def do(attempt: Attempt) -> None:
        act(attempt)
        act(attempt)

    return do


def _fail() -> None:
    raise DriverError("The hypervisor said no.")


CHANGES = {
    "create": ("driver.spawn",),
    "unshelve": ("driver.spawn",),
    "shelve": ("driver.power_off", "driver.snapshot", "store.upload"),
    "unshelve_in_place": ("driver.power_on",),
    "start": ("driver.power_on",),
    "restore": ("driver.power_on",),
    "stop": ("driver.power_off",),
    "power_sync": ("driver.power_off",),
    "soft_delete": ("driver.power_off",),
    "reboot": ("driver.reboot",),
    "hard_reboot": ("driver.reboot",),
    "pause": ("driver.pause",),
    "unpause": ("driver.unpause",),
    "suspend": ("driver.suspend",),
    "resume": ("driver.resume",),
    "create_image": ("driver.snapshot",),
    "rebuild": ("store.get",),
}
# Where a call is named for what comes with it.
_NAMES = {"soft delete of a paused server": {"driver.power_off": "driver.power_off at once"}}
FAILURES = [
    pytest.param(story, _NAMES.get(story.name, {}).get(event, event), when, id=f"{story.name}-{event}-{when}")
    for story in STORIES
    for event in CHANGES.get(story.kind, ())
    for when in ("before", "after")
]


@pytest.mark.parametrize(("story", "event", "when"), FAILURES)
@pytest.mark.parametrize("undo", ["undo once", "undo twice"])
def test_failure_at_every_step_unwinds_to_the_state_before(
    world: World, story: Story, event: str, when: str, undo: str
) -> None:
    """F001, F006: the hypervisor or the store fails before or after it did the work."""
    work, before = told(world, story)
    world.watch.on(event, when, _fail)
    world.run(work, plans=PLANS if undo == "undo once" else {work.kind: _doubled(PLANS[work.kind])})
    server = world.book.server(work.instance)
    assert server.open_kind is None
    assert server.vm_state == story.fails
    assert server.fault is not None
    after = world.picture()
    assert (after.claims, after.guests, after.images) == (before.claims, before.guests, before.images)
    world.check()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "story", [story for story in STORIES if story.forward_from], ids=lambda story: story.name
)
def test_what_only_goes_forward_is_tried_until_it_is_done(world: World, story: Story, when: str) -> None:
    work, _ = told(world, story)
    world.watch.on(story.forward_from or "", when, _fail, times=2)
    world.run(work)
    assert_succeeded(world, story, work)


def events_of(make_world: MakeWorld, story: Story) -> list[str]:
    """What a worker does outside itself for a story that succeeds."""
    world = make_world()
    work, _ = told(world, story)
    world.run(work)
    return list(world.watch.events)


@BY_NAME
def test_a_worker_may_be_killed_before_or_after_anything_it_does(make_world: MakeWorld, story: Story) -> None:
    """F022, F029: the next incarnation reconciles, is rung again, and ends what was begun."""
    events = events_of(make_world, story)
    assert events
    for number, event in enumerate(events):
        for when in ("before", "after"):
            world = make_world()
            work, _ = told(world, story)
            _kill_at(world, number, when)
            with pytest.raises(Killed):
                world.run(work)
            world.start_worker()
            if world.book.server(work.instance).open_kind is not None:
                world.run(world.book.again(work))
            world.reconcile()
            try:
                assert_succeeded(world, story, work)
            except AssertionError as error:
                raise AssertionError(f"killed {when} {event} (number {number}): {error}") from error


def _kill_at(world: World, number: int, when: str) -> None:
    def kill(seen: int, event: str, at: str) -> None:
        if (seen, at) == (number, when):
            raise Killed(event)

    world.watch.at = kill


@BY_NAME
def test_any_call_to_the_conductor_may_be_lost_on_its_way_there_or_back(
    make_world: MakeWorld, story: Story
) -> None:
    for event in sorted({event for event in events_of(make_world, story) if event.startswith("conductor.")}):
        for when in ("before", "after"):
            world = make_world()
            work, _ = told(world, story)
            world.watch.lose(event, when, times=2)
            world.run(work)
            assert_succeeded(world, story, work)
