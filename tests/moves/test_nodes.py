"""Several nodes on one worker: each has its own claims; and nodes that go, come back, or change their worker."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from pinfold.db.models import Node
from tests.moves.conftest import MakeTown, on_both
from tests.moves.invariants import check
from tests.moves.town import P2, P4, P6, StartRefused, Town

RUNS = 1


@pytest.fixture
def three(make_town: MakeTown) -> Town:
    """A worker with three nodes, and one with its own."""
    return make_town(hosts=("w", "n2"), nodes={"w": ("a", "b", "c")}, allow_resize_to_same_host=True)


def test_each_of_three_nodes_has_its_own_cpus(three: Town) -> None:
    servers = [three.boot(P6, "w") for _ in range(6)]
    check(three)
    nodes = sorted(three.place(server)[1] for server in servers)
    assert nodes == ["a", "a", "b", "b", "c", "c"]
    assert [len(three.used(node)) for node in "abc"] == [12, 12, 12]
    three.ask("delete", servers[0])
    three.pump()
    check(three)
    assert sorted(len(three.used(node)) for node in "abc") == [6, 12, 12]


@pytest.mark.parametrize("end", ["confirm", "revert"])
def test_a_server_is_resized_from_one_node_of_its_worker_to_another(three: Town, end: str) -> None:
    server = three.boot(P2, "w")
    source = three.place(server)[1]
    three.write_disk(server, b"what it wrote")
    before = three.picture()
    # the emptiest nodes are tried first, and this one is not
    three.fill("n2")
    three.resize(server, P4)
    three.pump()
    check(three)
    target = three.roles(server)["current"]
    assert target in "abc"
    assert target != source
    assert three.roles(server) == {"outgoing": source, "current": target}
    assert three.read_disk(server, 13) == b"what it wrote"
    getattr(three, end)(server)
    three.pump()
    check(three)
    here, gone = (target, source) if end == "confirm" else (source, target)
    assert three.guests(server) == {here: RUNS}
    assert three.used(gone) == set()
    if end == "revert":
        assert three.picture().disks == before.disks


@pytest.mark.parametrize("move", ["migrate", "live_migrate"])
def test_a_server_is_moved_from_one_node_of_its_worker_to_another(make_town: MakeTown, move: str) -> None:
    town = make_town(hosts=("w",), nodes={"w": ("a", "b")})
    server = town.boot(P2, "w")
    source = town.place(server)[1]
    getattr(town, move)(server)
    town.pump()
    check(town)
    (target,) = {"a", "b"} - {source}
    assert town.roles(server)["current"] == target
    if move == "migrate":
        town.confirm(server)
        town.pump()
        check(town)
    assert (town.state(server), town.guests(server)) == ("active", {target: RUNS})
    assert town.used(source) == set()


def test_a_worker_that_dies_takes_all_its_nodes_with_it_and_cleans_them_up(three: Town) -> None:
    servers = [three.boot(P4, "w") for _ in range(3)]
    assert {three.place(server)[1] for server in servers} == {"a", "b", "c"}
    three.power_cut("w")
    for server in servers:
        three.evacuate(server)
    three.pump()
    check(three)
    assert {three.place(server) for server in servers} == {("n2", "n2")}
    three.restart("w")
    check(three)
    assert [three.used(node) for node in "abc"] == [set(), set(), set()]


def test_a_node_with_servers_cannot_be_left_out_and_an_empty_one_goes_and_comes_back(three: Town) -> None:
    server = three.boot(P2, "w")
    busy = three.place(server)[1]
    empty = next(node for node in "abc" if node != busy)
    worker = three.workers["w"]
    worker.serve([node for node in "abc" if node != busy])
    with pytest.raises(
        StartRefused, match=f"no longer names node {busy}, on which servers still hold claims"
    ):
        worker.start()
    worker.serve([node for node in "abc" if node != empty])
    worker.start()
    check(three)
    assert nodes_of(three) == sorted({"a", "b", "c", "n2"} - {empty})
    worker.serve("abc")
    worker.start()
    check(three)
    assert three.used(empty) == set()
    assert three.guests(server) == {busy: RUNS}
    others = [three.boot(P6, "w") for _ in range(5)]
    assert empty in {three.place(other)[1] for other in others}


@on_both
def test_a_node_changes_its_worker_once_the_first_one_has_let_it_go(three: Town) -> None:
    first, second = three.workers["w"], three.workers["n2"]
    second.serve(("n2", "c"))
    with pytest.raises(StartRefused, match="Node c belongs to host w, not to n2"):
        second.start()
    assert nodes_of(three) == ["a", "b", "c", "n2"]
    first.serve("ab")
    first.start()
    second.start()
    servers = [three.boot(P6, "n2") for _ in range(4)]
    check(three)
    assert {three.place(server)[1] for server in servers} == {"n2", "c"}
    # and back, when it is empty again
    for server in servers:
        three.ask("delete", server)
    three.pump()
    second.serve(("n2",))
    second.start()
    first.serve("abc")
    first.start()
    check(three)
    assert (
        three.book.read(lambda session: session.scalar(sa.select(Node.host).where(Node.name == "c"))) == "w"
    )


def test_f102_a_node_that_the_database_has_lost_takes_nothing_and_is_there_again_after_a_start(
    three: Town,
) -> None:
    three.book.write(lambda session: session.execute(sa.delete(Node).where(Node.name == "c")))
    servers = [three.boot(P6, "w") for _ in range(4)]
    assert {three.place(server)[1] for server in servers} == {"a", "b"}
    three.restart("w")
    check(three)
    assert three.used("c") == set()
    assert three.place(three.boot(P6, "w"))[1] == "c"


def nodes_of(town: Town) -> list[str]:
    """The names of all nodes in the book."""
    return town.book.read(lambda session: list(session.scalars(sa.select(Node.name).order_by(Node.name))))
