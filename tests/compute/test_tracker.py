"""The resource tracker: a cache of the book that cannot lead to a double pin, and never holds anybody up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec
import pytest

from pinfold.compute.partition import node_report
from pinfold.compute.settings import Partition
from pinfold.compute.tracker import ClaimRefused, Held, NoFit, Proposal, ResourceTracker, Wanted
from pinfold.model import errors, host, numa
from pinfold.model.host import ClaimView, NodeReport, NodeView
from pinfold.model.request import Demand
from pinfold.rpcapi import wire
from pinfold.rpcapi.messages import Claimed
from pinfold.runtime import RealRuntime
from pinfold.virt.driver import Inventory
from pinfold.virt.topology import default_machine
from tests.compute.books import floating, pinned

# 8 dedicated CPUs of 2 cells, 2 shared ones.
PARTITION = Partition(cpu_shared_set="0,4", cpu_dedicated_set="1-3,9,5-7,13")


def report(name: str = "n1") -> NodeReport:
    return node_report(Inventory(name, default_machine().cells, 500), PARTITION)


class Pages:
    """A node's claims in the book: a claim is taken if nothing was since the generation that it was planned on."""

    def __init__(self, name: str = "n1") -> None:
        self.report = report(name)
        self.generation = self.taken_at = 0
        self.claims: dict[str, ClaimView] = {}
        self.calls = 0
        self.refreshed = 0

    def view(self) -> NodeView:
        claims = tuple(self.claims[claim] for claim in sorted(self.claims))
        return NodeView(self.report.name, self.generation, claims)

    def refresh(self, name: str) -> NodeView:
        self.refreshed += 1
        return self.view()

    def claim(self, proposal: Proposal) -> Claimed:
        self.calls += 1
        view = proposal.view
        for known in self.claims.values():
            if known.operation == view.operation:
                return Claimed("accepted", known.id, None, known.placement)
        if proposal.generation < self.taken_at:
            return Claimed("stale", view=self.view())
        host.usage_of(self.report, [*self.claims.values(), view])
        self.claims[view.id] = view
        self.generation += 1
        self.taken_at = self.generation
        return Claimed("accepted", view.id, self.generation, view.placement)

    def free(self, claim: str) -> int:
        del self.claims[claim]
        self.generation += 1
        return self.generation

    def used(self) -> frozenset[int]:
        return cpus(self.claims.values())


def cpus(claims: object) -> frozenset[int]:
    held: set[int] = set()
    for claim in claims:  # type: ignore[attr-defined]
        for cell in claim.placement.cells if claim.placement else ():
            held |= numa.held_cpus(cell)
    return frozenset(held)


@pytest.fixture
def book() -> Pages:
    return Pages()


@pytest.fixture
def tracker(book: Pages) -> ResourceTracker:
    tracker = ResourceTracker(RealRuntime(), [book.report], book.refresh)
    tracker.load(book.view())
    return tracker


def wanted(name: str, demand: Demand | None = None) -> Wanted:
    return Wanted(f"claim-{name}", f"server-{name}", f"operation-{name}", demand or pinned(2))


def take(tracker: ResourceTracker, book: Pages, name: str, demand: Demand | None = None) -> Held:
    return tracker.claim(book.report.name, wanted(name, demand), book.claim, _soon())


def _soon(seconds: float = 10.0) -> float:
    return RealRuntime().monotonic() + seconds


def believed(tracker: ResourceTracker, name: str = "n1") -> frozenset[int]:
    return cpus(tracker.view(name).claims)


def same(tracker: ResourceTracker, book: Pages) -> bool:
    return tracker.view(book.report.name) == book.view() and tracker.usage(book.report.name) == host.usage_of(
        book.report, book.claims.values()
    )


def test_claims_are_disjoint_and_known_to_both(tracker: ResourceTracker, book: Pages) -> None:
    for name in "abcd":
        take(tracker, book, name)
    assert len(book.used()) == 8
    assert same(tracker, book)
    assert book.calls == 4


def test_a_claim_released_leaves_the_usage_exactly_as_before(tracker: ResourceTracker, book: Pages) -> None:
    take(tracker, book, "a")
    before = tracker.usage("n1")
    held = take(tracker, book, "b", floating(3))
    assert tracker.usage("n1") != before
    assert tracker.released("n1", held.claim, book.free(held.claim))
    assert tracker.usage("n1") == before
    assert same(tracker, book)


def test_releasing_twice_or_what_another_holds_by_now_changes_nothing(
    tracker: ResourceTracker, book: Pages
) -> None:
    """F006: nova added the pins back; here the release names a claim, which is gone."""
    a = take(tracker, book, "a")
    take(tracker, book, "b")
    first = believed(tracker)
    tracker.released("n1", a.claim, book.free(a.claim))
    after = believed(tracker)
    assert len(first - after) == 2
    assert not tracker.released("n1", a.claim, book.generation)
    assert believed(tracker) == after
    take(tracker, book, "c")
    assert believed(tracker) == first
    assert not tracker.released("n1", a.claim, book.generation)
    assert believed(tracker) == first
    assert tracker.not_held == 2
    assert same(tracker, book)


@pytest.mark.parametrize("node", [None, "", "n9"])
def test_a_release_without_a_known_node_is_counted_and_logged_and_changes_nothing(
    tracker: ResourceTracker, book: Pages, node: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """F003: nova looked up None, quietly did nothing, and the pins stayed used for ever."""
    held = take(tracker, book, "a")
    assert not tracker.released(node, held.claim, 2)
    assert tracker.not_held == 1
    assert held.claim in caplog.text
    assert same(tracker, book)


def test_claiming_again_for_one_operation_is_the_same_claim(tracker: ResourceTracker, book: Pages) -> None:
    """F004: usage goes up once, however often it is said."""
    first = take(tracker, book, "a")
    for _ in range(3):
        assert take(tracker, book, "a") == first
    assert len(book.used()) == 2
    assert same(tracker, book)


def test_an_operations_own_claim_does_not_stand_in_its_way(tracker: ResourceTracker, book: Pages) -> None:
    """F022: its worker was killed after the claim, which fills the node."""
    take(tracker, book, "a", pinned(4))
    mine = take(tracker, book, "b", pinned(4))
    restarted = ResourceTracker(RealRuntime(), [book.report], book.refresh)
    restarted.load(book.view())
    assert take(restarted, book, "b", pinned(4)) == mine


def test_roles_change_nothing_of_what_is_taken(tracker: ResourceTracker, book: Pages) -> None:
    """F004: whatever the server's states, the claim counts from its commit to its release."""
    held = take(tracker, book, "a")
    usage = tracker.usage("n1")
    for role in ("current", "outgoing", "leftover"):
        book.generation += 1
        tracker.changed_role("n1", held.claim, role, book.generation)
        assert tracker.usage("n1") == usage
    assert tracker.view("n1").generation == book.generation


def test_loading_the_books_view_forgets_no_claim_that_is_under_way(
    tracker: ResourceTracker, book: Pages
) -> None:
    """F005: the audit rebuilt usage from rows and skipped servers that were being unshelved."""
    take(tracker, book, "a", pinned(4))
    tracker.load(book.view())
    assert len(believed(tracker)) == 4
    take(tracker, book, "b", pinned(4))
    assert len(book.used()) == 8
    with pytest.raises(NoFit):
        take(tracker, book, "d", pinned(1))


def test_an_older_view_is_not_taken(tracker: ResourceTracker, book: Pages) -> None:
    old = book.view()
    take(tracker, book, "a")
    tracker.load(old)
    assert same(tracker, book)


def test_a_claim_planned_on_an_old_view_is_planned_again_on_the_fresh_one(
    tracker: ResourceTracker, book: Pages
) -> None:
    """F020: somebody else changed the node; the two never share a CPU."""
    other = ResourceTracker(RealRuntime(), [book.report], book.refresh)
    other.load(book.view())
    take(other, book, "a")
    take(tracker, book, "b")
    take(other, book, "c")
    take(tracker, book, "d")
    assert len(book.used()) == 8
    assert same(tracker, book)


def test_no_room_is_said_only_after_a_look_into_the_book(tracker: ResourceTracker, book: Pages) -> None:
    claims = [take(tracker, book, name, pinned(2)) for name in "abcd"]
    book.free(claims[0].claim)
    held = take(tracker, book, "e", pinned(2))
    assert held.claim == "claim-e"
    assert book.refreshed == 1


def test_no_room_names_what_was_asked_and_what_is_free(tracker: ResourceTracker, book: Pages) -> None:
    with pytest.raises(NoFit) as refused:
        take(tracker, book, "a", pinned(9))
    assert refused.value.refusals
    assert book.calls == 0
    assert same(tracker, book)


def test_the_books_placement_wins_over_the_plan(tracker: ResourceTracker, book: Pages) -> None:
    """An earlier try got through, its reply did not; since then the best plan has become another."""
    before = book.view()
    take(tracker, book, "x")
    first = take(tracker, book, "a")
    again = ResourceTracker(RealRuntime(), [book.report], book.refresh)
    again.load(before)
    assert take(again, book, "a") == first
    take(again, book, "b")
    assert same(again, book)


def test_a_lost_reply_is_asked_again_and_leaves_one_claim(tracker: ResourceTracker, book: Pages) -> None:
    def lossy(proposal: Proposal) -> Claimed:
        book.claim(proposal)
        raise wire.CallTimeout("no reply")

    with pytest.raises(errors.Unavailable):
        tracker.claim("n1", wanted("a"), lossy, _soon())
    held = take(tracker, book, "a")
    assert book.claims.keys() == {held.claim}
    take(tracker, book, "b")
    assert same(tracker, book)


def test_a_refused_claim_changes_nothing(tracker: ResourceTracker, book: Pages) -> None:
    with pytest.raises(ClaimRefused):
        tracker.claim("n1", wanted("a"), lambda proposal: Claimed("refused"), _soon())
    assert same(tracker, book)


def test_a_node_that_always_moves_on_is_given_up_in_time(tracker: ResourceTracker, book: Pages) -> None:
    def never(proposal: Proposal) -> Claimed:
        book.generation += 1
        return Claimed("stale", view=book.view())

    with pytest.raises(errors.Unavailable):
        tracker.claim("n1", wanted("a"), never, _soon(0.2))


def test_a_view_that_cannot_be_true_is_refused_and_changes_nothing(
    tracker: ResourceTracker, book: Pages
) -> None:
    """F038: two claims with one CPU, and a CPU that the node does not dedicate."""
    held = take(tracker, book, "a")
    claim = book.claims[held.claim]
    twice = msgspec.structs.replace(claim, id="another")
    with pytest.raises(errors.AccountingError):
        tracker.load(NodeView("n1", 9, (claim, twice)))
    cell = msgspec.structs.replace(claim.placement.cells[0], pins={0: 0, 1: 1})  # type: ignore[union-attr]
    foreign = msgspec.structs.replace(claim, placement=numa.Placement((cell,)))
    with pytest.raises(errors.AccountingError):
        tracker.load(NodeView("n1", 9, (foreign,)))
    assert same(tracker, book)


def test_replies_that_overtake_each_other_leave_the_cache_right(
    tracker: ResourceTracker, book: Pages
) -> None:
    a, b = take(tracker, book, "a"), take(tracker, book, "b")
    first, second = book.free(a.claim), book.free(b.claim)
    tracker.released("n1", b.claim, second)
    tracker.released("n1", a.claim, first)
    take(tracker, book, "c", pinned(4))
    take(tracker, book, "d", pinned(4))
    assert same(tracker, book)
    assert tracker.not_held == 0


def run_all(jobs: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_only_one_thread_at_a_time_is_inside_a_nodes_lock() -> None:
    """F027: fifty threads, started in two ways."""
    book = Pages()
    runtime = RealRuntime()
    tracker = ResourceTracker(runtime, [book.report], book.refresh)
    inside, most = 0, 0

    def call(proposal: Proposal) -> Claimed:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.001)
        answer = book.claim(proposal)
        inside -= 1
        return answer

    def claim(number: int) -> None:
        tracker.claim("n1", wanted(str(number), floating(0)), call, _soon())

    tasks = [runtime.spawn(claim, number, name="claim") for number in range(25)]
    run_all([lambda number=number: claim(number) for number in range(25, 50)])  # type: ignore[misc]
    assert all(task.join(30) for task in tasks)
    assert most == 1
    assert len(book.claims) == 50
    assert same(tracker, book)


def test_two_nodes_never_wait_for_each_other() -> None:
    """F027: inside both claim calls at once."""
    first, second = Pages("n1"), Pages("n2")
    both = threading.Barrier(2, timeout=10)
    tracker = ResourceTracker(
        RealRuntime(), [first.report, second.report], lambda name: (first if name == "n1" else second).view()
    )

    def claim(book: Pages) -> None:
        def call(proposal: Proposal) -> Claimed:
            both.wait()
            return book.claim(proposal)

        tracker.claim(book.report.name, wanted(book.report.name), call, _soon())

    run_all([lambda: claim(first), lambda: claim(second)])
    assert same(tracker, first)
    assert same(tracker, second)


def test_claims_do_not_wait_for_slow_looks_into_the_book() -> None:
    """F059: whoever refreshes does it out of the lock."""
    book = Pages()
    slow = threading.Event()
    looking = threading.Event()

    def refresh(name: str) -> NodeView:
        looking.set()
        assert slow.wait(10)
        return book.view()

    tracker = ResourceTracker(RealRuntime(), [book.report], refresh)
    tracker.load(book.view())
    audit = threading.Thread(target=lambda: tracker.refresh("n1"), daemon=True)
    audit.start()
    assert looking.wait(10)
    started = time.monotonic()
    for name in "abcd":
        take(tracker, book, name)
    assert time.monotonic() - started < 1.0
    slow.set()
    audit.join(10)
    assert same(tracker, book)


def test_threads_that_claim_and_release_end_with_the_sum_of_what_is_left() -> None:
    """F027, F059: no CPU is ever in two claims (the book would refuse it), and the cache ends equal."""
    book = Pages()
    guard = threading.Lock()
    tracker = ResourceTracker(RealRuntime(), [book.report], book.refresh)

    def locked(proposal: Proposal) -> Claimed:
        with guard:
            return book.claim(proposal)

    def cycle(name: str) -> None:
        for number in range(30):
            one = wanted(f"{name}-{number}", pinned(1 + number % 2))
            try:
                held = tracker.claim("n1", one, locked, _soon())
            except NoFit:
                continue
            with guard:
                generation = book.free(held.claim)
            tracker.released("n1", held.claim, generation)

    run_all([lambda name=name: cycle(name) for name in "abcdef"])  # type: ignore[misc]
    assert book.claims == {}
    tracker.refresh("n1")
    assert same(tracker, book)
    assert tracker.not_held == 0


def test_who_waits_for_the_lock_plans_on_what_a_stale_reply_brought() -> None:
    """Else all who wait would plan on the old view, too, be refused in turn, and by then be old again."""
    book = Pages()
    tracker = ResourceTracker(RealRuntime(), [book.report], book.refresh)
    tracker.refresh("n1")
    lock = tracker._nodes["n1"].lock
    others = 4

    def first(proposal: Proposal) -> Claimed:
        if not book.calls:
            until = _soon()
            while len(lock._waiters) < others and RealRuntime().monotonic() < until:  # type: ignore[attr-defined]
                RealRuntime().sleep(0.001)
            book.generation += 1
            book.taken_at = book.generation
        return book.claim(proposal)

    run_all(
        [
            lambda number=number: tracker.claim("n1", wanted(f"{number}", pinned(1)), first, _soon())  # type: ignore[misc]
            for number in range(others + 1)
        ]
    )
    assert len(book.claims) == others + 1
    assert book.calls == others + 2


def test_what_others_give_back_meanwhile_makes_no_plan_old() -> None:
    book = Pages()
    tracker = ResourceTracker(RealRuntime(), [book.report], book.refresh)
    first, second = take(tracker, book, "a"), take(tracker, book, "b")
    calls, refreshed, freed = book.calls, book.refreshed, book.free(first.claim)
    take(tracker, book, "c")
    assert book.calls == calls + 1
    tracker.released("n1", second.claim, book.free(second.claim))
    tracker.released("n1", first.claim, freed)
    assert book.refreshed == refreshed
    assert tracker.view("n1").generation == book.generation
    assert same(tracker, book)


def test_a_view_that_comes_late_takes_back_nothing_that_is_known() -> None:
    book = Pages()
    tracker = ResourceTracker(RealRuntime(), [book.report], book.refresh)
    first, second = take(tracker, book, "a"), take(tracker, book, "b")
    freed = book.free(first.claim)
    late = book.view()
    tracker.released("n1", second.claim, book.free(second.claim))
    tracker.load(late)
    assert tracker.released("n1", first.claim, freed)
    assert tracker.not_held == 0
    assert tracker.view("n1").generation == book.generation
    assert same(tracker, book)


def test_the_release_of_a_claim_that_a_view_no_longer_had_is_not_counted_as_unknown() -> None:
    book = Pages()
    tracker = ResourceTracker(RealRuntime(), [book.report], book.refresh)
    held = take(tracker, book, "a")
    generation = book.free(held.claim)
    tracker.refresh("n1")
    assert tracker.released("n1", held.claim, generation)
    assert tracker.not_held == 0
    assert not tracker.released("n1", held.claim, generation)
    assert tracker.not_held == 1
    assert same(tracker, book)
