"""What holds both places of a server that is rebuilt holds each of them, and no CPU, page or MB twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.model import host, numa
from pinfold.model.host import ClaimView, NodeReport, NodeUsage
from pinfold.model.numa import CellUsage, HostCell, HostPages, HostTopology
from pinfold.model.rebuild import Sizes, both, holds_both
from pinfold.model.request import Demand, demand_for

CELLS = tuple(
    HostCell(
        id=number,
        shared=frozenset({base, base + 8}),
        dedicated=frozenset((*range(base + 1, base + 8), *range(base + 9, base + 16))),
        siblings=tuple(frozenset({base + core, base + core + 8}) for core in range(8)),
        memory_mb=8192,
        pages=(HostPages(4, 1572864), HostPages(2048, 1024)),
    )
    for number, base in ((0, 0), (1, 16))
)
NODE = NodeReport("n1", HostTopology(CELLS), memory_mb=16384, disk_gb=100, cpu_ratio=4.0)

SPECS = st.fixed_dictionaries(
    {},
    optional={
        "hw:cpu_policy": st.sampled_from(["dedicated", "shared", "dedicated"]),
        "hw:numa_nodes": st.sampled_from(["1", "2"]),
        "hw:mem_page_size": st.sampled_from(["small", "large", "any", "2048"]),
        "hw:cpu_thread_policy": st.sampled_from(["prefer", "require"]),
        "hw:emulator_threads_policy": st.just("isolate"),
    },
)


def demand(specs: dict[str, str]) -> Demand:
    """Four vCPUs and 1024 MB, with whatever of the extra specs goes together."""
    dedicated = specs.get("hw:cpu_policy") == "dedicated"
    fitting = {
        name: value
        for name, value in specs.items()
        if dedicated or name not in ("hw:cpu_thread_policy", "hw:emulator_threads_policy")
    }
    return demand_for(vcpus=4, memory_mb=1024, disk_gb=1, extra_specs=fitting, image_properties={})


def sizes(of: Demand, usage: NodeUsage) -> Sizes | None:
    place = host.place(NODE, usage, of)
    return None if place is None else Sizes(of.memory_mb, of.disk_gb, of.shared_vcpus, place.placement)


def claim(of: Sizes, name: str = "it") -> ClaimView:
    return ClaimView(name, name, "current", of.memory_mb, of.disk_gb, of.shared_vcpus, of.placement)


def held(usage: NodeUsage) -> list[frozenset[int]]:
    return [cell.pinned for cell in usage.cells]


def amounts(cell: CellUsage) -> list[int]:
    return [cell.shared_vcpus, cell.memory_mb, cell.pages.get(4, 0), cell.pages.get(2048, 0)]


@settings(deadline=None, max_examples=300)
@given(others=st.lists(SPECS, max_size=4), before=SPECS, after=SPECS)
def test_both_is_the_least_that_holds_each(
    others: list[dict[str, str]], before: dict[str, str], after: dict[str, str]
) -> None:
    usage = host.usage_of(NODE, ())
    for number, specs in enumerate(others):
        other = sizes(demand(specs), usage)
        if other is not None:
            usage = host.add(NODE, usage, claim(other, f"other-{number}"))
    old, new = sizes(demand(before), usage), sizes(demand(after), usage)
    if old is None or new is None:
        return
    together = both(old, new)
    with_old, with_new = (host.add(NODE, usage, claim(one)) for one in (old, new))
    with_both = host.add(NODE, usage, claim(together))
    assert held(with_both) == [one | two for one, two in zip(held(with_old), held(with_new), strict=True)]
    for one, two, all_ in zip(with_old.cells, with_new.cells, with_both.cells, strict=True):
        for first, second, most in zip(amounts(one), amounts(two), amounts(all_), strict=True):
            assert max(first, second) <= most <= first + second
    assert host.release(NODE, with_both, claim(together)) == usage
    assert holds_both(together.placement) == (with_both.cells != with_new.cells)


def test_a_place_that_is_the_same_holds_nothing_more() -> None:
    old = sizes(demand({"hw:cpu_policy": "dedicated"}), host.usage_of(NODE, ()))
    assert old is not None
    assert both(old, old) == old


@pytest.mark.parametrize("specs", [{}, {"hw:cpu_policy": "dedicated"}])
def test_a_server_that_floated_holds_what_it_is_to_have(specs: dict[str, str]) -> None:
    usage = host.usage_of(NODE, ())
    old, new = sizes(demand({}), usage), sizes(demand(specs), usage)
    assert old is not None
    assert new is not None
    assert both(old, new).placement == new.placement
    assert both(old, new).shared_vcpus == 4


def test_what_is_held_for_the_other_place_is_no_place_of_a_guest_cell() -> None:
    usage = host.usage_of(NODE, ())
    dedicated = {"hw:cpu_policy": "dedicated"}
    old = sizes(demand(dedicated), usage)
    new = sizes(demand(dedicated | {"hw:numa_nodes": "2"}), usage)
    assert old is not None
    assert new is not None
    assert new.placement is not None
    placement = both(old, new).placement
    assert placement is not None
    assert placement.cells[: len(new.placement.cells)] == new.placement.cells
    for cell in placement.cells[len(new.placement.cells) :]:
        assert (cell.guest_cell, cell.pins) == (-1, {})
        assert not numa.held_cpus(cell) & {cpu for part in new.placement.cells for cpu in part.pins.values()}
