"""The shape of fake machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pinfold.model.errors import ConfigurationError
from pinfold.model.numa import HostPages
from pinfold.virt.topology import default_machine, read_machine

CELL = {
    "id": 0,
    "cpuset": [0],
    "pcpuset": [1, 2, 3],
    "siblings": [[0, 2], [1, 3]],
    "socket": 0,
    "memory": 4096,
    "mempages": [{"size_kb": 2048, "total": 100, "used": 7, "reserved": 10}],
    "pinned_cpus": [1],
    "cpu_usage": 2,
}


def written(path: Path, content: object) -> str:
    file = path / "topology.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(file)


def test_the_default_machine_is_the_one_that_the_contract_describes() -> None:
    machine = default_machine()
    assert machine.shared == {0, 8}
    assert machine.dedicated == frozenset(range(16)) - {0, 8}
    first, second = machine.cells
    assert first.cpus == {0, 1, 2, 3, 8, 9, 10, 11}
    assert second.cpus == {4, 5, 6, 7, 12, 13, 14, 15}
    assert [set(core) for core in first.siblings] == [{0, 8}, {1, 9}, {2, 10}, {3, 11}]
    assert {cell.memory_mb for cell in machine.cells} == {16384}
    assert HostPages(2048, 1024) in first.pages
    assert sum(pages.size_kb * pages.total for pages in first.pages) == 16384 * 1024


def test_a_file_gives_cells_and_the_two_sets(tmp_path: Path) -> None:
    other = {"id": 1, "pcpuset": [8], "memory": 1024}
    machine = read_machine(written(tmp_path, [other, CELL]))
    assert machine.shared == {0}
    assert machine.dedicated == {1, 2, 3, 8}
    first, second = machine.cells
    assert (first.id, sorted(first.cpus), first.socket, first.memory_mb) == (0, [0, 1, 2, 3], 0, 4096)
    assert [set(core) for core in first.siblings] == [{0, 2}, {1, 3}]
    assert first.pages == (HostPages(2048, 100, 10),)
    assert (second.siblings, second.pages, second.socket) == ((frozenset({8}),), (), None)


def test_the_same_cpus_may_stand_in_both_sets(tmp_path: Path) -> None:
    machine = read_machine(written(tmp_path, [{**CELL, "cpuset": [0, 1, 2, 3], "pcpuset": [0, 1, 2, 3]}]))
    assert machine.shared == machine.dedicated == {0, 1, 2, 3}
    assert machine.cells[0].cpus == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[", "malformed|truncated"),
        ("{}", "array"),
        ([], "no cells"),
        ([{"id": 0}], "memory"),
        ([CELL, CELL], "two cells have one id"),
        ([CELL, {**CELL, "id": 1}], "cell 1 has CPUs 0-3 of another cell"),
        ([{**CELL, "siblings": [[0, 9]]}], "siblings 9 outside"),
        ([{**CELL, "siblings": [[0, 1], [1, 2]]}], "CPUs 1 in two cores"),
        ([{**CELL, "cpuset": [-1]}], "negative"),
        ([{**CELL, "memory": -1}], "negative"),
        ([{**CELL, "mempages": [{"size_kb": 4, "total": 1, "reserved": 2}]}], "pages of 4 KiB"),
    ],
)
def test_a_file_that_is_no_machine_is_refused_with_its_name_and_the_reason(
    tmp_path: Path, content: object, why: str
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ConfigurationError, match=why) as error:
        read_machine(path)
    assert path in error.value.message


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        read_machine(str(tmp_path / "none.json"))
