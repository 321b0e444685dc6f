"""Which threads are taken: never a whole core where a broken one would do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from pinfold.model.numa import CellUsage, HostCell
from pinfold.model.numa_pack import choose, shortfall
from pinfold.model.numa_view import CellView
from tests.model.test_numa_properties import calm

Taken = frozenset[int]


@st.composite
def cells_of_cores(draw: st.DrawFn) -> CellView:
    """Up to four cores of up to four threads, some of them taken."""
    threads = draw(st.sampled_from([1, 2, 3, 4]))
    cores = [
        frozenset(range(at, at + threads)) for at in range(0, threads * draw(st.integers(1, 4)), threads)
    ]
    cpus = frozenset().union(*cores)
    pinned = draw(st.frozensets(st.sampled_from(sorted(cpus))))
    return CellView(HostCell(0, frozenset(), cpus, tuple(cores), 0), CellUsage(0, pinned))


def _whole(view: CellView, taken: Taken) -> int:
    return sum(core <= view.free - taken for core in view.host.siblings)


def _groups(view: CellView, taken: Taken) -> list[int]:
    """How many threads of each core are taken, most first."""
    return sorted((n for core in view.host.siblings if (n := len(core & taken))), reverse=True)


def _others(view: CellView, groups: list[int]) -> Iterator[Taken]:
    """All sets of free threads that stand in groups of these sizes."""
    for cpus in combinations(sorted(view.free), sum(groups)):
        if _groups(view, frozenset(cpus)) == groups:
            yield frozenset(cpus)


@calm
@given(cells_of_cores(), st.integers(1, 8), st.sampled_from([None, "prefer"]))
def test_no_choice_with_the_same_groups_leaves_more_whole_cores(
    view: CellView, wanted: int, policy: str | None
) -> None:
    assume(shortfall(view, policy, wanted, 0) is None)
    taken = frozenset(choose(view, policy, wanted, 0)[0][:wanted])
    best = max(_whole(view, other) for other in _others(view, _groups(view, taken)))
    assert _whole(view, taken) == best


@calm
@given(cells_of_cores(), st.integers(1, 8), st.sampled_from([None, "prefer", "require"]))
def test_groups_are_as_large_as_novas(view: CellView, wanted: int, policy: str | None) -> None:
    """As many threads of each core as the largest n for which n threads of each core that has n suffice."""
    assume(shortfall(view, policy, wanted, 0) is None)
    free = [len(core & view.free) for core in view.host.siblings]
    fitting = [n for n in range(1, 5) if n * sum(have >= n for have in free) >= wanted]
    assume(fitting)
    largest = max(fitting)
    groups = _groups(view, frozenset(choose(view, policy, wanted, 0)[0][:wanted]))
    assert sum(group >= largest for group in groups) >= wanted // largest


@calm
@given(cells_of_cores(), st.integers(1, 8), st.sampled_from([None, "prefer", "require", "isolate"]))
def test_vcpus_of_a_core_are_neighbours(view: CellView, wanted: int, policy: str | None) -> None:
    assume(shortfall(view, policy, wanted, 0) is None)
    cpus = choose(view, policy, wanted, 0)[0][:wanted]
    order = [next(core for core in view.host.siblings if cpu in core) for cpu in cpus]
    changes = sum(one is not other for one, other in pairwise(order))
    assert len(cpus) == len(set(cpus)) == wanted
    assert changes <= len(set(order))


@calm
@given(cells_of_cores(), st.integers(1, 6), st.sampled_from([None, "prefer", "require"]))
def test_the_emulator_cpu_breaks_a_whole_core_only_where_no_other_thread_is_left(
    view: CellView, wanted: int, policy: str | None
) -> None:
    assume(shortfall(view, policy, wanted, 1) is None)
    cpus, reserved, _ = choose(view, policy, wanted, 1)
    before = frozenset(cpus[:wanted])
    after = before | reserved
    left_broken = [core & view.free - before for core in view.host.siblings if not core <= view.free - before]
    if any(left_broken):
        assert _whole(view, after) == _whole(view, before)
