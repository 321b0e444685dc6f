"""What grows: the cost of the same work beside 10, 1,000 and 10,000 hosts, servers and deleted servers.

    ./stack.sh --multi --no-story --hosts 2 --topology benchmarks/topology-128.json
    .venv/bin/python -m benchmarks.growth

The book is filled with so many hosts (all full, and up), servers, deleted servers and thrice as many operations;
then servers live their lives and requests are made, one after another. Printed is what each costs, as a multiple of
the first size too: CPU of all processes but this one, SQL statements, and pages that they look at. At the end the
filling is removed and the first size measured again: how far the machine has drifted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import msgspec
import sqlalchemy as sa

from benchmarks import filled, meter
from benchmarks.load import Connection, Load
from devstack import postgres
from devstack.client import Client
from devstack.layout import Layout, State
from devstack.seed import IMAGE
from pinfold.db.session import make_engine

_PAGES = (
    "SELECT sum(shared_blks_hit + shared_blks_read) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid "
    f"WHERE d.datname = '{postgres.DATABASE}'"
)
_REQUESTS = {
    "list servers": "/v2.1/servers/detail?limit=20",
    "list deleted": "/v2.1/servers/detail?limit=20&deleted=true&all_tenants=1",
    "list all": "/v2.1/servers/detail?limit=20&all_tenants=1",
    "list by host": "/v2.1/servers/detail?limit=20&all_tenants=1&host=filled-3",
    "list by name": "/v2.1/servers?limit=20&all_tenants=1&name=server-7",
    "server": "/v2.1/servers/00000003-0000-0000-0000-000000000003",
    "its actions": "/v2.1/servers/00000003-0000-0000-0000-000000000003/os-instance-actions",
    "hypervisors": "/v2.1/os-hypervisors/detail?limit=20",
    "limits": "/v2.1/limits",
    "migrations": "/v2.1/os-migrations?limit=20",
}


class Spent(msgspec.Struct, frozen=True):
    """Of one piece of work: CPU in milliseconds, SQL statements, and pages that they looked at."""

    cpu: float
    sql: float
    pages: float


def _arguments() -> argparse.Namespace:
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=root / ".stack", help="the cloud's folder (./.stack)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 1000, 10000])
    parser.add_argument("--cycles", type=int, default=40)
    parser.add_argument("--requests", type=int, default=100, help="of each kind (100)")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds without work (20)")
    parser.add_argument("--only", nargs="+", help="of the kinds of work, only these")
    return parser.parse_args()


class Bench:
    """One cloud under measurement, whose database is PostgreSQL."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.layout = Layout(arguments.dir.resolve())
        state = self.layout.load()
        if state is None or postgres.NAME not in state.servers:
            raise SystemExit(
                f"there is no cloud on PostgreSQL in {self.layout.root}; start one with ./stack.sh --multi"
            )
        self.state: State = state
        self.record = state.servers[postgres.NAME]
        self.engine = make_engine(postgres.url(self.record))
        self.port = state.options.port
        try:
            with Client(f"http://127.0.0.1:{self.port}") as client:
                self.image = client.image_id(IMAGE)
        except httpx.HTTPError as error:
            raise SystemExit(f"the cloud in {self.layout.root} does not answer: {error}") from error

    def _pages(self) -> int:
        return int(postgres.psql(self.record, "postgres", _PAGES))

    def measured(self, work: Callable[[], float]) -> Spent:
        """What ``work`` costs, by each of what it says that it has done."""
        pages, before = self._pages(), meter.read(self.layout, self.state, messages=False)
        done = work()
        spent = meter.between(before, meter.read(self.layout, self.state, messages=False))
        sql = sum((spent.sql or {}).values())
        return Spent(1000 * sum(spent.cpu.values()) / done, sql / done, (self._pages() - pages) / done)

    def cycles(self) -> float:
        load = Load(self.port, self.port, "p2", self.image, 0.1)
        result = load.run(1, self.arguments.cycles, None)
        if result.failures:
            raise SystemExit(f"a cycle failed: {result.failures[0]}")
        return result.cycles

    def idle(self) -> float:
        time.sleep(self.arguments.idle)
        return float(self.arguments.idle)

    def requests(self, path: str) -> float:
        ask = Connection(self.port)
        for _ in range(self.arguments.requests):
            status, document = ask("GET", path)
            if status != 200:
                raise SystemExit(f"GET {path}: {status} {document}")
        return float(self.arguments.requests)

    def all(self) -> Iterator[tuple[str, Spent]]:
        work: dict[str, Callable[[], float]] = {
            "a second of idleness": self.idle,
            "a server's life": self.cycles,
        }
        for name, path in _REQUESTS.items():
            work[name] = partial(self.requests, path)
        wanted = self.arguments.only or work
        for name, each in work.items():
            if name in wanted:
                yield name, self.measured(each)


def _ratio(now: float, first: float) -> str:
    return f"{now / first:6.2f}" if first >= 0.05 else "     -"


def main() -> None:
    """Measure at each size, and print a line for each kind of work and size."""
    arguments = _arguments()
    bench = Bench(arguments)
    filled.empty(bench.engine)
    first: dict[str, Spent] = {}
    have = 0
    for size in [*arguments.sizes, arguments.sizes[0]]:
        if size < have:
            filled.empty(bench.engine)
            have = 0
        filled.fill(bench.engine, have, size)
        have = size
        with bench.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text("VACUUM ANALYZE"))
        bench.cycles()
        for name, spent in bench.all():
            then = first.setdefault(name, spent)
            print(
                f"{size:6} {name:20} {spent.cpu:8.1f} ms of CPU {_ratio(spent.cpu, then.cpu)}"
                f" {spent.sql:8.1f} SQL {_ratio(spent.sql, then.sql)}"
                f" {spent.pages:9.1f} pages {_ratio(spent.pages, then.pages)}",
                flush=True,
            )
    filled.empty(bench.engine)


if __name__ == "__main__":
    main()
