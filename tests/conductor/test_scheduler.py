"""What a scheduler knows of the nodes: it reads what has changed, and what it says is so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import Session

from pinfold.conductor.scheduler import Proposal, Scheduler
from pinfold.db import aggregates, claims, hosts, services
from pinfold.model.placement import Wish, sentence
from tests.conductor.box import Box, pinned
from tests.conductor.conftest import MakeBox

IN_ZONE = Wish(zone="nova")


def a_scheduler(box: Box, few: int = 0) -> Scheduler:
    """One that reads all of up to ``few`` nodes; of more it hears the news."""
    return Scheduler(box.runtime, box.times.service_down, "nova", few)


def choose(box: Box, scheduler: Scheduler, vcpus: int = 2, most: int = 9) -> Proposal:
    return box.book.read(lambda session: scheduler.choose(session, pinned(vcpus), IN_ZONE, most))


def places(proposal: Proposal) -> set[str]:
    return {place.name for place in proposal.places}


@pytest.fixture
def four(make_box: MakeBox) -> Box:
    """A conductor with four workers."""
    box = make_box()
    for host in ("n1", "n2", "n3", "n4"):
        box.register(host)
    return box


def fill(box: Box, host: str) -> str:
    """A server has all dedicated CPUs of one cell of the host, another those of the other; the last of them."""
    for _ in range(2):
        server = box.ask_create(pinned(7), host=host)
        box.claim(box.compute.work[-1])
    return server


def free(box: Box, server: str) -> None:
    def write(session: Session) -> None:
        (held,) = claims.of_instance(session, server)
        claims.free(session, *held)

    box.book.write(write)


def set_service(box: Box, host: str, **values: object) -> None:
    def write(session: Session) -> None:
        service = hosts.worker(session, host, lock=True)
        assert service is not None
        services.update(session, service, values)

    box.book.write(write)


def drop(box: Box, host: str) -> None:
    def write(session: Session) -> None:
        service = hosts.worker(session, host, lock=True)
        assert service is not None
        services.delete(session, service)

    box.book.write(write)


def into_zone(box: Box, host: str, zone: str) -> int:
    def write(session: Session) -> int:
        made = aggregates.add(session, zone, zone, zone)
        aggregates.add_host(session, made.id, host)
        return made.id

    return box.book.write(write)


def test_what_others_have_changed_is_known_at_the_next_choice(four: Box) -> None:
    scheduler, servers, zones = a_scheduler(four), list[str](), list[int]()
    rename = {"availability_zone": "nova"}
    story: list[tuple[Callable[[], object], set[str]]] = [
        (lambda: None, {"n1", "n2", "n3", "n4"}),
        (lambda: servers.append(fill(four, "n1")), {"n2", "n3", "n4"}),
        (lambda: free(four, servers[0]), {"n1", "n2", "n3", "n4"}),
        (lambda: set_service(four, "n2", disabled=True), {"n1", "n3", "n4"}),
        (lambda: set_service(four, "n2", disabled=False), {"n1", "n2", "n3", "n4"}),
        (lambda: set_service(four, "n3", forced_down=True), {"n1", "n2", "n4"}),
        (lambda: set_service(four, "n3", forced_down=False), {"n1", "n2", "n3", "n4"}),
        (lambda: four.die("n4"), {"n1", "n2", "n3"}),
        (lambda: four.register("n4"), {"n1", "n2", "n3", "n4"}),
        (lambda: zones.append(into_zone(four, "n1", "az")), {"n2", "n3", "n4"}),
        (lambda: four.book.write(lambda s: aggregates.update(s, zones[0], rename)), {"n1", "n2", "n3", "n4"}),
        (lambda: drop(four, "n2"), {"n1", "n3", "n4"}),
        (lambda: four.register("n5"), {"n1", "n3", "n4", "n5"}),
    ]
    for number, (change, left) in enumerate(story):
        change()
        assert places(choose(four, scheduler)) == left, number
        assert places(choose(four, a_scheduler(four))) == left, number


def test_a_choice_reads_what_is_new_and_what_it_has_chosen(four: Box) -> None:
    scheduler = a_scheduler(four)
    choose(four, scheduler)
    read: list[str] = []

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        if "FROM nodes" in statement:
            read.append(statement.rpartition("WHERE")[2])

    event.listen(four.book.engine, "before_cursor_execute", note)
    choose(four, scheduler)
    assert len(read) == 2
    assert "changed_at >" in read[0]
    assert "name IN" in read[1]


def test_a_node_that_has_been_full_in_the_picture_is_looked_at_before_it_is_refused(four: Box) -> None:
    scheduler = a_scheduler(four)
    servers = [fill(four, host) for host in ("n1", "n2", "n3", "n4")]
    assert sentence(choose(four, scheduler).refusals) == (
        "No valid host was found: of 4 hosts, 4 have too few free dedicated CPUs in a cell."
    )
    free(four, servers[2])
    # news that is lost: it is older than what was heard last
    four.book.write(lambda session: session.execute(sa.text("UPDATE nodes SET changed_at = 0")))
    four.die("n1")
    assert places(choose(four, scheduler)) == {"n3"}
    assert {(each.host, each.reasons[0].constraint) for each in choose(four, scheduler, 8).refusals} == {
        ("n1", "down"),
        ("n2", "dedicated-cpus"),
        ("n3", "dedicated-cpus"),
        ("n4", "dedicated-cpus"),
    }


def test_schedulers_that_decide_at_once_do_not_choose_one_node(make_box: MakeBox) -> None:
    box = make_box()
    names = [f"n{number:02}" for number in range(12)]
    for name in names:
        box.register(name)
    # less good than the others
    box.ask_create(pinned(2), host="n00")
    box.claim(box.compute.work[-1])
    schedulers = [a_scheduler(box) for _ in range(24)]
    # each decides on the same state of the book, before any claim of the others
    chosen = Counter(place.name for each in schedulers for place in choose(box, each, most=1).places)
    assert chosen.total() == 24
    assert "n00" not in chosen
    assert len(chosen) >= 5
    assert max(chosen.values()) <= 12
