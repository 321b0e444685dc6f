"""The partition of a machine's CPUs: tables over the default machine, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.compute.partition import node_report
from pinfold.compute.settings import Partition
from pinfold.model import cpuset
from pinfold.model.errors import ConfigurationError
from pinfold.virt.driver import Inventory
from pinfold.virt.topology import default_machine

INVENTORY = Inventory("n1", default_machine().cells, 500)
MACHINE = frozenset(range(16))


def _sets(partition: Partition) -> tuple[str, str]:
    cells = node_report(INVENTORY, partition).topology.cells
    shared = frozenset().union(*(cell.shared for cell in cells))
    dedicated = frozenset().union(*(cell.dedicated for cell in cells))
    return cpuset.render(shared), cpuset.render(dedicated)


@pytest.mark.parametrize(
    ("shared", "dedicated", "expected"),
    [
        pytest.param("0,8", "1-7,9-15", ("0,8", "1-7,9-15"), id="both"),
        pytest.param("0-3", None, ("0-3", ""), id="shared only: nothing is dedicated"),
        pytest.param(None, "0-3", ("", "0-3"), id="dedicated only: nothing is shared"),
        pytest.param(None, None, ("0-15", ""), id="none: all shared, so that no CPU is both"),
        pytest.param("", "  ", ("0-15", ""), id="empty is unset"),
        pytest.param("", "0-3", ("", "0-3"), id="one of them empty"),
        pytest.param(" 0 , 8 ", "1-2,2-3", ("0,8", "1-3"), id="spaces and overlaps"),
        pytest.param("0,,8", "1-7,^5", ("0,8", "1-4,6-7"), id="stray commas and exclusions"),
        pytest.param("0", "1-3,^9", ("0", "1-3"), id="an exclusion of what is not there"),
    ],
)
def test_the_two_options_divide_the_machine(
    shared: str | None, dedicated: str | None, expected: tuple[str, str]
) -> None:
    """F110."""
    assert _sets(Partition(cpu_shared_set=shared, cpu_dedicated_set=dedicated)) == expected


@pytest.mark.parametrize(
    ("partition", "named"),
    [
        (Partition(cpu_shared_set="3-1"), ("cpu_shared_set", "3-1")),
        (Partition(cpu_shared_set="-1"), ("cpu_shared_set", "-1")),
        (Partition(cpu_dedicated_set="0-"), ("cpu_dedicated_set", "0-")),
        (Partition(cpu_dedicated_set="a"), ("cpu_dedicated_set", "a")),
        (Partition(cpu_dedicated_set="^3"), ("cpu_dedicated_set", "^3", "no CPU")),
        (
            Partition(cpu_shared_set="0-3", cpu_dedicated_set="2-7"),
            ("cpu_shared_set", "cpu_dedicated_set", "2-3"),
        ),
        (Partition(cpu_dedicated_set="14-17"), ("cpu_dedicated_set", "16-17", "n1", "0-15")),
        (Partition(cpu_shared_set="99"), ("cpu_shared_set", "99")),
        (Partition(reserved_memory_mb=99999), ("reserved_memory_mb", "99999", "32768")),
        (Partition(reserved_disk_gb=501), ("reserved_disk_gb", "501", "500")),
        (Partition(reserved_huge_pages=("node:2,size:2048,count:1",)), ("reserved_huge_pages", "node:2")),
        (Partition(reserved_huge_pages=("node:0,size:1048576,count:1",)), ("reserved_huge_pages", "1048576")),
        (Partition(reserved_huge_pages=("node:0,size:2048,count:1025",)), ("reserved_huge_pages", "1024")),
        (Partition(reserved_huge_pages=("node:0,size:2048",)), ("reserved_huge_pages", "node:0,size:2048")),
        (
            Partition(reserved_huge_pages=("node:0,node:1,size:2048,count:1",)),
            ("reserved_huge_pages", "node:0"),
        ),
        (Partition(reserved_huge_pages=("nonsense",)), ("reserved_huge_pages", "nonsense")),
        (Partition(reserved_huge_pages=("node:-1,size:2048,count:1",)), ("reserved_huge_pages", "node:-1")),
    ],
)
def test_what_cannot_be_is_refused_with_the_options_name_and_value(
    partition: Partition, named: tuple[str, ...]
) -> None:
    """F110."""
    with pytest.raises(ConfigurationError) as refused:
        node_report(INVENTORY, partition)
    for word in named:
        assert word in refused.value.message


_SETS = st.frozensets(st.integers(0, 15))


@given(_SETS, _SETS)
def test_the_equations_hold_or_the_node_is_refused(shared: frozenset[int], dedicated: frozenset[int]) -> None:
    partition = Partition(cpu_shared_set=cpuset.render(shared), cpu_dedicated_set=cpuset.render(dedicated))
    try:
        cells = node_report(INVENTORY, partition).topology.cells
    except ConfigurationError:
        assert shared & dedicated
        return
    for cell, machine in zip(cells, INVENTORY.cells, strict=True):
        assert not cell.shared & cell.dedicated
        assert cell.shared | cell.dedicated <= machine.cpus
        assert frozenset().union(*cell.siblings) == cell.shared | cell.dedicated
    assert frozenset().union(*(cell.dedicated for cell in cells)) == dedicated
    if shared or dedicated:
        assert frozenset().union(*(cell.shared for cell in cells)) == shared


def test_cores_keep_only_the_threads_that_guests_may_have() -> None:
    cells = node_report(INVENTORY, Partition(cpu_dedicated_set="1,2,9,4,12")).topology.cells
    assert cells[0].siblings == (frozenset({1, 9}), frozenset({2}))
    assert cells[1].siblings == (frozenset({4, 12}),)


def test_memory_disk_and_ratios_are_reported_before_the_ratios() -> None:
    partition = Partition(
        cpu_shared_set="0",
        cpu_allocation_ratio=8.0,
        memory_allocation_ratio=1.5,
        disk_allocation_ratio=2.0,
        reserved_memory_mb=768,
        reserved_disk_gb=20,
        pack=True,
    )
    report = node_report(INVENTORY, partition)
    assert (report.memory_mb, report.disk_gb) == (32000, 480)
    assert (report.cpu_ratio, report.memory_ratio, report.disk_ratio, report.pack) == (8.0, 1.5, 2.0, True)


def test_reserved_pages_add_up_and_leave_other_cells_alone() -> None:
    partition = Partition(
        reserved_huge_pages=("node:0,size:2048,count:64", " node: 0 , size: 2048 , count: 36 ")
    )
    cells = node_report(INVENTORY, partition).topology.cells
    kept = [{pages.size_kb: pages.reserved for pages in cell.pages} for cell in cells]
    assert kept == [{4: 0, 2048: 100}, {4: 0, 2048: 0}]
