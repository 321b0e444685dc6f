"""pinfold-manage host drain: what it moves, what it leaves and says why."""

from __future__ import annotations

from pinfold.cmd.manage.drain import Drain
from pinfold.runtime import RealRuntime
from tests.moves.conftest import MakeTown
from tests.moves.invariants import check
from tests.moves.town import P1, P2, P4, P6, Town


class Pumping(RealRuntime):
    """While somebody sleeps, conductors and workers do their work."""

    def __init__(self, town: Town, servers: list[str]) -> None:
        super().__init__()
        self._town, self._servers = town, servers
        self.most = 0

    def sleep(self, seconds: float) -> None:
        town = self._town
        busy = [server for server in self._servers if town.open_kind(server)]
        self.most = max(self.most, len(busy))
        for server in busy:
            town.sweep(server)


def drain_of(town: Town, servers: list[str], host: str = "n1") -> tuple[Drain, Pumping]:
    runtime = Pumping(town, servers)
    return Drain(town.book, runtime, host, town.box.times), runtime


def test_everything_is_moved_off_and_the_host_takes_nothing_more(town: Town) -> None:
    servers = [town.boot(size) for size in (P1, P2, P4)] + [town.boot(P1, stopped=True)]
    drain, runtime = drain_of(town, servers)
    drain.close()
    drain.work(2)
    check(town)
    assert drain.tasks() == []
    assert town.used("n1") == set()
    assert runtime.most <= 2
    assert [town.state(server) for server in servers] == ["active", "active", "active", "stopped"]


def test_a_plan_changes_nothing(town: Town) -> None:
    servers = [town.boot(P1), town.boot(P2)]
    before = town.picture()
    drain, _ = drain_of(town, servers)
    assert [task.move for task in drain.tasks()] == ["migrate", "migrate"]
    assert town.picture() == before


def test_it_ends_with_what_is_left_and_the_reason_of_each(make_town: MakeTown) -> None:
    town = make_town(hosts=("n1", "n2"))
    for _ in range(2):
        town.boot(P6, "n2")
    big, moved, small = town.boot(P4), town.boot(P1), town.boot(P1)
    town.migrate(moved)
    town.pump()
    drain, _ = drain_of(town, [big, moved, small])
    drain.close()
    drain.work(4)
    check(town)
    left = {task.server: task.why or "" for task in drain.tasks()}
    assert left.keys() == {big, moved}
    assert "No valid host was found" in left[big]
    assert "confirm or revert" in left[moved]
    assert town.place(small)[0] == "n2"
    town.confirm(moved)
    town.pump()
    assert [task.server for task in drain.tasks()] == [big]


def test_another_run_goes_on_where_one_was_stopped(town: Town) -> None:
    server = town.boot(P2)
    drain, _ = drain_of(town, [server])
    (task,) = drain.tasks()
    assert drain._open(task)
    town.sweep(server)
    town.settle(server)
    assert town.state(server) == "resized"
    again, _ = drain_of(town, [server])
    again.work(1)
    check(town)
    assert (town.state(server), again.tasks()) == ("active", [])


def test_a_host_that_is_down_is_drained_by_evacuation(town: Town) -> None:
    server = town.boot(P2)
    town.power_cut("n1")
    drain, _ = drain_of(town, [server])
    drain.close()
    drain.work(1)
    check(town)
    assert town.place(server)[0] != "n1"
    (task,) = drain.tasks()
    assert "left over" in (task.why or "")
    town.restart("n1")
    assert drain.tasks() == []
