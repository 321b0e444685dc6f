"""Pinfold beside a real Nova: the same work, on the same machine, in the same run.

    .venv/bin/python -m benchmarks.compare --seconds 60

Installs Nova (pip, into DIR; MariaDB and RabbitMQ from Debian), runs cycles of boot, shelve with immediate offload,
unshelve and delete of a pinned server against it, stops it, and does the same with Pinfold, on two hosts of 128
dedicated CPUs each. Root, Debian 12; about a quarter of an hour. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import msgspec

from benchmarks import meter
from benchmarks.load import OPERATIONS, Load
from benchmarks.nova.peer import NOVA, PLACEMENT, Nova
from devstack.client import Client
from devstack.cloud import free_ports
from devstack.layout import Layout
from devstack.progress import Progress
from devstack.seed import IMAGE

ROOT = Path(__file__).resolve().parents[1]
TOPOLOGY = ROOT / "benchmarks" / "topology-128.json"
FLAVOR, HOSTS = "p2", 2
PAGE, DATA = ROOT / "doc" / "source" / "compare.rst", ROOT / "doc" / "source" / "compare.json"


class Figures(msgspec.Struct):
    """What a load of so many clients cost."""

    clients: int
    cycles: int
    failed: int
    rate: float
    cpu: float
    sql: float | None
    messages: float | None
    pss_mb: float
    processes: int
    #: Milliseconds at the median, by operation.
    p50: dict[str, float]


class Report(msgspec.Struct):
    """One run."""

    date: str
    machine: str
    versions: dict[str, str]
    seconds: float
    poll: float
    nova: list[Figures]
    pinfold: list[Figures]


def measure(
    read: Callable[[], meter.Reading], load: Load, clients: int, seconds: float, progress: Progress, name: str
) -> Figures:
    """Run the load, and say what everything but this process spent on it."""
    with progress.step(f"{name}: {clients} client{'s' * (clients > 1)}, {seconds:.0f} s"):
        before = read()
        result = load.run(clients, None, seconds)
        spent = meter.between(before, read())
    for failure in result.failures[:3]:
        progress.say(f"a cycle failed: {failure}")
    done = max(result.cycles, 1)
    return Figures(
        clients=clients,
        cycles=result.cycles,
        failed=len(result.failures),
        rate=result.rate,
        cpu=sum(spent.cpu.values()) / done,
        sql=None if spent.sql is None else sum(spent.sql.values()) / done,
        messages=None if spent.messages is None else spent.messages / done,
        pss_mb=sum(spent.pss.values()),
        processes=spent.processes,
        p50={operation: result.milliseconds(operation, 0.5) for operation in OPERATIONS},
    )


@contextmanager
def pinfold(folder: Path) -> Iterator[tuple[Layout, int]]:
    """A cloud of stack.sh --multi; yields its layout and the API's port."""
    (port,) = free_ports(1)
    where = ["--dir", str(folder)]
    shape = ["--multi", "--no-story", "--hosts", str(HOSTS), "--topology", str(TOPOLOGY), "--port", str(port)]
    subprocess.run([str(ROOT / "stack.sh"), *where, *shape], check=True)
    try:
        yield Layout(folder), port
    finally:
        subprocess.run([str(ROOT / "unstack.sh"), *where, "--wipe"], check=True)


def of_nova(arguments: argparse.Namespace, progress: Progress) -> list[Figures]:
    with Nova(arguments.dir, TOPOLOGY, HOSTS, progress) as nova:
        load = Load(nova.port, nova.port, FLAVOR, nova.image, arguments.poll)
        return [
            measure(nova.reading, load, clients, arguments.seconds, progress, "Nova")
            for clients in arguments.clients
        ]


def of_pinfold(arguments: argparse.Namespace, progress: Progress) -> list[Figures]:
    with pinfold(arguments.dir / "pinfold") as (layout, port):
        state = layout.load()
        assert state is not None
        with Client(f"http://127.0.0.1:{port}") as client:
            image = client.image_id(IMAGE)
        load = Load(port, port, FLAVOR, image, arguments.poll)
        return [
            measure(lambda: meter.read(layout, state), load, clients, arguments.seconds, progress, "Pinfold")
            for clients in arguments.clients
        ]


def machine() -> str:
    """Processor, cores, memory, kernel."""
    text = Path("/proc/cpuinfo").read_text()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    return f"{len(names)} x {names[0] if names else platform.machine()}, {memory:.0f} GiB, Linux {platform.release()}"


def _versions() -> dict[str, str]:
    def said(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    rabbit = said("dpkg-query", "-W", "-f=${Version}", "rabbitmq-server")
    maria = said("dpkg-query", "-W", "-f=${Version}", "mariadb-server")
    postgres = said("dpkg-query", "-W", "-f=${Version}", "postgresql")
    return {
        "pinfold": version("pinfold"), "nova": NOVA, "placement": PLACEMENT, "python": platform.python_version(),
        "rabbitmq": rabbit, "mariadb": maria, "postgresql": postgres,
    }  # fmt: skip


# --- what is written -----------------------------------------------------------------------------

_ROWS: list[tuple[str, str, Callable[[Figures], float | None]]] = [
    ("cycles per second", ".2f", lambda one: one.rate),
    ("CPU-seconds per cycle", ".3f", lambda one: one.cpu),
    ("SQL statements per cycle", ".0f", lambda one: one.sql),
    ("AMQP messages per cycle", ".0f", lambda one: one.messages),
    ("memory (PSS), MB", ".0f", lambda one: one.pss_mb),
    ("processes", ".0f", lambda one: one.processes),
    *[(f"{name}, ms at the median", ".0f", lambda one, name=name: one.p50[name]) for name in OPERATIONS],
]


def page(report: Report) -> str:
    """The page of the documentation, in reStructuredText."""
    versions = ", ".join(f"{name} {number}" for name, number in report.versions.items())
    lines = [
        ".. Written by python -m benchmarks.compare: run it again instead of changing this.",
        "",
        "Beside Nova",
        "===========",
        "",
        "The same work for both, one after the other on one machine: clients that boot a server with two dedicated",
        "CPUs, shelve it (offloaded at once), unshelve and delete it, and look every "
        f"{report.poll * 1000:.0f} ms how far it is.",
        f"Each figure is of {report.seconds:.0f} seconds. Counted is all but the clients: services, database and",
        "broker. For Nova, Glance and Neutron are stood in for by a small server that is not counted.",
        "",
        f"{report.date}; {report.machine}; {versions}.",
        "",
        ".. image:: compare.svg",
        "   :alt: Bars of cycles per second and CPU-seconds per cycle, Nova beside Pinfold",
        "",
        ".. list-table::",
        "   :header-rows: 2",
        "",
    ]
    pairs = list(zip(report.nova, report.pinfold, strict=True))
    heads = [f"{one.clients} client{'s' * (one.clients > 1)}" for one, _ in pairs]
    rows = [["", *(cell for head in heads for cell in (head, ""))], ["", *["Nova", "Pinfold"] * len(pairs)]]
    for title, form, figure in _ROWS:
        cells = [figure(one) for pair in pairs for one in pair]
        rows.append([title, *("not counted" if cell is None else format(cell, form) for cell in cells)])
    rows.append(
        ["failed cycles", *(f"{one.failed} of {one.cycles + one.failed}" for pair in pairs for one in pair)]
    )
    for row in rows:
        lines += [f"   {'*' if number == 0 else ' '} - {cell}".rstrip() for number, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def plot(report: Report, file: Path) -> None:
    """Bars of the two figures that matter most."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(8, 3.2), layout="constrained")
    pairs = list(zip(report.nova, report.pinfold, strict=True))
    for axes, (title, form, figure) in zip(drawing.subplots(1, 2), _ROWS[:2], strict=True):
        for number, name in enumerate(("Nova", "Pinfold")):
            places = [place + (number - 0.5) * 0.38 for place in range(len(pairs))]
            bars = axes.bar(places, [figure(pair[number]) for pair in pairs], 0.36, label=name)
            axes.bar_label(bars, fmt="{:" + form + "}", fontsize=8)
        axes.set_xticks(range(len(pairs)), [str(one.clients) for one, _ in pairs])
        axes.set_xlabel("clients")
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    drawing.legend(*drawing.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    drawing.savefig(file, metadata={"Date": None})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dir", type=Path, default=ROOT / ".compare", help="where Nova is installed (./.compare)"
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load (60)")
    parser.add_argument("--poll", type=float, default=0.02, help="seconds between two looks (0.02)")
    parser.add_argument("--again", action="store_true", help="write the page from the last run's figures")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    try:
        import matplotlib  # noqa: F401  before a quarter of an hour of work
    except ImportError:
        print("matplotlib is needed for the plot: .venv/bin/pip install matplotlib", file=sys.stderr)
        return 1
    if arguments.again:
        report = msgspec.json.decode(DATA.read_bytes(), type=Report)
    else:
        arguments.dir = arguments.dir.resolve()
        arguments.dir.mkdir(parents=True, exist_ok=True)
        progress = Progress()
        nova = of_nova(arguments, progress)
        report = Report(
            date=time.strftime("%Y-%m-%d"), machine=machine(), versions=_versions(), seconds=arguments.seconds,
            poll=arguments.poll, nova=nova, pinfold=of_pinfold(arguments, progress),
        )  # fmt: skip
        DATA.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    PAGE.write_text(page(report))
    plot(report, PAGE.with_suffix(".svg"))
    print(json.dumps(msgspec.to_builtins([report.nova, report.pinfold]), indent=1))
    print(f"written: {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
