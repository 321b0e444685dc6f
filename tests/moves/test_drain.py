"""pinfold-manage host drain: what it moves, what it leaves and says why."""

from __future__ import annotations

from pinfold.cmd.manage.drain import Drain
from pinfold.runtime import RealRuntime
from tests.moves.conftest import MakeTown, on_both
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


@on_both
def test_everything_is_moved_off_and_the_host_takes_nothing_more(town: Town) -> None:
    servers = [town.boot(size) for size in (P1, P2, P4)] + [town.boot(P1, stopped=True)]
    drain, runtime = drain_of(town, servers)
    drain.close()
    drain.work(2)
    check(town)
    assert drain.tasks() == []
    assert town.used("n1") == set()
    assert runtime.most <= 2
    # actions are told apart by their request
    assert len({town.operation(server).request_id for server in servers}) == len(servers)
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


@on_both
def test_a_plan_says_where_each_would_go_and_takes_those_before_it_into_account(make_town: MakeTown) -> None:
    town = make_town(hosts=("n1", "n2"))
    town.boot(P6, "n2")
    fit, too_much, small = town.boot(P6), town.boot(P4), town.boot(P2)
    drain, _ = drain_of(town, [])
    plan = {task.server: task for task in drain.plan("nova")}
    assert [(plan[one].move, plan[one].target, plan[one].target_host) for one in (fit, small)] == [
        ("migrate", "n2", "n2"),
        ("migrate", "n2", "n2"),
    ]
    assert plan[too_much].target is None
    assert "could not be moved: No valid host was found" in (plan[too_much].why or "")
    drain, _ = drain_of(town, [fit, too_much, small])
    drain.close()
    drain.work(1)
    check(town)
    assert [(task.server, task.role) for task in drain.tasks()] == [(too_much, "current")]


def test_what_runs_can_be_moved_live_and_what_is_paused_always_is(town: Town) -> None:
    runs, stopped, paused = town.boot(P1), town.boot(P1, stopped=True), town.boot(P1)
    town.in_place("pause", paused)
    town.pump()
    drain = Drain(town.book, Pumping(town, [runs, stopped, paused]), "n1", town.box.times, live=True)
    assert {task.server: task.move for task in drain.plan("nova")} == {
        runs: "live_migrate",
        stopped: "migrate",
        paused: "live_migrate",
    }
    drain.close()
    drain.work(2)
    check(town)
    assert drain.tasks() == []
    assert [town.state(server) for server in (runs, stopped, paused)] == ["active", "stopped", "paused"]


def test_what_is_left_names_who_is_in_the_way_and_what_would_free_it(town: Town) -> None:
    suspended, moved_here, busy, idle = (town.boot(P1) for _ in range(4))
    town.in_place("suspend", suspended)
    town.pump()
    elsewhere = town.boot(P1, "n2")
    town.migrate(elsewhere, "n1")
    town.migrate(moved_here, "n2")
    town.pump()
    town.ask("create_image", busy)
    drain, _ = drain_of(town, [])
    left = {task.server: task.why or "" for task in drain.tasks()}
    assert "resume or shelve it" in left[suspended]
    assert "reverted, it is gone" in left[elsewhere]
    assert "confirmed, it has no place here any more" in left[moved_here]
    assert "create_image, asked for by user user of project project, is under way" in left[busy]
    town.pump()
    town.power_cut("n1")
    assert {task.server: task.move for task in drain.tasks() if task.move} == dict.fromkeys(
        (busy, idle), "evacuate"
    )
    assert "its host is down" in {task.server: task.why or "" for task in drain.tasks()}[suspended]
