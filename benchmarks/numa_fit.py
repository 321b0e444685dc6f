"""How fast the NUMA fit is, against Nova 34 on the same questions, in the same process.

    .venv/bin/python -m benchmarks.numa_fit

makes a virtual environment of its own for Nova (``--venv``), installs Nova there once, and runs itself in it. Both
sides are timed on values that are already built, one question at a time, the best of ``--repeat`` runs each, in
turns; Nova's log is off. What is printed is ratios: only they mean something on another machine.

Three things may be new to Pinfold's fit, which keeps what it worked out with the (frozen) host:

``known host``     the host was asked about before with the same usage, as when many servers are scheduled;
``changed usage``  the usage of all cells is new, as at most after a claim;
``new host``       everything is.

Then the cases that are hard for a search over permutations, and a search for Pinfold's own worst case.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import importlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pinfold.model import numa
from pinfold.model.errors import InvalidRequest
from pinfold.model.numa import CellUsage, GuestCell, GuestTopology, HostCell, HostPages, HostTopology, Limits
from pinfold.model.numa_lines import host_of
from pinfold.model.request import demand_for

ROOT = Path(__file__).resolve().parents[1]
LINES = ROOT / "tests/model/data/numa_random.jsonl.gz"
NOVA = "nova==34.0.0"
CASES = ("known host", "changed usage", "new host")

Line = dict[str, Any]
Question = tuple[HostTopology, tuple[CellUsage, ...], GuestTopology, Limits | None]


def main() -> None:
    options = _options()
    if options.measure:
        _measure(options)
    elif options.nova_case:
        print(_nova_seconds(HARD[options.nova_case]()))
    else:
        python = _environment(Path(options.venv))
        arguments = [*sys.argv[1:], "--measure"]
        raise SystemExit(
            subprocess.run([python, "-m", "benchmarks.numa_fit", *arguments], cwd=ROOT).returncode
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--venv", default=str(Path(tempfile.gettempdir()) / "pinfold-benchmark-nova-34"))
    parser.add_argument("--repeat", type=int, default=5, help="runs of each question (5)")
    parser.add_argument("--lines", type=int, default=None, help="only so many lines of the file")
    parser.add_argument("--nova-limit", type=float, default=60.0, help="seconds for a hard case (60)")
    parser.add_argument(
        "--search", type=int, default=3000, help="questions in the search for a worst case (3000)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--nova-case", choices=sorted(HARD), help=argparse.SUPPRESS)
    return parser.parse_args()


def _environment(path: Path) -> str:
    """The Python of a virtual environment that has Nova and what ``pinfold.model`` needs."""
    python = path / "bin/python"
    done = path / "installed"
    if not done.exists():
        print(f"Installing {NOVA} in {path}", file=sys.stderr)
        venv.create(path, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", NOVA, "msgspec"], check=True)
        done.touch()
    return str(python)


def _measure(options: argparse.Namespace) -> None:
    nova = Nova()
    gc.disable()
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    _report_lines(nova, options)
    _report_hard(options)
    _report_search(options)


# The recorded lines


def _report_lines(nova: Nova, options: argparse.Namespace) -> None:
    theirs: list[float] = []
    ours: dict[str, list[float]] = {case: [] for case in CASES}
    for line in _lines(options.lines):
        question, again = _question(line), [_question(line) for _ in range(options.repeat)]
        theirs.append(_best(nova.calls(line, options.repeat)))
        times = _pinfold(question, again, line["pack"])
        for case in CASES:
            ours[case].append(times[case])
    print(f"\n{len(theirs)} recorded questions, microseconds at the median; Nova {_us(theirs)}")
    for case in CASES:
        ratios = [nova_time / own for nova_time, own in zip(theirs, ours[case], strict=True)]
        tenths = statistics.quantiles(ratios, n=10)
        print(
            f"  {case:14} Pinfold {_us(ours[case])}, {statistics.median(ratios):5.1f} times faster at the median"
            f" (a tenth of the questions: less than {tenths[0]:.1f}, or more than {tenths[-1]:.1f})"
        )


def _lines(count: int | None) -> Iterator[Line]:
    """The lines that get as far as a host."""
    with gzip.open(LINES, "rt") as stream:
        lines = [json.loads(text) for text in stream]
    return iter([line for line in lines if not line["error"] and line["request"]][:count])


def _question(line: Line) -> Question:
    flavor = line["flavor"]
    demand = demand_for(
        vcpus=flavor["vcpus"],
        memory_mb=flavor["memory_mb"],
        disk_gb=0,
        extra_specs=flavor["extra_specs"],
        image_properties=line["image_properties"],
    )
    if demand.numa is None:
        raise InvalidRequest(f"line {line['id']} asks for no cells")
    ratios = line["limits"]
    limits = ratios and Limits(ratios["cpu_allocation_ratio"], ratios["ram_allocation_ratio"])
    return (*host_of(line["host"]), demand.numa, limits)


def _pinfold(question: Question, again: list[Question], pack: bool) -> dict[str, float]:
    """Seconds of one fit for each case. ``again`` are equal questions of other values."""
    ask = partial(numa.fit, pack=pack)
    topology = question[0]
    times = {
        "new host": _best(partial(ask, *new) for new in again),
        "changed usage": _best(partial(ask, topology, *new[1:]) for new in again),
    }
    ask(*question)
    return times | {"known host": _best(partial(ask, *question) for _ in again)}


def _best(calls: Iterable[Callable[[], object]]) -> float:
    best = float("inf")
    for call in calls:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def _us(times: list[float]) -> str:
    return f"{statistics.median(times) * 1e6:.1f}"


class Nova:
    """Nova's fit, with its values built from the same lines."""

    def __init__(self) -> None:
        conf = importlib.import_module("nova.conf").CONF
        conf([], project="nova", version="benchmark")
        self.conf = conf
        self.objects: Any = importlib.import_module("nova.objects")
        self.objects.register_all()
        self.hardware: Any = importlib.import_module("nova.virt.hardware")

    def calls(self, line: Line, repeat: int) -> list[Callable[[], object]]:
        """Calls of the fit; each has a request of its own, since Nova changes it."""
        self.conf.set_override("packing_host_numa_cells_allocation_strategy", line["pack"], "compute")
        host = self.host(line["host"])
        limits = line["limits"] and self.objects.NUMATopologyLimits(**line["limits"])
        guests = [self.guest(line["request"]) for _ in range(repeat)]
        fit = self.hardware.numa_fit_instance_to_host
        return [partial(fit, host, guest, None, limits) for guest in guests]

    def host(self, cells: list[Line]) -> Any:
        return self.objects.NUMATopology(
            cells=[
                self.objects.NUMACell(
                    id=cell["id"],
                    cpuset=set(cell["cpuset"]),
                    pcpuset=set(cell["pcpuset"]),
                    memory=cell["memory"],
                    cpu_usage=cell["cpu_usage"],
                    memory_usage=cell["memory_usage"],
                    pinned_cpus=set(cell["pinned_cpus"]),
                    siblings=[set(core) for core in cell["siblings"]],
                    socket=cell["socket"],
                    mempages=[self.objects.NUMAPagesTopology(**pages) for pages in cell["mempages"]],
                )
                for cell in cells
            ]
        )

    def guest(self, request: Line) -> Any:
        keys = ("id", "memory", "pagesize", "cpu_policy", "cpu_thread_policy")
        return self.objects.InstanceNUMATopology(
            cells=[
                self.objects.InstanceNUMACell(
                    cpuset=set(cell["cpuset"]),
                    pcpuset=set(cell["pcpuset"]),
                    **{key: cell[key] for key in keys},
                )
                for cell in request["cells"]
            ],
            emulator_threads_policy=request["emulator_threads_policy"],
        )


# Cases that are hard for permutations


def _hard(host_cells: int, guest_cells: int, able: int) -> Line:
    """A host of which ``able`` cells have room for a cell of the guest, each of two vCPUs."""
    cells = [
        {
            "id": id_,
            "cpuset": [],
            "pcpuset": [2 * id_, 2 * id_ + 1],
            "memory": 4096,
            "cpu_usage": 0,
            "memory_usage": 0,
            "pinned_cpus": [] if id_ < able else [2 * id_],
            "siblings": [[2 * id_], [2 * id_ + 1]],
            "socket": 0,
            "mempages": [{"size_kb": 4, "total": 1048576, "used": 0, "reserved": 0}],
        }
        for id_ in range(host_cells)
    ]
    asked = [
        {"id": id_, "cpuset": [], "pcpuset": [2 * id_, 2 * id_ + 1], "memory": 64, "pagesize": None}
        | {"cpu_policy": "dedicated", "cpu_thread_policy": None}
        for id_ in range(guest_cells)
    ]
    extra_specs = {"hw:cpu_policy": "dedicated", "hw:numa_nodes": str(guest_cells)}
    return {
        "id": "hard",
        "flavor": {"vcpus": 2 * guest_cells, "memory_mb": 64 * guest_cells, "extra_specs": extra_specs},
        "image_properties": {},
        "host": cells,
        "request": {"cells": asked, "emulator_threads_policy": None},
        "limits": None,
        "pack": False,
    }


HARD: dict[str, Callable[[], Line]] = {
    "8-cell guest, 8-cell host of which 7 have room": lambda: _hard(8, 8, 7),
    "8-cell guest, 16-cell host of which 7 have room": lambda: _hard(16, 8, 7),
}


def _report_hard(options: argparse.Namespace) -> None:
    print("\nHard cases, from nothing known")
    for name, case in HARD.items():
        again = [_question(case()) for _ in range(50)]
        own = _best(partial(numa.fit, *new) for new in again)
        theirs = _nova_within(name, options.nova_limit)
        shown = f"no end in {options.nova_limit:.0f} s" if theirs is None else f"{theirs:.2f} s"
        at_least = (theirs or options.nova_limit) / own
        print(f"  {name}: Pinfold {own * 1e3:.3f} ms, Nova {shown}: {at_least:,.0f} times or more")


def _nova_within(name: str, limit: float) -> float | None:
    """Nova's seconds, measured in a process that can be given up."""
    command = [sys.executable, "-m", "benchmarks.numa_fit", "--nova-case", name]
    try:
        done = subprocess.run(
            command, cwd=ROOT, timeout=limit + 15, capture_output=True, text=True, check=True
        )
    except subprocess.TimeoutExpired:
        return None
    return float(done.stdout)


def _nova_seconds(line: Line) -> float:
    return _best(Nova().calls(line, 1))


# Pinfold's own worst case


def _report_search(options: argparse.Namespace) -> None:
    chance = random.Random(options.seed)
    slowest: list[tuple[float, str]] = []
    for _ in range(options.search):
        question, what = _large(chance)
        seconds = min(_first(question) for _ in range(3))
        slowest.append((seconds, what))
    slowest.sort(reverse=True)
    print(f"\nThe slowest of {options.search} questions about hosts of up to 16 cells and 512 CPUs")
    for seconds, what in slowest[:3]:
        print(f"  {seconds * 1e3:.2f} ms  {what}")


def _first(question: Question) -> float:
    """Seconds of the first fit on a host that nothing is known of."""
    topology, usage, guest, limits = question
    fresh = HostTopology(tuple(map(_copy, topology.cells)))
    return _best([partial(numa.fit, fresh, usage, guest, limits)])


def _copy(cell: HostCell) -> HostCell:
    return HostCell(
        cell.id, cell.shared, cell.dedicated, cell.siblings, cell.memory_mb, cell.pages, cell.socket
    )


def _large(chance: random.Random) -> tuple[Question, str]:
    """A host with many cells, of random or staircase shape, and a guest that takes most of it."""
    count = chance.choice([8, 12, 16, 16, 16])
    width = 512 // 16
    threads = chance.choice([1, 2, 4, 8])
    stairs = chance.random() < 0.5
    hosts, usage = [], []
    for index in range(count):
        share = (index + 1) / count if stairs else chance.random()
        cell = _large_cell(index, width, threads)
        taken = [cpu for cpu in sorted(cell.dedicated) if chance.random() > share]
        memory = int(4096 * (1 - share if chance.random() < 0.5 else share))
        hosts.append(cell)
        usage.append(CellUsage(index, frozenset(taken), 0, memory, {4: memory * 256}))
    guest = _large_guest(chance, chance.randint(1, count), width, stairs)
    what = (
        f"{len(guest.cells)} guest cells on {count} of {width} CPUs, {threads} threads,"
        f" {guest.thread_policy}, {'stairs' if stairs else 'random'}"
    )
    return (HostTopology(tuple(hosts)), tuple(usage), guest, None), what


def _large_cell(index: int, width: int, threads: int) -> HostCell:
    first = index * width
    cpus = range(first, first + width)
    cores = tuple(frozenset(cpus[at : at + threads]) for at in range(0, width, threads))
    pages = (HostPages(4, 1 << 20), HostPages(2048, 1024), HostPages(1 << 20, 4))
    return HostCell(index, frozenset(), frozenset(cpus), cores, 4096, pages)


def _large_guest(chance: random.Random, count: int, width: int, stairs: bool) -> GuestTopology:
    policy = chance.choice([None, "prefer", "require", "isolate"])
    cells, first = [], 0
    for index in range(count):
        vcpus = (
            max(1, int(width * (index + 1) / count * chance.random())) if stairs else chance.randint(1, width)
        )
        memory = chance.randint(1, 4096)
        page_size = chance.choice([None, None, numa.ANY, numa.LARGE, 2048])
        pinned = frozenset(range(first, first + vcpus))
        cells.append(GuestCell(index, frozenset(), pinned, memory - memory % 2, page_size))
        first += vcpus
    chance.shuffle(cells)
    return GuestTopology(tuple(cells), "dedicated", policy, chance.choice([None, "isolate"]))


if __name__ == "__main__":
    main()
