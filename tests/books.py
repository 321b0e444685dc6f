"""Books for tests: a SQLite file, or a database of its own on a private PostgreSQL."""

from __future__ import annotations

import pathlib

from pinfold.db import schema
from pinfold.db.session import Book, make_engine
from pinfold.runtime import RealRuntime


def new_book(url: str) -> Book:
    """A book with the schema of this release."""
    engine = make_engine(url)
    schema.upgrade(engine)
    return Book(engine, RealRuntime())


def sqlite_url(folder: pathlib.Path) -> str:
    """A database file in ``folder``."""
    return f"sqlite:///{folder}/book.db"
