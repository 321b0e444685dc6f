"""Some 3,500 recorded questions, and what Nova answered: `numa fit` answers the same wherever Nova is right."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from pinfold.model import numa
from pinfold.model.numa import CellUsage, Placement
from pinfold.model.numa_lines import fit_line
from tests.model.numa_checker import broken, possible
from tests.model.numa_lines import Line, code_of, fits, guest, host, limits, lines, nova_placement

# Nova fixes the page size on the first host cell whose memory suffices, keeps it when that cell lacks CPUs, and
# so ends with small pages on a host cell that has large ones free.
STUCK_PAGE_SIZE = {"r01240", "r04817"}


def _right(name: str) -> list[Line]:
    return [line for line in lines(name) if line["oracle_ok"]]


def _our_placement(line: Line) -> Placement | None:
    return numa.fit(*host(line), guest(line), limits(line), pack=line["pack"])


def test_the_verdict_is_novas_wherever_nova_is_right() -> None:
    different = []
    for line in _right("random"):
        answer = fit_line(line)
        error = line["error"] and code_of(line["error"])
        nova_fits = line["result"] is not None or (not error and line["request"] is None)
        if (answer["error"], answer["result"] is not None) != (error, nova_fits):
            different.append((line["id"], answer))
    assert different == []


def test_each_placement_satisfies_all_equations() -> None:
    wrong = {}
    for line in [*fits("random"), *fits("nova_is_wrong"), *fits("found")]:
        placement = _our_placement(line)
        if placement and (names := broken(host(line), guest(line), limits(line), placement)):
            wrong[line["id"]] = names
    assert wrong == {}


def test_as_many_cpus_and_pages_are_used_as_by_nova() -> None:
    different = []
    for line in _right("random"):
        if line["after"] is None or line["id"] in STUCK_PAGE_SIZE:
            continue
        topology, usage = host(line)
        placement = _our_placement(line)
        assert placement is not None
        if _totals(numa.add(usage, placement, topology)) != _totals(host({"host": line["after"]})[1]):
            different.append(line["id"])
    assert different == []


def test_what_is_added_and_released_leaves_the_host_as_it_was() -> None:
    for line in [*fits("random"), *fits("nova_is_wrong")]:
        topology, usage = host(line)
        if placement := _our_placement(line):
            assert numa.release(numa.add(usage, placement, topology), placement, topology) == usage


def test_where_it_says_no_trying_everything_finds_nothing_either() -> None:
    missed = [
        line["id"]
        for line in [*fits("random"), *fits("nova_is_wrong"), *fits("found")]
        if _our_placement(line) is None and possible(host(line), guest(line), limits(line))
    ]
    assert missed == []


@pytest.mark.parametrize("name", ["nova_is_wrong", "found"])
def test_nova_is_wrong_where_it_is_said_to_be(name: str) -> None:
    """Its placement breaks an equation, or it found none where ours breaks none."""
    for line in fits(name):
        if line["result"] is not None:
            assert broken(host(line), guest(line), limits(line), nova_placement(line))
        else:
            placement = _our_placement(line)
            assert placement is not None
            assert not broken(host(line), guest(line), limits(line), placement)


def test_novas_page_size_sticks_to_the_first_host_cell_that_was_tried() -> None:
    stuck = {
        line["id"]
        for line in fits("random")
        if line["oracle_ok"]
        and line["result"]
        and broken(host(line), guest(line), limits(line), nova_placement(line))
    }
    assert stuck == STUCK_PAGE_SIZE


def test_host_cells_are_preferred_as_by_nova() -> None:
    """But for guests with unequal cells, where ours may swap two of the same host cells."""
    for line in _right("random"):
        if line["result"] is None:
            continue
        placement = _our_placement(line)
        assert placement is not None
        ours = [placed.cell for placed in placement.cells]
        novas = [cell["id"] for cell in line["result"]["cells"]]
        equal = len({len(cell.dedicated) for cell in guest(line).cells}) == 1
        assert ours == novas if equal else sorted(ours) == sorted(novas)


def test_a_refusal_says_for_each_cell_how_much_is_missing() -> None:
    for line in fits("random"):
        answer = fit_line(line)
        if answer["result"] is None:
            cells = {cell["id"] for cell in line["host"]}
            named = {reason["cell"] for reason in answer["reasons"]}
            assert named == {None} or named - {None} <= cells
            assert all(reason["asked"] >= 0 for reason in answer["reasons"])


@pytest.mark.parametrize("name", ["random", "nova_is_wrong"])
def test_an_answer_has_the_fields_of_the_form(name: str) -> None:
    for line in lines(name):
        answer = json.loads(json.dumps(fit_line(line)))
        assert {"id", "error", "result", "reasons"} <= set(answer)
        assert (answer["result"] is None) == bool(answer["error"] or answer["reasons"])


def test_an_answer_names_vcpus_cpus_and_pages_like_the_recorded_ones() -> None:
    line = next(line for line in _right("random") if line["id"] == "r00000")
    answer = fit_line(line)["result"]
    novas = line["result"]
    keys = ("id", "cpuset", "pcpuset", "cpu_pinning", "cpuset_reserved", "memory", "pagesize")
    assert [{key: cell[key] for key in keys} for cell in answer["cells"]] == [
        {key: cell[key] for key in keys} for cell in novas["cells"]
    ]
    assert answer["emulator_threads_policy"] is novas["emulator_threads_policy"]


def test_a_request_without_numa_needs_has_no_cells() -> None:
    line = {"id": "x", "flavor": {"vcpus": 2, "memory_mb": 512}, "image_properties": {}, "host": []}
    assert fit_line(line) == {"id": "x", "error": None, "result": {"cells": []}, "reasons": []}


_PINNED = {"vcpus": 1, "memory_mb": 64, "extra_specs": {"hw:cpu_policy": "dedicated"}}


@pytest.mark.parametrize("wrong", [{}, {"flavor": {}}, {"flavor": _PINNED}, {"flavor": _PINNED, "host": 3}])
def test_a_line_of_another_form_is_no_answer(wrong: Line) -> None:
    with pytest.raises((KeyError, TypeError)):
        fit_line(wrong)


def _totals(usage: tuple[CellUsage, ...]) -> tuple[int, int, int, Counter[int]]:
    pages: Counter[int] = Counter()
    for use in usage:
        pages.update(use.pages)
    return (
        sum(len(use.pinned) for use in usage),
        sum(use.shared_vcpus for use in usage),
        sum(use.memory_mb for use in usage),
        +pages,
    )
