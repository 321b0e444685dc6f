"""What a server's life costs: boot, shelve with immediate offload, unshelve, delete, against a running cloud.

    ./stack.sh --multi --no-story --hosts 2 --topology benchmarks/topology-128.json
    .venv/bin/python -m benchmarks.cycle --clients 8 --cycles 1000

Everything but this process is counted: services, database and broker.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks import meter
from benchmarks.load import OPERATIONS, Load, Result
from devstack import config, postgres, processes
from devstack.client import Client
from devstack.cloud import BINARIES, free_ports
from devstack.layout import Layout, Process, State
from devstack.progress import wait_for
from devstack.seed import IMAGE

#: Nova 34 with placement, MariaDB, RabbitMQ and two fake computes, measured elsewhere in the same way on a
#: machine of 2 cores with nothing else running: not by this program. By number of clients.
NOVA = {
    1: {"rate": 0.51, "cpu": 2.45, "sql": 1181, "messages": 119, "boot": 693, "shelve": 288, "unshelve": 600,
        "delete": 278, "failed": "0 of 31"},
    8: {"rate": 0.64, "cpu": 2.77, "sql": 1266, "messages": 119, "boot": 4442, "shelve": 1878, "unshelve": 3137,
        "delete": 2011, "failed": "0 of 43"},
    32: {"rate": 0.28, "cpu": 5.90, "sql": 2765, "messages": 123, "boot": 49399, "shelve": 3629,
         "unshelve": 21832, "delete": 16518, "failed": "2 of 39"},
}  # fmt: skip
NOVA_MEMORY = "2.0 GB in 25 processes"
_POLL_ROLE = "pinfold_poll"


def _arguments() -> argparse.Namespace:
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=root / ".stack", help="the cloud's folder (./.stack)")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--cycles", type=int, help="how many in all (or --seconds; 100 if neither is given)")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--flavor", default="p2")
    parser.add_argument(
        "--poll", type=float, default=0.02, help="seconds between two looks at a server (0.02)"
    )
    parser.add_argument(
        "--idle", type=float, default=10.0, help="seconds in which the idle cloud is measured"
    )
    parser.add_argument("--quiet-cycles", type=int, default=20,
                        help="cycles of one client in which polling and work are counted apart; 0: none")  # fmt: skip
    parser.add_argument("--json", type=Path, help="also write the figures here")
    return parser.parse_args()


@contextmanager
def polling_api(layout: Layout, state: State) -> Iterator[int]:
    """Another API process with a database role of its own, for polling alone; yields its port."""
    record = state.servers[postgres.NAME]
    password, (port,) = secrets.token_hex(8), free_ports(1)
    postgres.psql(
        record,
        postgres.DATABASE,
        f"DROP ROLE IF EXISTS {_POLL_ROLE}; CREATE ROLE {_POLL_ROLE} SUPERUSER LOGIN PASSWORD '{password}'",
    )
    made = config.sections(layout, state, "api")
    made["DEFAULT"] |= {
        "host": "bench-poll",
        "pid_file": str(layout.run / "bench-poll.pid"),
        "log_file": str(layout.log_file("bench-poll")),
    }
    made["api"]["port"] = str(port)
    made["database"]["connection"] = postgres.url(record | {"password": password}, _POLL_ROLE)
    file = layout.etc / "bench-poll.conf"
    file.touch(mode=0o600)
    file.write_text(config.render(made))
    process = processes.start(
        [str(BINARIES / "pinfold-api"), "--config-file", str(file)], layout.log_file("bench-poll")
    )
    try:
        with Client(f"http://127.0.0.1:{port}") as client:
            wait_for("the polling API answers", lambda: _answers(client, process), 60)
        yield port
    finally:
        processes.stop(process)
        file.unlink()


def _answers(client: Client, process: Process) -> bool:
    if not processes.alive(process):
        raise SystemExit("the polling API ended; see its log")
    try:
        return client.request("GET", "/healthz").status_code == 200
    except httpx.HTTPError:
        return False


class Bench:
    """One cloud under measurement."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.layout = Layout(arguments.dir.resolve())
        state = self.layout.load()
        if state is None:
            raise SystemExit(f"there is no cloud in {self.layout.root}; start one with ./stack.sh")
        self.state = state
        try:
            with Client(f"http://127.0.0.1:{state.options.port}") as client:
                self.image = client.image_id(IMAGE)
        except httpx.HTTPError as error:
            raise SystemExit(f"the cloud in {self.layout.root} does not answer: {error}") from error

    def reading(self) -> meter.Reading:
        return meter.read(self.layout, self.state)

    def load(
        self, clients: int, cycles: int | None, seconds: float | None, poll_port: int | None = None
    ) -> Result:
        port = self.state.options.port
        load = Load(port, poll_port or port, self.arguments.flavor, self.image, self.arguments.poll)
        return load.run(clients, cycles, seconds)

    def idle(self) -> dict[str, Any]:
        """What the cloud costs by itself, per second."""
        before, began = self.reading(), time.monotonic()
        time.sleep(self.arguments.idle)
        spent, wall = meter.between(before, self.reading()), time.monotonic() - began
        return {
            "cpu_per_second": sum(spent.cpu.values()) / wall,
            "sql_per_second": None if spent.sql is None else sum(spent.sql.values()) / wall,
            "messages_per_second": None if spent.messages is None else spent.messages / wall,
        }

    def busy(self) -> dict[str, Any]:
        """The load that was asked for."""
        wanted = self.arguments
        cycles = 100 if wanted.cycles is None and wanted.seconds is None else wanted.cycles
        before = self.reading()
        result = self.load(wanted.clients, cycles, wanted.seconds)
        spent = meter.between(before, self.reading())
        done = max(result.cycles, 1)
        return {
            "clients": wanted.clients,
            "cycles": result.cycles,
            "failed": len(result.failures),
            "failures": result.failures[:10],
            "cycles_per_second": result.rate,
            "polls_per_cycle": result.polls / done,
            "milliseconds": {
                operation: {
                    "p50": result.milliseconds(operation, 0.5),
                    "p99": result.milliseconds(operation, 0.99),
                }
                for operation in OPERATIONS
            },
            "cpu_per_cycle": sum(spent.cpu.values()) / done,
            "cpu_per_cycle_by_process": {name: seconds / done for name, seconds in spent.cpu.items()},
            "sql_per_cycle": None if spent.sql is None else sum(spent.sql.values()) / done,
            "messages_per_cycle": None if spent.messages is None else spent.messages / done,
            "pss_mb": sum(spent.pss.values()),
            "pss_mb_by_process": spent.pss,
            "processes": spent.processes,
        }

    def quiet(self) -> dict[str, Any] | None:
        """One client whose looks go through another API with its own database role."""
        cycles = self.arguments.quiet_cycles
        if not cycles or postgres.NAME not in self.state.servers or not self.state.options.multi:
            return None
        with polling_api(self.layout, self.state) as port:
            self.load(1, 2, None, port)
            before, began = self.reading(), time.monotonic()
            result = self.load(1, cycles, None, port)
            spent, wall = meter.between(before, self.reading()), time.monotonic() - began
        if result.failures:
            raise SystemExit(f"a cycle failed while counting statements: {result.failures[0]}")
        sql = spent.sql or {}
        polling = sql.pop(_POLL_ROLE, 0)
        return {
            "cycles": result.cycles,
            "seconds": wall,
            "sql_per_cycle_without_polling": sum(sql.values()) / result.cycles,
            "sql_per_cycle_with_polling": (sum(sql.values()) + polling) / result.cycles,
            "messages_per_cycle": None if spent.messages is None else spent.messages / result.cycles,
        }


def report(idle: dict[str, Any], busy: dict[str, Any], quiet: dict[str, Any] | None) -> str:
    """Our figures beside Nova's."""
    clients = min(NOVA, key=lambda known: abs(known - busy["clients"]))
    nova = NOVA[clients]
    lines = [f"{'':34}{'Pinfold':>16}   Nova 34, {clients} client{'s' * (clients > 1)} (measured elsewhere)"]

    def line(text: str, ours: str, theirs: object) -> None:
        lines.append(f"{text:34}{ours:>16}   {theirs}")

    line("clients", str(busy["clients"]), clients)
    line("cycles per second", f"{busy['cycles_per_second']:.2f}", nova["rate"])
    line("failed cycles", f"{busy['failed']} of {busy['cycles'] + busy['failed']}", nova["failed"])
    for operation in OPERATIONS:
        taken = busy["milliseconds"][operation]
        line(
            f"{operation}, ms (p50 / p99)",
            f"{taken['p50']:.0f} / {taken['p99']:.0f}",
            f"{nova[operation]} (p50)",
        )
    line("CPU-seconds per cycle", f"{busy['cpu_per_cycle']:.3f}", nova["cpu"])
    line("AMQP messages per cycle", _number(busy["messages_per_cycle"]), nova["messages"])
    line("SQL per cycle, polling included", _number(busy["sql_per_cycle"]), nova["sql"])
    if quiet:
        line("  one client: with polling", _number(quiet["sql_per_cycle_with_polling"]), NOVA[1]["sql"])
        line("  one client: without polling", _number(quiet["sql_per_cycle_without_polling"]), "not known")
        line("  one client: AMQP messages", _number(quiet["messages_per_cycle"]), NOVA[1]["messages"])
    line("memory (PSS), processes", f"{busy['pss_mb']:.0f} MB in {busy['processes']}", NOVA_MEMORY)
    line("idle: CPU-s, SQL, AMQP per s", _idle(idle), "")
    lines.append("CPU-seconds per cycle by process: " + _by_process(busy["cpu_per_cycle_by_process"], ".3f"))
    lines.append("PSS by process, MB: " + _by_process(busy["pss_mb_by_process"], ".0f"))
    return "\n".join([*lines, *(f"failed: {failure}" for failure in busy["failures"])])


def _number(value: float | None) -> str:
    return "not counted" if value is None else f"{value:.1f}"


def _idle(idle: dict[str, Any]) -> str:
    keys = ("cpu_per_second", "sql_per_second", "messages_per_second")
    return ", ".join("-" if idle[key] is None else f"{idle[key]:.2f}" for key in keys)


def _by_process(figures: dict[str, float], form: str) -> str:
    return ", ".join(f"{name} {value:{form}}" for name, value in figures.items())


def main() -> int:
    arguments = _arguments()
    bench = Bench(arguments)
    idle = bench.idle()
    busy = bench.busy()
    quiet = bench.quiet()
    print(report(idle, busy, quiet))
    if arguments.json:
        arguments.json.write_text(json.dumps({"idle": idle, "busy": busy, "quiet": quiet}, indent=1) + "\n")
    return 1 if busy["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
