"""What a choice among many nodes costs, and an explanation where there is none: the arithmetic, without the database.

    python -m benchmarks.scheduler --nodes 100 1000 10000

Each node has two cells of 32 cores with two threads, and a past of its own: up to 30 servers of one to four pinned
CPUs have come, and some of them have gone. ``benchmarks.growth`` has the database too.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

from pinfold.model import host, placement
from pinfold.model.host import ClaimView, NodeReport
from pinfold.model.numa import HostCell, HostTopology
from pinfold.model.placement import Candidate, Wish
from pinfold.model.ranking import Ranking
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


def _candidate(number: int, past: random.Random) -> Candidate:
    """A node with servers, no two of which are alike in what is left of them."""
    report = _report(f"node-{number}")
    usage, claims = host.usage_of(report, ()), list[ClaimView]()
    for server in range(past.randrange(_MOST_SERVERS)):
        vcpus = past.randint(1, 4)
        place = host.place(report, usage, _demand(vcpus))
        assert place is not None
        memory_mb = 512 * past.randint(1, 8)
        claims.append(ClaimView(str(server), str(server), "current", memory_mb, 1, 0, place.placement))
        usage = host.add(report, usage, claims[-1])
        if past.random() < 0.3:
            usage = host.release(report, usage, claims.pop(past.randrange(len(claims))))
    return Candidate(report.name, f"host-{number}", report, usage)


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
    past, chance = random.Random(1), random.SystemRandom()
    every = [_candidate(number, past) for number in range(max(arguments.nodes))]
    first: dict[str, float] = {}
    for count in arguments.nodes:
        candidates = every[:count]
        ranking = Ranking(candidates)
        changed = [_candidate(number, past) for number in range(min(20, count))]
        fits, too_large = _demand(2), _demand(2 * _CORES)

        def hear() -> None:
            for candidate in changed:  # noqa: B023
                ranking.put(candidate)  # noqa: B023

        measured = {
            "the picture, first": lambda: Ranking(candidates),  # noqa: B023
            "news of 20 nodes": hear,
            "choose": lambda: ranking.choose(fits, Wish(), chance, 3),  # noqa: B023
            "choose, none fits": lambda: ranking.choose(too_large, Wish(), chance, 3),  # noqa: B023
            "explain": lambda: placement.explain(ranking, too_large, Wish()),  # noqa: B023
        }
        for what, call in measured.items():
            taken = _milliseconds(call, arguments.times)
            ratio = taken / first.setdefault(what, taken)
            print(f"{count:7} nodes  {what:20} {taken:10.2f} ms of CPU   {ratio:8.1f} times the first")


if __name__ == "__main__":
    main()
