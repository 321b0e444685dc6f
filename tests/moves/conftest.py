"""Towns on SQLite, or on PostgreSQL where a test says so; the schema is made once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from pinfold.db.models import Base
from pinfold.db.session import Book, make_engine
from pinfold.runtime import RealRuntime
from tests.books import new_book, sqlite_url
from tests.moves.town import Town

MakeTown = Callable[..., Town]

#: For what is to hold on both, the embedded database and one with many writers.
on_both = pytest.mark.parametrize("kind_of_book", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture(scope="session")
def empty_book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the schema of this release."""
    folder = tmp_path_factory.mktemp("empty")
    new_book(sqlite_url(folder)).engine.dispose()
    return folder / "book.db"


@pytest.fixture(scope="session")
def postgresql_url(request: pytest.FixtureRequest) -> str:
    """A database with the schema of this release, for one town at a time."""
    url: str = request.getfixturevalue("postgresql").create()
    new_book(url).engine.dispose()
    return url


@pytest.fixture
def kind_of_book(request: pytest.FixtureRequest) -> str:
    """Where the book is kept."""
    kind: str = getattr(request, "param", "sqlite")
    return kind


@pytest.fixture
def make_town(
    request: pytest.FixtureRequest, tmp_path: Path, empty_book: Path, kind_of_book: str
) -> Iterator[MakeTown]:
    """Makes towns; settings of the conductor by keyword."""
    books: list[Book] = []

    def make(**settings: Any) -> Town:
        folder = tmp_path / f"town-{len(books)}"
        folder.mkdir()
        if kind_of_book == "sqlite":
            shutil.copy(empty_book, folder)
            engine = make_engine(sqlite_url(folder))
        else:
            assert not books, "there is one database, and so one town"
            engine = make_engine(request.getfixturevalue("postgresql_url"))
            _empty(engine)
        books.append(Book(engine, RealRuntime()))
        return Town(folder, books[-1], **settings)

    yield make
    for book in books:
        book.engine.dispose()


def _empty(engine: sa.Engine) -> None:
    """Nothing is left of the town before."""
    with engine.begin() as connection:
        connection.execute(sa.text(f"TRUNCATE {', '.join(Base.metadata.tables)} CASCADE"))


@pytest.fixture
def town(make_town: MakeTown) -> Town:
    """Three hosts."""
    return make_town()
