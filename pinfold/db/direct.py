"""One statement that reads, made once and run on the driver itself.

What SQLAlchemy does around a statement takes five times as long as the statement. For most that is no matter; but a
server is looked at again and again while something is done with it. PostgreSQL only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import psycopg
import sqlalchemy as sa

Row = tuple[Any, ...]
Convert = Callable[[Any], Any]


class Cursor(psycopg.Cursor[Row]):
    """Describes its columns by what SQLAlchemy looks at, names and types. Psycopg makes an object of each."""

    @property
    def description(self) -> Any:
        result = self.pgresult
        if result is None or not result.nfields:
            return None
        return [
            (result.fname(number).decode(), result.ftype(number), None, None, None, None, None)  # type: ignore[union-attr]
            for number in range(result.nfields)
        ]


class _Made:
    """A statement as the driver takes it, and what makes values of what it gives."""

    def __init__(self, statement: sa.Select[*tuple[Any, ...]], dialect: sa.Dialect) -> None:
        self._dialect = dialect
        self._types = [column.type.dialect_impl(dialect) for column in statement.selected_columns]
        self._converts: list[tuple[int, Convert]] | None = None
        self.compiled = statement.compile(dialect=dialect)
        self.text = str(self.compiled)

    def rows(self, cursor: psycopg.Cursor[Row]) -> list[Row]:
        """What the cursor has found, each value as its column's type has it."""
        if self._converts is None:
            described = zip(self._types, cursor.description or (), strict=True)
            found = [kind.result_processor(self._dialect, column[1]) for kind, column in described]
            self._converts = [(number, convert) for number, convert in enumerate(found) if convert]
        return [self._row(values, self._converts) for values in cursor.fetchall()]

    @staticmethod
    def _row(values: Row, converts: list[tuple[int, Convert]]) -> Row:
        row = list(values)
        for number, convert in converts:
            row[number] = convert(row[number])
        return tuple(row)


class Direct:
    """Statements on the connections of an engine, each one by itself: outside any transaction.

    ``error`` is what the driver raises; the connection is not used again.
    """

    error = psycopg.Error

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._made: dict[sa.Select[*tuple[Any, ...]], _Made] = {}

    def rows(self, statement: sa.Select[*tuple[Any, ...]], parameters: Mapping[str, Any]) -> list[Row]:
        """All rows. ``statement`` is a constant whose parameters are texts or numbers. Raises ``error``."""
        made = self._made.get(statement)
        if made is None:
            made = self._made[statement] = _Made(statement, self._engine.dialect)
        pooled = self._engine.raw_connection()
        connection: Any = pooled.driver_connection
        try:
            connection.autocommit = True
            found = made.rows(connection.execute(made.text, made.compiled.construct_params(parameters)))
            connection.autocommit = False
        except BaseException:
            pooled.invalidate()
            raise
        pooled.close()
        return found
