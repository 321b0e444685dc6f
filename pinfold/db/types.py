"""Column types, and the database's own clock.

All times in the book are seconds since 1970 (UTC) as a double, by the clock of the database:
leases of several machines can be compared, and arithmetic is the same on every database.
"""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

LongText = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
Seconds = sa.Double


class epoch(FunctionElement[float]):
    """The database's clock now, in seconds since 1970."""

    type = sa.Double()
    inherit_cache = True


@compiles(epoch, "postgresql")
def _postgresql(element: epoch, compiler: SQLCompiler, **kw: Any) -> str:
    return "(extract(epoch from clock_timestamp())::double precision)"


@compiles(epoch, "mysql", "mariadb")
def _mysql(element: epoch, compiler: SQLCompiler, **kw: Any) -> str:
    return "(unix_timestamp(sysdate(6)) + 0e0)"


@compiles(epoch, "sqlite")
def _sqlite(element: epoch, compiler: SQLCompiler, **kw: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


class Json(sa.TypeDecorator[Any]):
    """Plain JSON values in a text column."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        return dialect.type_descriptor(LongText)

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        return None if value is None else msgspec.json.encode(value).decode()

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        return None if value is None else msgspec.json.decode(value)


class Record(sa.TypeDecorator[Any]):
    """A frozen record (msgspec.Struct) as JSON in a text column."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        super().__init__()
        self.kind = kind
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        return dialect.type_descriptor(LongText)

    def process_bind_param(self, value: msgspec.Struct | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else msgspec.json.encode(value).decode()

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        return None if value is None else self._decoder.decode(value)


class json_number(FunctionElement[int]):
    """The whole number that a JSON column holds under a path of names: 0 where it holds none, or is null."""

    type = sa.BigInteger()
    inherit_cache = True

    def __init__(self, column: sa.ColumnElement[Any], *path: str) -> None:
        # as the text that it is; names here are plain words, and part of the statement
        super().__init__(sa.type_coerce(column, sa.Text), *(sa.literal_column(f"'{name}'") for name in path))


def _arguments(element: json_number, compiler: SQLCompiler, **kw: Any) -> tuple[str, list[str]]:
    column, *path = (compiler.process(clause, **kw) for clause in element.clauses)
    return column, [name.strip("'") for name in path]


@compiles(json_number, "postgresql")
def _number_in_postgresql(element: json_number, compiler: SQLCompiler, **kw: Any) -> str:
    column, path = _arguments(element, compiler, **kw)
    return f"coalesce((({column})::json #>> '{{{','.join(path)}}}')::bigint, 0)"


@compiles(json_number, "mysql", "mariadb")
def _number_in_mysql(element: json_number, compiler: SQLCompiler, **kw: Any) -> str:
    column, path = _arguments(element, compiler, **kw)
    return f"coalesce(cast(json_extract({column}, '$.{'.'.join(path)}') as signed), 0)"


@compiles(json_number, "sqlite")
def _number_in_sqlite(element: json_number, compiler: SQLCompiler, **kw: Any) -> str:
    column, path = _arguments(element, compiler, **kw)
    return f"coalesce(json_extract({column}, '$.{'.'.join(path)}'), 0)"


class largest(FunctionElement[int]):
    """The largest of several numbers of one row, none of them null."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(largest)
def _greatest(element: largest, compiler: SQLCompiler, **kw: Any) -> str:
    return f"greatest({compiler.process(element.clauses, **kw)})"


@compiles(largest, "sqlite")
def _max(element: largest, compiler: SQLCompiler, **kw: Any) -> str:
    return f"max({compiler.process(element.clauses, **kw)})"
