"""The fit on named machines: which host cell, which CPUs, and why not."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pinfold.model import numa
from pinfold.model.numa import (
    ANY,
    LARGE,
    SMALL,
    CellUsage,
    GuestCell,
    GuestTopology,
    HostCell,
    HostPages,
    HostTopology,
    Limits,
    Placement,
    Refusal,
)
from tests.model.numa_worlds import (
    HUGE_KB,
    LARGE_KB,
    SMALL_KB,
    Host,
    cell,
    dedicated,
    host,
    mixed,
    no_smt,
    pins,
    shared,
    shared_only,
    smt,
    split,
)

RATIOS = Limits(cpu_ratio=16.0, memory_ratio=1.5)


def fill(
    on: Host, guests: Iterable[GuestTopology], limits: Limits | None = None, *, pack: bool = False
) -> list[Placement | None]:
    """Fit one guest after the other, each beside those before it."""
    topology, usage = on
    found = []
    for guest in guests:
        placement = numa.fit(topology, usage, guest, limits, pack=pack)
        if placement:
            usage = numa.add(usage, placement, topology)
        found.append(placement)
    return found


def cells(found: list[Placement | None]) -> list[list[int] | None]:
    return [[placed.cell for placed in each.cells] if each else None for each in found]


# Siblings


@pytest.mark.parametrize("threads", [None, "prefer", "require"])
def test_siblings_are_filled_together(threads: str | None) -> None:
    assert pins(numa.fit(*smt(), dedicated(4, threads=threads))) == [(0, {0: 0, 1: 8, 2: 1, 3: 9})]


def test_an_odd_vcpu_goes_to_a_core_that_is_broken_already() -> None:
    found = fill(smt(), [dedicated(3), dedicated(3), dedicated(3)])
    assert [pins(each) for each in found] == [
        [(0, {0: 0, 1: 8, 2: 1})],
        [(1, {0: 4, 1: 12, 2: 5})],
        [(0, {0: 2, 1: 10, 2: 9})],
    ]


def test_a_single_vcpu_leaves_whole_cores_whole() -> None:
    one = host(cell(0, "0-7", threads=2), pinned="6")
    assert pins(numa.fit(*one, dedicated(1))) == [(0, {0: 2})]


def test_of_cores_with_enough_free_threads_the_one_with_the_fewest_is_broken() -> None:
    one = host(cell(0, "0-15", threads=4), pinned="1,2,6")
    assert pins(numa.fit(*one, dedicated(3))) == [(0, {0: 5, 1: 9, 2: 13})]
    assert pins(numa.fit(*one, dedicated(2))) == [(0, {0: 10, 1: 14})]


def test_without_free_siblings_prefer_takes_single_threads() -> None:
    broken = host(cell(0, "0-3,8-11", threads=2), pinned="0-3")
    assert pins(numa.fit(*broken, dedicated(4, threads="prefer"))) == [(0, {0: 8, 1: 9, 2: 10, 3: 11})]
    assert numa.fit(*broken, dedicated(2, threads="require")) is None


def test_require_refuses_a_host_without_siblings() -> None:
    assert numa.fit(*no_smt(), dedicated(2, threads="require")) is None


def test_require_never_leaves_two_vcpus_without_a_sibling() -> None:
    """Three free threads on two cores: a pair and a single."""
    one = host(cell(0, "0-3", threads=2), pinned="3")
    assert numa.fit(*one, dedicated(3, threads="require")) is None
    assert numa.fit(*one, dedicated(2, threads="require"))


# Isolate


@pytest.mark.parametrize(("vcpus", "held"), [(2, 4), (4, 8), (5, None)])
def test_isolate_takes_whole_cores_of_dedicated_cpus(vcpus: int, held: int | None) -> None:
    """F044. On a host with cpu_dedicated_set, where Nova refuses siblings altogether."""
    placement = numa.fit(*host(cell(0, "0-7", threads=2)), dedicated(vcpus, threads="isolate"))
    assert (placement and len(numa.held_cpus(placement.cells[0]))) == held


@pytest.mark.parametrize(("vcpus", "held"), [(2, 2), (4, 4), (5, None)])
def test_isolate_without_siblings_takes_single_cpus(vcpus: int, held: int | None) -> None:
    """F044."""
    placement = numa.fit(*host(cell(0, "0-3")), dedicated(vcpus, threads="isolate"))
    assert (placement and len(numa.held_cpus(placement.cells[0]))) == held


def test_nobody_lands_on_an_isolated_core() -> None:
    """F044."""
    first, second = fill(host(cell(0, "0-7", threads=2)), [dedicated(2, threads="isolate"), dedicated(4)])
    assert first
    assert pins(second) == [(0, {0: 2, 1: 6, 2: 3, 3: 7})]


def test_isolate_shares_no_core_with_floating_guests() -> None:
    """F044. The sibling of CPU 1 is CPU 3, over which others float."""
    one = HostCell(0, frozenset({3}), frozenset({0, 1, 2}), (frozenset({0, 2}), frozenset({1, 3})), 1024)
    on = host(one)
    assert pins(numa.fit(*on, dedicated(1, threads="isolate"))) == [(0, {0: 0})]
    assert numa.fit(*on, dedicated(2, threads="isolate")) is None


def test_isolate_on_a_host_of_the_old_kind_is_as_novas() -> None:
    old = host(cell(0, "0-3,8-11", "0-3,8-11", threads=2), cell(1, "4-7,12-15", "4-7,12-15", threads=2))
    found = fill(old, [dedicated(3, threads="isolate")] * 2)
    assert [pins(each) for each in found] == [[(0, {0: 0, 1: 1, 2: 2})], [(1, {0: 4, 1: 5, 2: 6})]]


def test_isolate_takes_the_smaller_cores_first() -> None:
    uneven = HostCell(0, frozenset(), frozenset(range(3)), (frozenset({0, 1}), frozenset({2})), 1024)
    assert pins(numa.fit(*host(uneven), dedicated(1, threads="isolate"))) == [(0, {0: 2})]


# Emulator threads


def test_the_emulator_cpu_is_one_more() -> None:
    """F054."""
    three, four = (numa.fit(*host(cell(0, "0-3")), dedicated(n, emulator="isolate")) for n in (3, 4))
    assert pins(three) == [(0, {0: 0, 1: 1, 2: 2})]
    assert three
    assert three.cells[0].reserved == {3}
    assert four is None


@pytest.mark.parametrize(
    ("vcpus", "threads", "reserved"), [(2, None, 1), (3, None, 9), (4, "require", 2), (2, "isolate", 2)]
)
def test_the_emulator_cpu_breaks_no_core_that_is_whole_if_it_can(
    vcpus: int, threads: str | None, reserved: int
) -> None:
    placement = numa.fit(*smt(), dedicated(vcpus, threads=threads, emulator="isolate"))
    assert placement
    assert placement.cells[0].reserved == {reserved}


def test_the_emulator_cpu_goes_with_the_first_guest_cell() -> None:
    placement = numa.fit(*no_smt(), dedicated(2, 2, emulator="isolate"))
    assert placement
    assert [placed.reserved for placed in placement.cells] == [{2}, frozenset()]


def test_with_isolate_the_emulator_cpu_has_a_core_of_its_own() -> None:
    """Nova takes a thread whose sibling is somebody else's, and then fails to add the claim."""
    one = host(cell(0, "0-5", threads=2), pinned="0,3")
    assert numa.fit(*one, dedicated(2, threads="isolate", emulator="isolate")) is None
    placement = numa.fit(*one, dedicated(1, threads="isolate", emulator="isolate"))
    assert placement
    assert numa.held_cpus(placement.cells[0]) == {1, 2, 4, 5}


def test_sharing_emulator_threads_takes_no_cpu() -> None:
    assert numa.fit(*host(cell(0, "0-3")), dedicated(4, emulator="share"))


# Mixed


def test_mixed_guests_fill_pins_and_float_within_the_ratio() -> None:
    found = fill(split(), [mixed((2, 2), memory_mb=2048)] * 5, Limits(4.0, 1.0))
    assert [each and pins(each)[0] for each in found] == [
        (0, {2: 2, 3: 3}),
        (1, {2: 8, 3: 9}),
        (0, {2: 4, 3: 5}),
        (1, {2: 10, 3: 11}),
        None,
    ]


def test_both_halves_of_a_mixed_guest_must_fit() -> None:
    """F099."""
    assert numa.fit(*host(cell(0, "2-3", "0-1")), mixed((2, 2)))
    assert numa.fit(*host(cell(0, "2-3", "0")), mixed((2, 2))) is None
    assert numa.fit(*host(cell(0, "2", "0-1")), mixed((2, 2))) is None


def test_a_cell_without_dedicated_vcpus_has_no_pins_and_fits() -> None:
    """F099."""
    assert pins(numa.fit(*split(), mixed((2, 0), (0, 2)))) == [(0, {}), (1, {2: 8, 3: 9})]


# Cells as a whole


@pytest.mark.parametrize(
    ("guest", "placed"), [((1, 2), [0, 1]), ((2, 1), [1, 0]), ((2, 2), None), ((1, 1, 1), None)]
)
def test_guest_cells_fit_together_or_not_at_all(guest: tuple[int, ...], placed: list[int] | None) -> None:
    """F052."""
    found = numa.fit(*host(cell(0, "0-1"), cell(1, "2-3"), pinned="0"), dedicated(*guest))
    assert (found and [each.cell for each in found.cells]) == placed


def test_two_guest_cells_do_not_share_a_host_cell() -> None:
    """F052."""
    assert numa.fit(*host(cell(0, "0-7")), dedicated(1, 1)) is None


def test_unequal_guest_cells_fit_where_only_some_order_does() -> None:
    """Nova finds none for [1, 3] here, though it does for [3, 1]."""
    one = host(cell(0, "0"), cell(1, "1-4"), cell(2, "5"))
    for order, expected in [((1, 3), [0, 1]), ((3, 1), [1, 0])]:
        placement = numa.fit(*one, dedicated(*order))
        assert placement
        assert [placed.cell for placed in placement.cells] == expected


def test_every_dedicated_cell_has_its_pins() -> None:
    """Nova answers [1, 1, 3] here with a cell that is not pinned."""
    one = host(cell(0, "0-2"), cell(1, "3-5"), cell(2, "6-7"))
    placement = numa.fit(*one, dedicated(1, 1, 3))
    assert placement
    assert sorted(len(placed.pins) for placed in placement.cells) == [1, 1, 3]


def _asymmetric(policy: str) -> GuestTopology:
    two, six = frozenset(range(2)), frozenset(range(2, 8))
    none: frozenset[int] = frozenset()
    if policy == "shared":
        return GuestTopology((GuestCell(0, two, none, 2048), GuestCell(1, six, none, 4096)))
    return GuestTopology((GuestCell(0, none, two, 2048), GuestCell(1, none, six, 4096)), "dedicated")


def test_asymmetric_guests_fill_a_host_crosswise() -> None:
    on = host(cell(0, "0-7", threads=2, memory_mb=16384), cell(1, "8-15", threads=2, memory_mb=16384))
    first, second = fill(on, [_asymmetric("dedicated")] * 2)
    assert pins(first) == [(0, {0: 0, 1: 4}), (1, {2: 8, 3: 12, 4: 9, 5: 13, 6: 10, 7: 14})]
    assert pins(second) == [(1, {0: 11, 1: 15}), (0, {2: 1, 3: 5, 4: 2, 5: 6, 6: 3, 7: 7})]


def test_asymmetric_floating_cells_keep_their_order() -> None:
    on = host(cell(0, "", "0-7"), cell(1, "", "8-15"))
    assert cells(fill(on, [_asymmetric("shared")])) == [[0, 1]]


# Which host cells


def test_spread_takes_the_emptiest_cell_and_pack_the_fullest() -> None:
    assert cells(fill(no_smt(), [dedicated(2)] * 3)) == [[0], [1], [0]]
    assert cells(fill(no_smt(), [dedicated(2)] * 3, pack=True)) == [[0], [0], [1]]


def test_free_cpus_count_before_free_memory() -> None:
    topology, _ = no_smt()
    usage = (
        CellUsage(0, frozenset({0, 1})),
        CellUsage(1, frozenset({4}), memory_mb=4096, pages={4: 1048576}),
    )
    assert pins(numa.fit(topology, usage, dedicated(2))) == [(1, {0: 5, 1: 6})]


def test_floating_guests_go_where_fewest_float() -> None:
    topology, _ = shared_only()
    usage = (CellUsage(0, shared_vcpus=3), CellUsage(1, shared_vcpus=2, memory_mb=4096))
    assert cells(fill((topology, usage), [shared(1)])) == [[1]]
    assert cells(fill((topology, usage), [shared(1)], pack=True)) == [[0]]


def test_unequal_guest_cells_leave_the_largest_cell_free() -> None:
    """2 + 3 vCPUs on 4 and 3 free: 3 on the cell of 3, which keeps 2 together."""
    on = host(cell(0, "0-3"), cell(1, "4-6"))
    placement = numa.fit(*on, dedicated(3, 2))
    assert placement
    assert [placed.cell for placed in placement.cells] == [1, 0]


# Pages


def _pages(*rows: tuple[int, ...]) -> list[HostPages]:
    return [HostPages(*row) for row in rows]


def test_large_pages_are_taken_where_they_are() -> None:
    on = host(cell(0, "", "0-3"), cell(1, "", "4-7", pages=_pages((SMALL_KB, 1 << 20), (LARGE_KB, 1024))))
    found = fill(on, [shared(2, memory_mb=2048, page_size=LARGE)] * 2)
    assert found[0]
    assert [(p.cell, p.page_size_kb, p.pages) for p in found[0].cells] == [(1, LARGE_KB, 1024)]
    assert found[1] is None


def test_any_takes_the_largest_size_that_divides_and_has_room() -> None:
    table = _pages((HUGE_KB, 2), (LARGE_KB, 1024), (SMALL_KB, 1 << 20))
    on = host(cell(0, "", "0-3", pages=table), cell(1, "", "4-7", pages=table))
    found = fill(on, [shared(2, memory_mb=2048, page_size=ANY)] * 5)
    assert [each and (each.cells[0].cell, each.cells[0].page_size_kb) for each in found] == [
        (0, HUGE_KB),
        (1, HUGE_KB),
        (0, LARGE_KB),
        (1, LARGE_KB),
        (0, SMALL_KB),
    ]
    odd = numa.fit(*on, shared(2, memory_mb=1536, page_size=LARGE))
    assert odd
    assert (odd.cells[0].page_size_kb, odd.cells[0].pages) == (LARGE_KB, 768)


def test_reserved_pages_are_not_handed_out() -> None:
    """F098."""
    on = host(cell(0, "0-3", pages=_pages((SMALL_KB, 1 << 20), (LARGE_KB, 1024, 512))))
    first, second = fill(on, [dedicated(1, memory_mb=1024, page_size=LARGE_KB)] * 2)
    assert first
    assert second is None
    assert numa.fit(*on, dedicated(1, memory_mb=1025, page_size=LARGE_KB)) is None


def test_pages_that_were_asked_for_are_never_overcommitted() -> None:
    guest = shared(1, memory_mb=6144, page_size=SMALL)
    assert cells(fill(shared_only(), [guest] * 3, RATIOS)) == [[0], [1], None]


def test_a_page_size_that_the_host_has_not_does_not_fit() -> None:
    assert numa.fit(*shared_only(), shared(1, page_size=HUGE_KB)) is None
    assert numa.fit(*shared_only(), shared(1, page_size=LARGE)) is None
    assert numa.fit(*host(cell(0, "", "0-3", pages=[])), shared(1, page_size=SMALL)) is None


def test_a_guest_without_a_page_size_takes_the_smallest_pages() -> None:
    placement = numa.fit(*no_smt(), dedicated(1, memory_mb=4))
    assert placement
    assert (placement.cells[0].page_size_kb, placement.cells[0].pages) == (SMALL_KB, 1024)


# Memory and ratios


def test_floating_guests_overcommit_up_to_the_ratios() -> None:
    assert cells(fill(shared_only(), [shared(4, memory_mb=6144)] * 5, RATIOS)) == [[0], [1], [0], [1], None]
    two = [shared(4, 4, memory_mb=2048)] * 3
    assert cells(fill(shared_only(), two, Limits(2.0, 1.0))) == [[0, 1], [0, 1], None]


def test_without_limits_floating_guests_have_no_end_but_themselves() -> None:
    assert None not in fill(shared_only(), [shared(4, memory_mb=8192)] * 9)
    assert numa.fit(*shared_only(), shared(5)) is None
    assert numa.fit(*shared_only(), shared(1, memory_mb=8193)) is None


def test_memory_of_pinned_guests_is_never_overcommitted() -> None:
    guest = dedicated(1, memory_mb=6144)
    assert cells(fill(no_smt(), [guest] * 3, Limits(16.0, 4.0))) == [[0], [1], None]


@pytest.mark.parametrize("pages", [[], None])
def test_cells_without_memory_or_cpus_are_passed_over(pages: list[HostPages] | None) -> None:
    on = host(cell(0), cell(1, "0-3", memory_mb=0, pages=pages), cell(2, "4-7", pages=pages))
    assert cells(fill(on, [dedicated(2), dedicated(2), dedicated(2)])) == [[2], [2], None]


def test_a_host_without_cells_fits_nobody() -> None:
    assert numa.fit(HostTopology(()), (), dedicated(1)) is None
    assert numa.explain(HostTopology(()), (), dedicated(1)) == (Refusal(None, "cells", 1, 0),)


# Names of CPUs and cells


def test_cpus_above_the_word_size_and_with_gaps_are_pinned_exactly() -> None:
    """F101."""
    on = host(cell(0, "63,64,127,255,1023,4096"))
    placement = numa.fit(*on, dedicated(6))
    assert pins(placement) == [(0, {0: 63, 1: 64, 2: 127, 3: 255, 4: 1023, 5: 4096})]
    assert placement
    used = numa.add(on[1], placement, on[0])
    assert numa.release(used, placement, on[0]) == on[1]


def test_usage_is_found_by_the_name_of_its_cell() -> None:
    topology, _ = host(cell(7, "0-1"), cell(3, "2-3"))
    usage = [CellUsage(3, frozenset({2, 3})), CellUsage(7, frozenset({0}))]
    assert pins(numa.fit(topology, usage, dedicated(1))) == [(7, {0: 1})]


def test_cells_whose_usage_is_not_given_are_empty() -> None:
    topology, _ = host(cell(0, "0"), cell(1, "1-2"))
    assert pins(numa.fit(topology, (), dedicated(2))) == [(1, {0: 1, 1: 2})]


def test_an_answer_follows_the_usage_that_is_given_and_not_an_earlier_one() -> None:
    topology, usage = no_smt()
    assert pins(numa.fit(topology, usage, dedicated(1))) == [(0, {0: 0})]
    fuller = (CellUsage(0, frozenset({0, 1})), usage[1])
    assert pins(numa.fit(topology, fuller, dedicated(1))) == [(1, {0: 4})]
    changing = list(usage)
    assert pins(numa.fit(topology, changing, dedicated(1))) == [(0, {0: 0})]
    changing[0] = fuller[0]
    assert pins(numa.fit(topology, changing, dedicated(1))) == [(1, {0: 4})]
