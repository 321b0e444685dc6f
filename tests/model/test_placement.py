"""Which node is chosen, and what is said when none is."""

from __future__ import annotations

import random

import msgspec
import pytest

from pinfold.model import errors, host, placement
from pinfold.model.host import ClaimView, NodeReport, NodeUsage
from pinfold.model.numa import HostCell, HostTopology
from pinfold.model.placement import Candidate, Wish
from pinfold.model.ranking import Ranking
from pinfold.model.request import Demand, demand_for

ANY = Wish()


def a_node(name: str, dedicated: int = 8, memory_mb: int = 8192) -> NodeReport:
    cpus = frozenset(range(1, dedicated + 1))
    cell = HostCell(
        0, frozenset({0}), cpus, tuple(frozenset({cpu}) for cpu in range(dedicated + 1)), memory_mb
    )
    return NodeReport(name, HostTopology((cell,)), memory_mb, 100)


def candidate(name: str, *claims: ClaimView, state: str | None = None, dedicated: int = 8) -> Candidate:
    report = a_node(name, dedicated)
    return Candidate(name, name, report, host.usage_of(report, claims), state)


def asks(vcpus: int, memory_mb: int = 512, *, pinned: bool = True) -> Demand:
    specs = {"hw:cpu_policy": "dedicated"} if pinned else {}
    return demand_for(vcpus=vcpus, memory_mb=memory_mb, disk_gb=1, extra_specs=specs, image_properties={})


def claim_on(report: NodeReport, usage: NodeUsage, demand: Demand, name: str = "c") -> ClaimView:
    place = host.place(report, usage, demand)
    assert place is not None
    return ClaimView(
        name, name, "current", demand.memory_mb, demand.disk_gb, demand.shared_vcpus, place.placement
    )


def choose(*candidates: Candidate, demand: Demand, wish: Wish = ANY, most: int = 3) -> tuple[str, ...]:
    chosen = Ranking(candidates).choose(demand, wish, random.Random(1), most)
    return tuple(candidate.node for candidate in chosen)


def test_the_emptier_node_comes_first() -> None:
    empty = candidate("empty")
    used = candidate("used", claim_on(empty.report, empty.usage, asks(2)))
    assert choose(used, empty, demand=asks(2)) == ("empty", "used")


def test_nodes_that_are_down_disabled_or_have_failed_are_passed_over() -> None:
    nodes = candidate("a", state=placement.DOWN), candidate("b", state=placement.DISABLED), candidate("c")
    assert choose(*nodes, demand=asks(1), wish=Wish(failed=("c",))) == ()
    assert choose(*nodes, demand=asks(1)) == ("c",)


def test_a_host_that_was_asked_for_is_the_only_one_considered() -> None:
    assert choose(candidate("a"), candidate("b"), demand=asks(1), wish=Wish(host="b")) == ("b",)


def test_no_more_alternates_than_asked_for() -> None:
    assert len(choose(*(candidate(str(n)) for n in range(9)), demand=asks(1))) == 3


def test_equals_are_not_always_taken_in_one_order() -> None:
    nodes = [candidate(str(number)) for number in range(5)]
    ranking = Ranking(nodes)
    firsts = {ranking.choose(asks(1), ANY, random.Random(seed), 1)[0].node for seed in range(50)}
    assert len(firsts) == 5


def test_a_little_more_free_memory_does_not_make_one_node_the_choice_of_all() -> None:
    nodes = [candidate(str(number)) for number in range(5)]
    used = claim_on(nodes[0].report, nodes[0].usage, asks(1, memory_mb=600, pinned=False))
    ranking = Ranking([*nodes[1:], candidate("used", used)])
    seeds = [random.Random(seed) for seed in range(50)]
    assert "used" in {ranking.choose(asks(1, memory_mb=601), ANY, seed, 1)[0].node for seed in seeds}
    assert "used" not in {ranking.choose(asks(1, memory_mb=600), ANY, seed, 1)[0].node for seed in seeds}


def test_a_node_is_ranked_by_what_it_is_now() -> None:
    nodes = [candidate(str(number)) for number in range(5)]
    ranking = Ranking(nodes)
    for node in nodes[1:]:
        ranking.put(candidate(node.node, claim_on(node.report, node.usage, asks(1))))
    assert ranking.choose(asks(1), ANY, random.Random(1), 1) == [nodes[0]]
    ranking.drop("0")
    assert len(ranking.choose(asks(7), ANY, random.Random(1), 9)) == len(ranking) == 4
    assert ranking.choose(asks(8), ANY, random.Random(1), 9) == []


def test_the_sentence_counts_hosts_by_what_they_lack() -> None:
    full = candidate("full")
    nodes = [
        candidate("full", claim_on(full.report, full.usage, asks(8))),
        candidate("small", dedicated=2),
        candidate("dead", state=placement.DOWN),
    ]
    refusals = placement.explain(nodes, asks(4), ANY)
    text = placement.sentence(refusals)
    assert text == (
        "No valid host was found: of 3 hosts, 1 has too few free dedicated CPUs in a cell, "
        "1 has too few dedicated CPUs in a cell, 1 is down."
    )
    assert [refusal.reasons[0].cell for refusal in refusals] == [0, 0, None]


def test_without_hosts_it_says_so() -> None:
    assert placement.sentence(()) == "No valid host was found: there are no hosts."


def test_totals_refuse_memory_disk_and_shared_cpus() -> None:
    report = a_node("a")
    usage = host.usage_of(report, ())
    assert [r.constraint for r in host.explain(report, usage, asks(2, 9000, pinned=False))] == [
        "memory_mb",
        "shared_vcpus",
    ]
    big = msgspec.structs.replace(asks(1, pinned=False), disk_gb=101)
    assert [r.constraint for r in host.explain(report, usage, big)] == ["disk_gb"]


def test_adding_and_releasing_a_claim_are_inverses() -> None:
    report = a_node("a")
    empty = host.usage_of(report, ())
    claim = claim_on(report, empty, asks(4))
    used = host.add(report, empty, claim)
    assert host.release(report, used, claim) == empty
    with pytest.raises(errors.AccountingError):
        host.add(report, used, claim)
    with pytest.raises(errors.AccountingError):
        host.release(report, empty, claim)
