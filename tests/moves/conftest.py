"""Towns on SQLite, or on PostgreSQL where a test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pinfold.db.session import Book
from tests.books import new_book, sqlite_url
from tests.moves.town import Town

MakeTown = Callable[..., Town]

#: For what is to hold on both, the embedded database and one with many writers.
on_both = pytest.mark.parametrize("kind_of_book", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def kind_of_book(request: pytest.FixtureRequest) -> str:
    """Where the book is kept."""
    kind: str = getattr(request, "param", "sqlite")
    return kind


@pytest.fixture
def make_town(request: pytest.FixtureRequest, tmp_path: Path, kind_of_book: str) -> Iterator[MakeTown]:
    """Makes towns; settings of the conductor by keyword."""
    books: list[Book] = []

    def make(**settings: Any) -> Town:
        folder = tmp_path / f"town-{len(books)}"
        folder.mkdir()
        if kind_of_book == "sqlite":
            url = sqlite_url(folder)
        else:
            assert not books, "there is one database, and so one town"
            url = request.getfixturevalue("postgresql").emptied()
        books.append(new_book(url))
        return Town(folder, books[-1], **settings)

    yield make
    for book in books:
        book.engine.dispose()


@pytest.fixture
def town(make_town: MakeTown) -> Town:
    """Three hosts."""
    return make_town()
