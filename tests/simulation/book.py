"""The database of the simulated world: SQLite in memory, with the simulator's clock.

A transaction is never switched in its middle (SQLite has one writer, so others could not see that anyway), but
before it, and between its commit and what its caller learns of it: there a process may die, and a connection
may break so that the caller does not know whether it has committed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import sqlite

from pinfold.db import schema
from pinfold.db.models import Base
from pinfold.db.session import Book, make_engine
from tests.simulation.faults import Faults
from tests.simulation.loop import Loop, Process
from tests.simulation.runtime import BEGAN, SimRuntime

T = TypeVar("T")
_UNIX_EPOCH_AS_JULIAN_DAY = 2440587.5
_DIALECT = sqlite.dialect(paramstyle="named")


class _Made:
    """A constant statement as SQLite takes it: SQLAlchemy's way would take most of the time of a sweep."""

    def __init__(self, statement: sa.Select[*tuple[Any, ...]]) -> None:
        compiled = statement.compile(dialect=_DIALECT)
        self._text = str(compiled)
        self._constant = dict(compiled.params)
        types = [column.type.dialect_impl(_DIALECT) for column in statement.selected_columns]
        self._converts = [kind.result_processor(_DIALECT, None) for kind in types]

    def rows(self, raw: sqlite3.Connection, parameters: dict[str, str | float]) -> Sequence[Sequence[Any]]:
        found = raw.execute(self._text, {**self._constant, **parameters})
        return [
            tuple(
                value if convert is None else convert(value)
                for value, convert in zip(row, self._converts, strict=True)
            )
            for row in found
        ]


class Database:
    """The tables; one for all seeds of a Python process, emptied for each. ``commits`` are told who committed."""

    def __init__(self) -> None:
        self.clock: Callable[[], float] = lambda: 0.0
        self.engine = make_engine("sqlite://")
        event.listen(self.engine, "connect", self._set_clock)
        schema.upgrade(self.engine)
        connection = self.engine.raw_connection()
        raw = connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        self.raw = raw
        connection.close()
        self.on_commit: Callable[[Process], None] = lambda process: None
        self._made: dict[sa.Select[*tuple[Any, ...]], _Made] = {}

    def rows(
        self, statement: sa.Select[*tuple[Any, ...]], parameters: dict[str, str | float]
    ) -> Sequence[Sequence[Any]]:
        """What a constant statement finds."""
        made = self._made.get(statement)
        if made is None:
            made = self._made[statement] = _Made(statement)
        return made.rows(self.raw, parameters)

    def _set_clock(self, connection: sqlite3.Connection, entry: Any) -> None:
        # The product asks SQLite for julianday('now'); a function of ours takes the place of SQLite's.
        connection.create_function(
            "julianday", 1, lambda when: self.clock() / 86400.0 + _UNIX_EPOCH_AS_JULIAN_DAY
        )

    def reset(self) -> None:
        """As it was after the migrations."""
        with self.engine.begin() as connection:
            for table in reversed(Base.metadata.sorted_tables):
                connection.execute(sa.delete(table))


class SimBook(Book):
    """The real Book, whose transactions are points where the world may go on, or end for somebody."""

    def __init__(
        self, database: Database, loop: Loop, process: Process, runtime: SimRuntime, faults: Faults
    ) -> None:
        super().__init__(database.engine, runtime)
        self._database = database
        self._loop = loop
        self._process = process
        self._faults = faults

    def rows(
        self, statement: sa.Select[*tuple[Any, ...]], **parameters: str | float
    ) -> Sequence[Sequence[Any]]:
        return self._again(lambda: self._database.rows(statement, parameters))

    def _again(self, once: Callable[[], T]) -> T:
        return super()._again(lambda: self._transaction(once))

    def _transaction(self, once: Callable[[], T]) -> T:
        loop, process = self._loop, self._process
        loop.point(process, "transaction begins")
        self._faults.before_transaction(process)
        changes = self._database.raw.total_changes
        loop.atomic = True
        try:
            result = once()
        finally:
            loop.atomic = False
        if self._database.raw.total_changes != changes:
            self._database.on_commit(process)
            loop.point(process, "transaction committed")
            self._faults.after_commit(process)
        return result


def database_clock(loop: Loop) -> Callable[[], float]:
    """Seconds since 1970 by the database's clock."""
    return lambda: BEGAN + loop.now
