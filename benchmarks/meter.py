"""What a cloud costs: CPU, memory, SQL statements and messages, from the outside."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import msgspec

from devstack import mariadb, postgres, processes, rabbit
from devstack.layout import Layout, State

_TICKS = os.sysconf("SC_CLK_TCK")


class Reading(msgspec.Struct, frozen=True):
    """Totals since each process began; ``None`` where nothing counts. Subtract two for an interval.

    ``cpu`` and ``pss`` are by recorded process, in seconds and MB; ``sql`` is by role of the database.
    """

    cpu: dict[str, float]
    pss: dict[str, float]
    processes: int
    sql: dict[str, int] | None
    messages: int | None


class _Stat(msgspec.Struct, frozen=True):
    parent: int
    session: int
    seconds: float


def read(layout: Layout, state: State, *, messages: bool = True) -> Reading:
    """All totals now; to ask for the number of ``messages`` takes a second or more."""
    table = _process_table()
    trees = {
        name: _tree(process.pid, table)
        for name, process in state.processes.items()
        if processes.alive(process)
    }
    return Reading(
        cpu={name: sum(table[pid].seconds for pid in tree) for name, tree in trees.items()},
        pss={name: sum(map(_pss, tree)) for name, tree in trees.items()},
        processes=sum(map(len, trees.values())),
        sql=_statements(state),
        messages=_messages(layout, state) if messages else None,
    )


def _process_table() -> dict[int, _Stat]:
    table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            # Its own time, and that of children that have ended and were waited for.
            ticks = sum(int(field) for field in fields[11:15])
            table[int(entry.name)] = _Stat(int(fields[1]), int(fields[3]), ticks / _TICKS)
    return table


def _tree(root: int, table: dict[int, _Stat]) -> set[int]:
    """``root``, its session and its descendants (a database server's children have sessions of their own)."""
    found = {root} | {pid for pid, stat in table.items() if stat.session == root}
    while more := {pid for pid, stat in table.items() if stat.parent in found} - found:
        found |= more
    return found & table.keys()


def _pss(pid: int) -> float:
    """Proportional set size in MB."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0.0
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def _statements(state: State) -> dict[str, int] | None:
    """Every statement that the server ran for the cloud's database, by role; BEGIN and COMMIT count too."""
    if record := state.servers.get(mariadb.NAME):
        return {mariadb.USER: mariadb.statements(record)}
    record = state.servers.get(postgres.NAME)
    if record is None:
        return None
    rows = postgres.psql(
        record,
        "postgres",
        "SELECT r.rolname, sum(s.calls) FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid "
        f"JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = '{postgres.DATABASE}' GROUP BY 1",
    )
    return {role: int(calls) for role, calls in (row.split("|") for row in rows.splitlines())}


def _messages(layout: Layout, state: State) -> int | None:
    """Messages that the broker took from publishers; without a broker there are none to count."""
    record = state.servers.get(rabbit.NAME)
    if record is None:
        return 0 if not state.options.multi else None
    text = rabbit.control(layout, record, "eval", "rabbit_global_counters:overview().")
    return sum(int(number) for number in re.findall(r"messages_received_total\s*=>\s*(\d+)", text))


def between(before: Reading, after: Reading) -> Reading:
    """What was spent from one reading to another; memory as it is at the end."""
    cpu = Counter(after.cpu)
    cpu.subtract(before.cpu)
    sql = None
    if before.sql is not None and after.sql is not None:
        sql = {role: calls - before.sql.get(role, 0) for role, calls in after.sql.items()}
    messages = None
    if before.messages is not None and after.messages is not None:
        messages = after.messages - before.messages
    return Reading(dict(cpu), after.pss, after.processes, sql, messages)
