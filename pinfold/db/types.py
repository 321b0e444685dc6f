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
