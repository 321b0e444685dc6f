"""What holds for every host and every guest."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pinfold.model import numa
from pinfold.model.errors import AccountingError
from pinfold.model.numa import (
    GuestTopology,
    HostCell,
    HostTopology,
    Limits,
    Placement,
)
from tests.model.numa_checker import broken, possible
from tests.model.numa_worlds import Host, guests, hosts, limits

# About every third guest fits; and the machine that runs this may be busy.
calm = settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
thorough = settings(calm, max_examples=200)


@thorough
@given(hosts(), guests(), limits(), st.booleans())
def test_what_fits_is_valid(host: Host, guest: GuestTopology, limit: Limits | None, pack: bool) -> None:
    placement = numa.fit(*host, guest, limit, pack=pack)
    assume(placement is not None)
    assert placement is not None
    assert broken(host, guest, limit, placement) == []


@thorough
@given(hosts(), guests(), limits(), st.booleans())
def test_what_does_not_fit_is_not_found_by_trying_everything(
    host: Host, guest: GuestTopology, limit: Limits | None, pack: bool
) -> None:
    placement = numa.fit(*host, guest, limit, pack=pack)
    assert (placement is not None) == possible(host, guest, limit)


@calm
@given(hosts(), guests(), limits())
def test_there_are_reasons_exactly_where_it_does_not_fit(
    host: Host, guest: GuestTopology, limit: Limits | None
) -> None:
    reasons = numa.explain(*host, guest, limit)
    assert (numa.fit(*host, guest, limit) is None) == bool(reasons)


@calm
@given(hosts(), guests(), limits())
def test_adding_and_releasing_is_the_identity(host: Host, guest: GuestTopology, limit: Limits | None) -> None:
    topology, usage = host
    placement = numa.fit(topology, usage, guest, limit)
    assume(placement is not None)
    assert placement is not None
    added = numa.add(usage, placement, topology)
    assert numa.release(added, placement, topology) == usage


@calm
@given(hosts(), guests(), limits())
def test_what_is_pinned_cannot_be_added_twice(host: Host, guest: GuestTopology, limit: Limits | None) -> None:
    topology, usage = host
    placement = numa.fit(topology, usage, guest, limit)
    assume(placement is not None)
    assert placement is not None
    assume(any(numa.held_cpus(placed) for placed in placement.cells))
    added = numa.add(usage, placement, topology)
    with pytest.raises(AccountingError):
        numa.add(added, placement, topology)


@calm
@given(hosts(), st.lists(guests(), max_size=4), st.randoms(use_true_random=False))
def test_the_sum_of_claims_does_not_depend_on_their_order(
    host: Host, several: list[GuestTopology], random: Random
) -> None:
    topology, _ = host
    usage, placements = numa.empty_usage(topology), []
    for guest in several:
        if placement := numa.fit(topology, usage, guest, Limits(4.0, 1.5)):
            usage = numa.add(usage, placement, topology)
            placements.append(placement)
    random.shuffle(placements)
    again = numa.empty_usage(topology)
    for placement in placements:
        again = numa.add(again, placement, topology)
    assert again == usage


@calm
@given(hosts(), guests(), limits(), st.booleans())
def test_the_same_question_gets_the_same_answer(
    host: Host, guest: GuestTopology, limit: Limits | None, pack: bool
) -> None:
    """Whether or not something was kept from the question before."""
    topology, usage = host
    first = numa.fit(topology, usage, guest, limit, pack=pack)
    fresh = msgspec.json.decode(msgspec.json.encode(topology), type=HostTopology)
    assert numa.fit(topology, usage, guest, limit, pack=pack) == first
    assert numa.fit(topology, list(usage), guest, limit, pack=pack) == first
    assert numa.fit(fresh, usage, guest, limit, pack=pack) == first


@calm
@given(hosts(), guests(), limits(), st.permutations(range(40)))
def test_names_of_cpus_do_not_matter(
    host: Host, guest: GuestTopology, limit: Limits | None, names: list[int]
) -> None:
    placement = numa.fit(*host, guest, limit)
    other = numa.fit(*_renamed(host, names), guest, limit)
    assert _shape(other) == _shape(placement)


@calm
@given(hosts(), guests(), limits(), st.randoms(use_true_random=False))
def test_the_order_of_host_cells_does_not_matter_for_whether_it_fits(
    host: Host, guest: GuestTopology, limit: Limits | None, random: Random
) -> None:
    pairs = list(zip(host[0].cells, host[1], strict=True))
    random.shuffle(pairs)
    shuffled = HostTopology(tuple(cell for cell, _ in pairs)), tuple(use for _, use in pairs)
    assert (numa.fit(*shuffled, guest, limit) is None) == (numa.fit(*host, guest, limit) is None)


@calm
@given(hosts(), guests(), limits(), st.booleans())
def test_an_empty_host_fits_what_fits_it_when_it_is_used(
    host: Host, guest: GuestTopology, limit: Limits | None, pack: bool
) -> None:
    topology, usage = host
    assume(numa.fit(topology, usage, guest, limit, pack=pack) is not None)
    assert numa.fit(topology, numa.empty_usage(topology), guest, limit, pack=pack) is not None


def _renamed(host: Host, names: list[int]) -> Host:
    def new(cpus: frozenset[int]) -> frozenset[int]:
        return frozenset(names[cpu] for cpu in cpus)

    def cell(old: HostCell) -> HostCell:
        siblings = tuple(map(new, old.siblings))
        return msgspec.structs.replace(
            old, shared=new(old.shared), dedicated=new(old.dedicated), siblings=siblings
        )

    topology, usage = host
    used = tuple(msgspec.structs.replace(use, pinned=new(use.pinned)) for use in usage)
    return HostTopology(tuple(map(cell, topology.cells))), used


def _shape(placement: Placement | None) -> list[tuple[int, int, int, int | None, int]] | None:
    """Where the guest cells are, and how much they take."""
    if placement is None:
        return None
    return [
        (placed.cell, len(placed.reserved), len(placed.held), placed.page_size_kb, placed.pages)
        for placed in placement.cells
    ]
