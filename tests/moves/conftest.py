"""Towns on SQLite; the schema is made once and copied."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pinfold.db.session import Book, make_engine
from pinfold.runtime import RealRuntime
from tests.books import new_book, sqlite_url
from tests.moves.town import Town

MakeTown = Callable[..., Town]


@pytest.fixture(scope="session")
def empty_book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the schema of this release."""
    folder = tmp_path_factory.mktemp("empty")
    new_book(sqlite_url(folder)).engine.dispose()
    return folder / "book.db"


@pytest.fixture
def make_town(tmp_path: Path, empty_book: Path) -> Iterator[MakeTown]:
    """Makes towns; settings of the conductor by keyword."""
    books: list[Book] = []

    def make(**settings: Any) -> Town:
        folder = tmp_path / f"town-{len(books)}"
        folder.mkdir()
        shutil.copy(empty_book, folder)
        books.append(Book(make_engine(sqlite_url(folder)), RealRuntime()))
        return Town(folder, books[-1], **settings)

    yield make
    for book in books:
        book.engine.dispose()


@pytest.fixture
def town(make_town: MakeTown) -> Town:
    """Three hosts."""
    return make_town()
