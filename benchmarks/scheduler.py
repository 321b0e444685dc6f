"""What a choice among many nodes costs, and an explanation where there is none: the arithmetic, without the database.

    python -m benchmarks.scheduler --nodes 100 1000 10000

Each node has two cells of 32 cores with two threads, and up to 30 servers of two pinned CPUs.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

from pinfold.model import host, placement
from pinfold.model.host import ClaimView, NodeReport, NodeUsage
from pinfold.model.numa import HostCell, HostTopology
from pinfold.model.placement import Candidate, Wish
from pinfold.model.request import Demand, demand_for

_CORES, _CELL_MB, _MOST_SERVERS = 32, 131072, 30


def _report(name: str) -> NodeReport:
    cells = []
    for cell in range(2):
        first = cell * 2 * _CORES
        cores = tuple(frozenset((cpu, cpu + _CORES)) for cpu in range(first, first + _CORES))
        cpus = frozenset(range(first, first + 2 * _CORES))
        shared = cores[0]
        cells.append(HostCell(cell, shared, cpus - shared, cores, _CELL_MB))
    return NodeReport(name, HostTopology(tuple(cells)), 2 * _CELL_MB, 10000)


def _demand(vcpus: int) -> Demand:
    pinned = {"hw:cpu_policy": "dedicated"}
    return demand_for(vcpus=vcpus, memory_mb=1024, disk_gb=1, extra_specs=pinned, image_properties={})


def _usages(report: NodeReport) -> list[NodeUsage]:
    """The node with 0, 1, 2 ... servers."""
    usages = [host.usage_of(report, ())]
    for number in range(_MOST_SERVERS):
        place = host.place(report, usages[-1], _demand(2))
        assert place is not None
        claim = ClaimView(str(number), str(number), "current", 1024, 1, 0, place.placement)
        usages.append(host.add(report, usages[-1], claim))
    return usages


def _candidates(count: int) -> list[Candidate]:
    usages = _usages(_report("node"))
    return [
        Candidate(f"node-{number}", f"host-{number}", _report(f"node-{number}"), usages[number % len(usages)])
        for number in range(count)
    ]


def _milliseconds(call: Callable[[], object], times: int) -> float:
    """The best of several, in CPU time of this process."""
    best = float("inf")
    for _ in range(times):
        began = time.process_time()
        call()
        best = min(best, time.process_time() - began)
    return 1000 * best


def main() -> None:
    """Print a line for each number of nodes, with the ratio to the first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--times", type=int, default=3, help="the best of so many is printed (3)")
    arguments = parser.parse_args()
    chance = random.SystemRandom()
    first: dict[str, float] = {}
    for count in arguments.nodes:
        candidates = _candidates(count)
        fits, too_large = _demand(2), _demand(2 * _CORES)
        measured = {
            "choose": lambda: placement.choose(candidates, fits, Wish(), chance, 3),  # noqa: B023
            "choose, none fits": lambda: placement.choose(candidates, too_large, Wish(), chance, 3),  # noqa: B023
            "explain": lambda: placement.explain(candidates, too_large, Wish()),  # noqa: B023
        }
        for what, call in measured.items():
            taken = _milliseconds(call, arguments.times)
            ratio = taken / first.setdefault(what, taken)
            print(f"{count:7} nodes  {what:20} {taken:10.2f} ms of CPU   {ratio:8.1f} times the first")


if __name__ == "__main__":
    main()
