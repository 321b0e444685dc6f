"""Adding and releasing what a claim holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pinfold.model import numa
from pinfold.model.errors import AccountingError
from pinfold.model.numa import CellUsage, HostPages, HostTopology, Limits, PlacedCell, Placement
from tests.model.numa_worlds import HUGE_KB, LARGE_KB, SMALL_KB, cell, dedicated, host, mixed, shared

Change = Callable[[Any, Placement, HostTopology], tuple[CellUsage, ...]]


def _pinned(*cpus: int, **more: Any) -> Placement:
    pins = dict(enumerate(cpus))
    return Placement(
        (PlacedCell(0, 0, more.pop("shared", frozenset()), pins, more.pop("memory_mb", 0), **more),)
    )


@pytest.mark.parametrize(
    ("change", "cpus", "named"),
    [(numa.add, (1, 2), "1"), (numa.add, (9,), "9"), (numa.release, (1, 2), "2"), (numa.release, (7,), "7")],
)
def test_cpus_that_are_taken_or_not_held_or_not_there_are_refused_by_name(
    change: Change, cpus: tuple[int, ...], named: str
) -> None:
    """F038."""
    topology, usage = host(cell(0, "0-3"), pinned="0-1")
    with pytest.raises(AccountingError, match=named):
        change(usage, _pinned(*cpus), topology)
    assert usage[0].pinned == {0, 1}


def test_releasing_twice_is_an_error() -> None:
    """F038."""
    topology, usage = host(cell(0, "0-3"))
    once = numa.release(numa.add(usage, _pinned(0), topology), _pinned(0), topology)
    with pytest.raises(AccountingError):
        numa.release(once, _pinned(0), topology)


@pytest.mark.parametrize(
    "placement",
    [
        _pinned(memory_mb=1),
        _pinned(shared=frozenset({0})),
        _pinned(page_size_kb=LARGE_KB, pages=1),
        _pinned(memory_mb=0, overcommit=True, page_size_kb=SMALL_KB, pages=1),
    ],
)
def test_releasing_more_than_is_in_use_is_an_error_and_no_silent_zero(placement: Placement) -> None:
    """F098."""
    topology, usage = host(cell(0, "0-3", "4-5", pages=[HostPages(SMALL_KB, 9), HostPages(LARGE_KB, 9)]))
    with pytest.raises(AccountingError):
        numa.release(usage, placement, topology)


@pytest.mark.parametrize(
    ("placement", "named"),
    [
        (_pinned(memory_mb=20, page_size_kb=LARGE_KB, pages=10), "9 are free"),
        (_pinned(page_size_kb=HUGE_KB, pages=1), "no pages of 1048576 KiB"),
        (_pinned(shared=frozenset({0, 1, 2})), "shares 2 CPUs"),
        (_pinned(0, 0), "names a CPU twice"),
        (_pinned(0, reserved=frozenset({0})), "names a CPU twice"),
    ],
)
def test_adding_what_is_not_free_is_an_error(placement: Placement, named: str) -> None:
    topology, usage = host(cell(0, "0-3", "4-5", pages=[HostPages(SMALL_KB, 99), HostPages(LARGE_KB, 10, 1)]))
    with pytest.raises(AccountingError, match=named):
        numa.add(usage, placement, topology)


def test_memory_of_a_cell_without_a_page_table_is_not_promised_twice() -> None:
    topology, usage = host(cell(0, "0-3", memory_mb=100, pages=[]))
    usage = numa.add(usage, _pinned(0, memory_mb=60), topology)
    with pytest.raises(AccountingError, match="40 are free"):
        numa.add(usage, _pinned(1, memory_mb=60), topology)


def test_a_floating_guest_overcommits_memory_but_not_against_itself() -> None:
    topology, usage = host(cell(0, "", "0-3", memory_mb=100))
    once = Placement(
        (PlacedCell(0, 0, frozenset({0}), {}, 80, page_size_kb=4, pages=20480, overcommit=True),)
    )
    usage = numa.add(numa.add(usage, once, topology), once, topology)
    assert (usage[0].memory_mb, usage[0].overcommitted_mb, usage[0].pages) == (160, 160, {4: 40960})
    more = msgspec.structs.replace(once.cells[0], memory_mb=101, pages=101 * 256)
    with pytest.raises(AccountingError):
        numa.add(usage, Placement((more,)), topology)


def test_claims_may_be_added_up_in_another_order_than_they_were_made() -> None:
    """A pinned guest came first, and a floating one overcommits what the pinned one left."""
    topology, usage = host(cell(0, "0-3", "4-7", memory_mb=1000))
    first = numa.fit(topology, usage, dedicated(1, memory_mb=600))
    assert first
    second = numa.fit(topology, numa.add(usage, first, topology), shared(1, memory_mb=800), Limits(4.0, 1.5))
    assert second
    assert numa.add(numa.add(usage, second, topology), first, topology) == numa.add(
        numa.add(usage, first, topology), second, topology
    )


def test_an_error_in_the_second_cell_changes_nothing_in_the_first() -> None:
    topology, usage = host(cell(0, "0-3"), cell(1, "4-7"), pinned="4")
    two = Placement((PlacedCell(0, 0, frozenset(), {0: 0}, 0), PlacedCell(1, 1, frozenset(), {1: 4}, 0)))
    with pytest.raises(AccountingError):
        numa.add(usage, two, topology)
    assert [use.pinned for use in usage] == [frozenset(), {4}]


def test_a_cell_that_the_host_has_not_is_an_error() -> None:
    topology, usage = host(cell(0, "0-3"))
    with pytest.raises(AccountingError, match="no NUMA cell 5"):
        numa.add(usage, Placement((PlacedCell(0, 5, frozenset(), {}, 0),)), topology)


def test_usage_lands_on_the_cells_that_were_chosen() -> None:
    """F052."""
    topology, usage = host(cell(0, "0-1"), cell(1, "2-3"), pinned="0")
    placement = numa.fit(topology, usage, dedicated(1, 2))
    assert placement
    assert [use.pinned for use in numa.add(usage, placement, topology)] == [{0, 1}, {2, 3}]


def test_the_emulator_cpu_is_given_back_too() -> None:
    """F054."""
    topology, usage = host(cell(0, "0-3"))
    placement = numa.fit(topology, usage, dedicated(3, emulator="isolate"))
    assert placement
    for _ in range(100):
        usage = numa.release(numa.add(usage, placement, topology), placement, topology)
    assert usage[0].pinned == frozenset()


def test_the_page_table_outlives_a_guest_that_uses_none_of_it() -> None:
    """F098."""
    topology, usage = host(
        cell(0, "0-1", "2-3", pages=[HostPages(SMALL_KB, 4096), HostPages(LARGE_KB, 64, 32)])
    )
    placement = numa.fit(topology, usage, shared(1, memory_mb=4))
    assert placement
    usage = numa.add(usage, placement, topology)
    assert numa.fit(topology, usage, dedicated(1, memory_mb=64, page_size=LARGE_KB))
    assert not numa.fit(topology, usage, dedicated(1, memory_mb=66, page_size=LARGE_KB))


def test_held_siblings_are_taken_and_given_back() -> None:
    """F044."""
    topology, usage = host(cell(0, "0-7", threads=2))
    placement = numa.fit(topology, usage, dedicated(2, threads="isolate"))
    assert placement
    assert numa.held_cpus(placement.cells[0]) == {0, 1, 4, 5}
    added = numa.add(usage, placement, topology)
    assert added[0].pinned == {0, 1, 4, 5}
    assert numa.release(added, placement, topology) == usage


def test_a_mixed_guest_takes_pins_and_shared_vcpus() -> None:
    topology, usage = host(cell(0, "2-5", "0-1"))
    placement = numa.fit(topology, usage, mixed((2, 2)))
    assert placement
    use = numa.add(usage, placement, topology)[0]
    assert (set(use.pinned), use.shared_vcpus, use.memory_mb) == ({2, 3}, 2, 512)


def test_an_empty_host_has_an_entry_for_each_cell() -> None:
    topology, _ = host(cell(3, "0-1"), cell(7, "2-3"))
    assert numa.empty_usage(topology) == (CellUsage(3), CellUsage(7))
