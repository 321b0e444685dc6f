"""Statements that are made once and run on the driver itself.

What SQLAlchemy does around a statement takes four times as long as the statement. For most that is no matter; but a
server is looked at again and again while something is done with it, and each step of an operation is a transaction.
PostgreSQL only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy import orm

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


class _Entity:
    """The columns of a mapped class in a row, from ``first`` on; one that is deferred is not among them."""

    def __init__(self, mapper: orm.Mapper[Any], first: int) -> None:
        self._mapper = mapper
        self._names = [attribute.key for attribute in mapper.column_attrs if not attribute.deferred]
        self.columns = [mapper.columns[name] for name in self._names]
        self._slice = slice(first, first + len(self._names))
        self._key = first + self._names.index(str(mapper.primary_key[0].key))

    def of(self, session: orm.Session, row: list[Any]) -> Any:
        """The entity that the session has of this row, as a query would give it; None for an outer join's nothing."""
        if row[self._key] is None:
            return None
        known = session.identity_map.get(self._mapper.identity_key_from_primary_key((row[self._key],)))
        if known is not None:
            return known
        made = self._mapper.class_manager.new_instance()
        made.__dict__.update(zip(self._names, row[self._slice], strict=True))
        return persistent(session, made)


def persistent(session: orm.Session, entity: Any) -> Any:
    """Have the session take the entity for a row that is in the database as it is."""
    orm.make_transient_to_detached(entity)
    session.add(entity)
    return entity


class _Made:
    """A statement as the driver takes it, and what makes values of what it gives."""

    def __init__(self, statement: sa.Executable, dialect: sa.Dialect) -> None:
        compiled = statement.compile(dialect=dialect)  # type: ignore[attr-defined]
        self._dialect = dialect
        self._constant = dict(compiled.params)
        binds = {name: bind.type.dialect_impl(dialect) for bind, name in compiled.bind_names.items()}
        self._binds = {
            name: convert for name, kind in binds.items() if (convert := kind.bind_processor(dialect))
        }
        self._converts: list[tuple[int, Convert]] | None = None
        self._parts: list[int | _Entity] = []
        self._types: list[Any] = []
        self.text = str(compiled)
        if isinstance(statement, sa.Select):
            self._columns([described["expr"] for described in statement.column_descriptions])
        elif isinstance(statement, sa.SelectBase):
            self._columns(list(statement.selected_columns))

    def _columns(self, expressions: list[Any]) -> None:
        for expression in expressions:
            first = len(self._types)
            if isinstance(expression, type):
                entity = _Entity(orm.class_mapper(expression), first)
                self._parts.append(entity)
                columns = entity.columns
            else:
                self._parts.append(first)
                columns = [expression]
            self._types += [column.type.dialect_impl(self._dialect) for column in columns]

    def values(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters as the driver takes them."""
        values = {**self._constant, **parameters}
        for name, convert in self._binds.items():
            values[name] = convert(values[name])
        return values

    def rows(self, cursor: psycopg.Cursor[Row], session: orm.Session | None) -> list[Row]:
        """What the cursor has found, each value as its column's type has it; entities are the session's."""
        if self._converts is None:
            described = zip(self._types, cursor.description or (), strict=True)
            found = [kind.result_processor(self._dialect, column[1]) for kind, column in described]
            self._converts = [(number, convert) for number, convert in enumerate(found) if convert]
        return [self._row(list(values), self._converts, session) for values in cursor.fetchall()]

    def _row(self, row: list[Any], converts: list[tuple[int, Convert]], session: orm.Session | None) -> Row:
        for number, convert in converts:
            row[number] = convert(row[number])
        if session is None:
            return tuple(row)
        return tuple(row[part] if isinstance(part, int) else part.of(session, row) for part in self._parts)


@lru_cache(maxsize=1000)
def _insert(table: sa.Table, names: tuple[str, ...]) -> sa.Insert:
    return sa.insert(table).values({name: sa.bindparam(name, type_=table.c[name].type) for name in names})


@lru_cache(maxsize=1000)
def _update(table: sa.Table, names: tuple[str, ...]) -> sa.Update:
    changed = {name: sa.bindparam(name, type_=table.c[name].type) for name in names}
    keys = [key == sa.bindparam(f"the_{key.name}", type_=key.type) for key in table.primary_key]
    return sa.update(table).where(*keys).values(changed)


class Direct:
    """Statements on the connections of an engine.

    ``error`` is what the driver raises; the transaction can only be rolled back then.
    """

    error = psycopg.Error

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._made: dict[sa.Executable, _Made] = {}

    def _of(self, statement: sa.Executable) -> _Made:
        made = self._made.get(statement)
        if made is None:
            made = self._made[statement] = _Made(statement, self._engine.dialect)
        return made

    def rows(self, statement: sa.Executable, parameters: Mapping[str, Any]) -> list[Row]:
        """All rows of a constant statement by itself, outside any transaction. Raises ``error``."""
        made = self._of(statement)
        pooled = self._engine.raw_connection()
        connection: Any = pooled.driver_connection
        try:
            connection.autocommit = True
            found = made.rows(connection.execute(made.text, made.values(parameters)), None)
            connection.autocommit = False
        except BaseException:
            pooled.invalidate()
            raise
        pooled.close()
        return found

    def select(
        self, session: orm.Session, statement: sa.Executable, parameters: Mapping[str, Any]
    ) -> list[Row]:
        """All rows of a constant statement, in the session's transaction. Raises ``error``."""
        made = self._of(statement)
        return made.rows(self._run(session, made, parameters), session)

    def change(self, session: orm.Session, statement: sa.Executable, parameters: Mapping[str, Any]) -> int:
        """How many rows a constant statement has changed. Raises ``error``."""
        return self._run(session, self._of(statement), parameters).rowcount

    @staticmethod
    def _run(session: orm.Session, made: _Made, parameters: Mapping[str, Any]) -> psycopg.Cursor[Row]:
        connection: Any = session.connection().connection.driver_connection
        cursor: psycopg.Cursor[Row] = connection.execute(made.text, made.values(parameters))
        return cursor

    def add(self, session: orm.Session, entity: Any) -> None:
        """Insert a new entity, whose key is known, at once. Raises ``error``."""
        mapper = orm.object_mapper(entity)
        for attribute in mapper.column_attrs:
            default = attribute.columns[0].default
            if attribute.key not in entity.__dict__ and default is not None:
                made = default.arg if default.is_scalar else default.arg(None)
                setattr(entity, attribute.key, made)
        values = {attribute.key: getattr(entity, attribute.key) for attribute in mapper.column_attrs}
        self.change(session, _insert(mapper.local_table, tuple(values)), values)
        persistent(session, entity)

    def save(self, session: orm.Session) -> None:
        """Write what has changed of the session's entities, and let go of them: the transaction ends here.

        What is new or to be deleted is left to the session itself, and all else with it. Raises ``error``.
        """
        if session.new or session.deleted:
            return
        dirty = [(state.mapper.local_table, state) for state in map(sa.inspect, session.dirty)]
        for table, state in sorted(dirty, key=lambda pair: (pair[0].name, pair[1].identity)):
            now = state.dict
            changed = tuple(name for name, was in state.committed_state.items() if now[name] != was)
            if changed:
                keys = zip((f"the_{key.name}" for key in table.primary_key), state.identity, strict=True)
                self.change(
                    session, _update(table, changed), {**dict(keys), **{name: now[name] for name in changed}}
                )
        session.expunge_all()
