"""The standard tests of every move: each step twice, a failure at each step, a lost call, a kill of either worker.

Whatever happens, the server ends where the move was to bring it, or exactly where it was before.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from pinfold.rpcapi import wire
from pinfold.virt.driver import DriverError
from tests.compute.world import Killed
from tests.moves.conftest import MakeTown
from tests.moves.invariants import check
from tests.moves.town import P2, P4, Picture, Town


class Course(msgspec.Struct, frozen=True):
    """How the case goes when nothing fails: the events, and the pictures before and after."""

    events: tuple[str, ...]
    before: Picture
    after: Picture


class Case(msgspec.Struct, frozen=True):
    """A move: what comes before it, and the request. ``one_host``: source and destination are one; ``sharing``: on
    shared storage; ``kills`` a host before the request."""

    name: str
    prepare: Callable[[Town], str]
    ask: Callable[[Town, str], None]
    one_host: bool = False
    sharing: bool = False
    kills: str | None = None
    may_stop: bool = False

    def ends(self, usual: Course) -> tuple[Picture, ...]:
        """Where it may lead. ``may_stop``: also to a guest that could not be started, and a server that says so."""
        return (usual.before, usual.after, *((_shut_down(usual.after),) if self.may_stop else ()))

    def begin(self, town: Town, server: str) -> None:
        """The request, after what comes right before it."""
        if self.kills is not None:
            town.power_cut(self.kills)
        town.events.clear()
        self.ask(town, server)


def _shut_down(picture: Picture) -> Picture:
    state = picture.servers["it"]
    guests = tuple((server, node, 4) for server, node, _ in picture.guests)
    return msgspec.structs.replace(picture, servers={"it": ("stopped", *state[1:])}, guests=guests)


def _resized(town: Town) -> str:
    server = town.boot(P2)
    town.resize(server, P4)
    town.pump()
    return server


def _stopped(town: Town) -> str:
    return town.boot(P2, stopped=True)


def _with_disk(town: Town) -> str:
    server = town.boot(P2)
    town.write_disk(server, b"what it wrote")
    return server


CASES = (
    Case("resize", Town.boot, Town.resize),
    Case("resize on its host", Town.boot, Town.resize, one_host=True),
    Case("migrate a stopped one", _stopped, Town.migrate),
    Case("confirm", _resized, Town.confirm),
    Case("confirm on its host", _resized, Town.confirm, one_host=True),
    Case("revert", _resized, Town.revert, may_stop=True),
    Case("revert on its host", _resized, Town.revert, one_host=True, may_stop=True),
    Case("live migrate", Town.boot, Town.live_migrate),
    Case("evacuate", Town.boot, Town.evacuate, kills="n1"),
    Case("evacuate on its disk", _with_disk, Town.evacuate, kills="n1", sharing=True),
)
EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def town_for(case: Case, make_town: MakeTown) -> Town:
    if case.one_host:
        return make_town(hosts=("n1",), allow_resize_to_same_host=True)
    return make_town(hosts=("n1", "n2"), sharing=("n1", "n2") if case.sharing else ())


def course(case: Case, town: Town) -> Course:
    server = case.prepare(town)
    before = plain(town.picture(), server)
    case.begin(town, server)
    town.pump()
    events = tuple(town.events)
    town.restart_dead()
    town.settle(server)
    check(town)
    after = plain(town.picture(), server)
    assert before != after
    remove(town, server)
    return Course(events, before, after)


def plain(picture: Picture, server: str) -> Picture:
    """Without what differs between two runs: the id, and which operation it was."""
    text = msgspec.json.encode(picture).decode().replace(server, "it")
    found = msgspec.json.decode(text, type=Picture)
    state = found.servers["it"]
    moved = {**state[2], "operation": None} if state[2] else None
    return msgspec.structs.replace(found, servers={"it": (state[0], state[1], moved, state[3])})


def remove(town: Town, server: str) -> None:
    """Delete it: nothing is left anywhere."""
    town.ask("delete", server)
    town.settle(server)
    check(town)
    assert town.claims() == []
    assert town.guests(server) == {}
    assert not list(town.folder.glob("hypervisor/*/*/aside/*"))
    assert [image.id for image in town.images.list()] == [town.image]


def run(
    case: Case, town: Town, blow: Callable[[str], None], number: int, when: str, *, stays_dead: bool = False
) -> tuple[str, Picture]:
    """The case with one blow at an event; the server, and what there is once all has settled."""
    server = case.prepare(town)

    def at(count: int, event: str, moment: str) -> None:
        if (count, moment) == (number, when):
            town.at = None
            blow(event)

    if case.kills is not None:
        town.power_cut(case.kills)
    town.events.clear()
    town.at = at
    case.ask(town, server)
    town.pump()
    town.at = None
    if stays_dead:
        for worker in town.workers.values():
            if not worker.up:
                town.kill(worker.host)
        town.settle(server)
        check(town)
    town.restart_dead()
    for worker in town.workers.values():
        worker.beat()
    town.settle(server)
    check(town)
    assert town.open_kind(server) is None
    return server, plain(town.picture(), server)


def _fails(event: str) -> None:
    if ".driver" in event or " driver" in event:
        raise DriverError(f"{event} fails")
    raise wire.CallTimeout(f"{event} is lost")


def _dies(event: str) -> None:
    raise Killed


@EACH
def test_every_step_may_be_done_twice(case: Case, make_town: MakeTown) -> None:
    town = town_for(case, make_town)
    usual = course(case, town)
    for worker in town.workers.values():
        worker.watch.doubled = True
    town.twice = True
    server = case.prepare(town)
    case.begin(town, server)
    town.pump()
    town.restart_dead()
    town.settle(server)
    check(town)
    assert plain(town.picture(), server) == usual.after
    town.twice = False
    remove(town, server)


@EACH
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_call_may_fail_or_be_lost(case: Case, when: str, make_town: MakeTown) -> None:
    """A failed hypervisor call, or a lost request or reply, at each event in turn; then the undo, twice."""
    town = town_for(case, make_town)
    usual = course(case, town)
    for number in range(len(usual.events)):
        server, found = run(case, town, _fails, number, when)
        assert found in case.ends(usual), f"{when} {usual.events[number]}"
        remove(town, server)


@EACH
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("stays_dead", [False, True], ids=["restarted", "dead for long"])
def test_either_worker_may_be_killed(case: Case, when: str, stays_dead: bool, make_town: MakeTown) -> None:
    """Between any two events; restarted at once, or only after the operation has been given up."""
    town = town_for(case, make_town)
    usual = course(case, town)
    for number in range(len(usual.events)):
        server, found = run(case, town, _dies, number, when, stays_dead=stays_dead)
        assert found in case.ends(usual), f"{when} {usual.events[number]}"
        remove(town, server)
