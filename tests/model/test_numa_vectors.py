"""What Nova's own tests ask and get, recorded: fits, requests, and changes of usage."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pinfold.model import numa
from pinfold.model.errors import AccountingError, InvalidRequest
from pinfold.model.numa import CellUsage
from pinfold.model.numa_lines import host_of
from pinfold.model.request import Demand, demand_for
from tests.model.numa_checker import broken
from tests.model.numa_lines import Line, code_of, guest, host, limits, lines, placement_of

# These ask for networks near a cell, which Pinfold does not have.
NETWORKS = {"n00120", "n00138", "n00232"}
# Memory and pages are freed that were not in use: Nova stops at 0 and says nothing.
CLAMPED = {"n00002", "n00003", "n00013", "n00015", "n00018", "n00020", "n00021"}
# A claim takes more pages than its cell has, which no fit would have given it.
OVERFULL = {"n00001", "n00053", "n00055", "n00056"}
# Nova refuses `isolate` on every host that has siblings and cpu_dedicated_set; Pinfold takes whole cores.
ISOLATED = {"n00163"}


def _vectors(function: str) -> list[Any]:
    return [
        pytest.param(line, id=line["id"])
        for line in lines("vectors")
        if line["fn"] == function and line["oracle_ok"] and line["id"] not in NETWORKS | ISOLATED
    ]


@pytest.mark.parametrize("line", _vectors("numa_fit_instance_to_host"))
def test_the_same_fits(line: Line) -> None:
    if not line["host"] or not line["request"]:
        assert line["result"] is None
        return
    placement = numa.fit(*host(line), guest(line), limits(line), pack=line["pack"])
    assert (placement is None) == (line["result"] is None)
    if placement:
        assert broken(host(line), guest(line), limits(line), placement) == []


@pytest.mark.parametrize("line", _vectors("numa_get_constraints"))
def test_the_same_is_asked_for_or_refused_alike(line: Line) -> None:
    if line["error"]:
        with pytest.raises(InvalidRequest) as refused:
            _demand(line)
        assert refused.value.code == code_of(line["error"])
    else:
        asked = _demand(line).numa
        expected = line["result"] and guest({"request": line["result"]})
        assert (asked and asked.cells) == (expected and expected.cells)
        assert (asked and asked.thread_policy) == (expected and expected.thread_policy)
        assert (asked and asked.emulator_policy) == (expected and expected.emulator_policy)


@pytest.mark.parametrize("line", _vectors("numa_usage_from_instance_numa"))
def test_usage_changes_by_the_same_where_it_adds_up(line: Line) -> None:
    topology, usage = host(line)
    placement = placement_of(topology, line["instance"], ordinary=not line["free"])
    change = numa.release if line["free"] else numa.add
    if line["error"] or line["id"] in CLAMPED | OVERFULL:
        with pytest.raises(AccountingError):
            change(usage, placement, topology)
    else:
        assert _plain(change(usage, placement, topology)) == host_of(line["result"])[1]


def _plain(usage: tuple[CellUsage, ...]) -> tuple[CellUsage, ...]:
    """Without what Nova does not count."""
    return tuple(msgspec.structs.replace(use, overcommitted_mb=0) for use in usage)


def _demand(line: Line) -> Demand:
    image: dict[str, str] = {}
    for name, value in line["image_properties"].items():
        if name == "traits_required":
            image |= {f"trait:{trait}": "required" for trait in value}
        elif isinstance(value, list):
            image |= {f"{name}.{n}": str(each).strip("[]") for n, each in enumerate(value)}
        else:
            image[name] = str(value)
    flavor = line["flavor"]
    return demand_for(
        vcpus=flavor["vcpus"],
        memory_mb=flavor["memory_mb"],
        disk_gb=0,
        extra_specs=flavor["extra_specs"],
        image_properties=image,
    )
