"""What goes wrong: each seed has kinds of faults of its own, and how often each of them strikes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from oslo_db import exception as db_errors

from pinfold.model import errors
from pinfold.virt.driver import DriverError
from tests.simulation.history import History
from tests.simulation.loop import Loop, Process

#: Kind, and the lowest and highest chance of it at each opportunity.
RATES: dict[str, tuple[float, float]] = {
    # at any point of any process
    "crash": (0.0002, 0.004),
    # of messages: request, reply and cast alike
    "lose": (0.005, 0.08),
    "double": (0.005, 0.1),
    "late": (0.005, 0.1),
    "linger": (0.2, 0.9),
    # of calls of the hypervisor: refused before or after its work, slow, hanging, and going on without its caller
    "driver-fail": (0.01, 0.15),
    "driver-fail-after": (0.01, 0.1),
    "driver-slow": (0.05, 0.5),
    "driver-hang": (0.005, 0.05),
    "driver-orphan": (0.3, 0.9),
    # of calls of the image store
    "store-fail": (0.01, 0.2),
    "store-fail-after": (0.01, 0.1),
    "store-slow": (0.05, 0.5),
    # of transactions: the connection breaks before, or after the commit, or all takes its time
    "db-fail": (0.002, 0.05),
    "db-fail-after": (0.002, 0.05),
    "db-slow": (0.01, 0.1),
}

#: What strikes a whole process, a host or all, now and then. ``fence``: an operator looks after hosts without power.
BLOWS = (
    "kill",
    "stop",
    "pause",
    "cut",
    "power-off",
    "clock",
    "broker-away",
    "database-away",
    "image-lost",
    "guest-off",
    "fence",
)
KINDS = (*RATES, *BLOWS)


class Faults:
    """Strikes while ``on``. ``count`` is how often each kind did."""

    def __init__(self, loop: Loop, history: History, kinds: Iterable[str]) -> None:
        self._loop = loop
        self._history = history
        self.on = False
        self.count: dict[str, int] = {}
        self.database_away = False
        self.crashes_left = 12
        random = loop.random
        allowed = sorted(set(kinds))
        some = [kind for kind in allowed if random.random() < 0.45] or allowed
        self.rates = {kind: random.uniform(*RATES[kind]) for kind in some if kind in RATES}
        self.blows = [kind for kind in some if kind in BLOWS]

    def strikes(self, kind: str) -> bool:
        """Whether this kind of fault happens here and now."""
        rate = self.rates.get(kind)
        if rate is None or not self.on or self._loop.random.random() >= rate:
            return False
        self.note(kind)
        return True

    def note(self, kind: str) -> None:
        """Count one."""
        self.count[kind] = self.count.get(kind, 0) + 1

    def uniform(self, low: float, high: float) -> float:
        """A number by the seed."""
        return self._loop.random.uniform(low, high)

    # --- where they strike ---------------------------------------------------------------------

    def at_point(self, process: Process, what: str) -> None:
        """A process may die wherever it could be switched."""
        if process.name != "world" and self.crashes_left > 0 and self.strikes("crash"):
            self.crashes_left -= 1
            self._history.add(process.name, f"!! KILLED at: {what}")
            self._loop.kill(process)

    def before_transaction(self, process: Process) -> None:
        """Raises what a broken connection raises."""
        if not self.on:
            return
        if self.strikes("db-slow"):
            self._wait(process, self.uniform(0.1, 8.0))
        if self.database_away or self.strikes("db-fail"):
            raise _broken("before the transaction")

    def after_commit(self, process: Process) -> None:
        """Raises what a broken connection raises, when nobody can tell whether it has committed."""
        if self.strikes("db-fail-after"):
            self._history.add(process.name, "!! the connection broke after the commit")
            raise _broken("at the commit")

    def _wait(self, process: Process, seconds: float) -> None:
        self._loop.sleep(process, seconds)

    def driver(self, process: Process, call: str, when: str) -> None:
        """Raises DriverError."""
        if self.strikes("driver-fail" if when == "before" else "driver-fail-after"):
            self._history.add(process.name, f"!! the hypervisor fails {when} its work: {call}")
            raise DriverError(f"{call} fails {when} its work, by the seed.")

    def driver_takes(self) -> float:
        """Seconds."""
        if self.strikes("driver-hang"):
            return self.uniform(30.0, 150.0)
        if self.strikes("driver-slow"):
            return self.uniform(0.5, 20.0)
        return self.uniform(0.0, 0.3)

    def store(self, process: Process, call: str, when: str) -> None:
        """Raises errors.Unavailable."""
        if when == "before" and self.strikes("store-slow"):
            self._wait(process, self.uniform(0.5, 15.0))
        if self.strikes("store-fail" if when == "before" else "store-fail-after"):
            self._history.add(process.name, f"!! the image store fails {when} its work: {call}")
            raise errors.Unavailable(f"{call} fails {when} its work, by the seed.")

    def deliveries(self) -> list[float]:
        """After how many seconds each copy of a message arrives: usually one, soon."""
        if self.strikes("lose"):
            return []
        copies = [self.uniform(0.0, 0.01)]
        if self.strikes("late"):
            copies = [self.uniform(0.1, 40.0)]
        if self.strikes("double"):
            copies.append(
                self.uniform(0.0, 0.01) if self._loop.random.random() < 0.5 else self.uniform(0, 30)
            )
        return copies


def _broken(when: str) -> db_errors.DBConnectionError:
    """What oslo.db makes of a connection that breaks."""
    return db_errors.DBConnectionError(sqlite3.OperationalError(f"the connection broke {when}"))
