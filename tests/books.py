"""Books for tests: a SQLite file, or a database of its own on a private PostgreSQL."""

from __future__ import annotations

import functools
import pathlib
import tempfile

import sqlalchemy as sa

from pinfold.db import schema
from pinfold.db.models import Base
from pinfold.db.session import Book, make_engine
from pinfold.runtime import RealRuntime


def new_book(url: str) -> Book:
    """A book with the schema of this release, on a database that is empty or was emptied."""
    engine = make_engine(url)
    if engine.dialect.name == "sqlite":
        pathlib.Path(engine.url.database or "").write_bytes(_schema())
    elif schema.present(engine) is None:
        schema.upgrade(engine)
    return Book(engine, RealRuntime())


@functools.cache
def _schema() -> bytes:
    """A SQLite file with the schema of this release: the migrations take their time, a copy does not."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        engine = make_engine(sqlite_url(folder))
        schema.upgrade(engine)
        engine.dispose()
        return (folder / "book.db").read_bytes()


def empty(url: str) -> None:
    """Take every row out of the tables that are there; the schema stays."""
    engine = make_engine(url)
    if schema.present(engine) is not None:
        with engine.begin() as connection:
            for table in reversed(Base.metadata.sorted_tables):
                connection.execute(sa.delete(table))
    engine.dispose()


def sqlite_url(folder: pathlib.Path) -> str:
    """A database file in ``folder``."""
    return f"sqlite:///{folder}/book.db"
