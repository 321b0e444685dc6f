"""Groups, zones and hints in a placement."""

from __future__ import annotations

import random

import pytest

from pinfold.model import groups, placement
from pinfold.model.groups import GroupRule
from pinfold.model.placement import Candidate, Wish
from pinfold.model.ranking import Ranking
from tests.model.test_placement import asks, candidate


def hosts(*names: str, zone: str = "nova") -> list[Candidate]:
    return [
        Candidate(name, name, one.report, one.usage, None, zone)
        for name in names
        for one in (candidate(name),)
    ]


def in_order(wish: Wish, *candidates: Candidate) -> list[str]:
    found = Ranking(candidates).choose(asks(1), wish, random.Random(1), 9)
    return [candidate.node for candidate in found]


def chosen(wish: Wish, *candidates: Candidate) -> set[str]:
    return set(in_order(wish, *(candidates or hosts("a", "b", "c"))))


def grouped(policy: str, most: int = 1, **members: int) -> Wish:
    return Wish(group=GroupRule(policy, members, most))


def test_anti_affinity_passes_over_hosts_with_a_member() -> None:
    assert chosen(grouped("anti-affinity", a=1)) == {"b", "c"}
    assert chosen(grouped("anti-affinity", a=1, b=1, c=1)) == set()


def test_anti_affinity_may_allow_several_on_a_host() -> None:
    assert chosen(grouped("anti-affinity", most=2, a=1, b=2)) == {"a", "c"}


def test_affinity_stays_with_its_members_and_the_first_goes_anywhere() -> None:
    assert chosen(grouped("affinity", b=3)) == {"b"}
    assert chosen(grouped("affinity")) == {"a", "b", "c"}


@pytest.mark.parametrize(("policy", "first"), [("soft-affinity", "b"), ("soft-anti-affinity", "a")])
def test_soft_policies_prefer_and_never_refuse(policy: str, first: str) -> None:
    wish = grouped(policy, b=2, c=1)
    order = in_order(wish, *hosts("a", "b", "c"))
    assert (order[0], set(order)) == (first, {"a", "b", "c"})


def test_a_soft_policy_comes_before_the_spread() -> None:
    """The host with its group is the fuller one, and still comes first."""
    order = in_order(grouped("soft-affinity", small=1), *hosts("empty"), *hosts("small"))
    assert order[0] == "small"


def test_a_pinned_zone_is_the_only_one() -> None:
    nodes = [*hosts("a"), *hosts("b", zone="az1")]
    assert chosen(Wish(zone="az1"), *nodes) == {"b"}
    assert chosen(Wish(zone="nova"), *nodes) == {"a"}
    assert chosen(Wish(), *nodes) == {"a", "b"}


def test_hints_name_hosts_to_be_on_and_to_be_away_from() -> None:
    assert chosen(Wish(same=frozenset({"a", "b"}))) == {"a", "b"}
    assert chosen(Wish(same=frozenset())) == set()
    assert chosen(Wish(different=frozenset({"a"}))) == {"b", "c"}


def test_each_refusal_is_told_in_words() -> None:
    nodes = [*hosts("a", zone="az1"), *hosts("b", "c", "d")]
    wish = Wish(
        zone="nova", different=frozenset({"b"}), group=GroupRule(groups.ANTI_AFFINITY, {"c": 1, "d": 1})
    )
    text = placement.sentence(placement.explain(nodes, asks(1), wish))
    assert text == (
        "No valid host was found: of 4 hosts, 2 have as many of its server group as it may have, "
        "1 is not in its availability zone, 1 has servers that it is to be away from."
    )
