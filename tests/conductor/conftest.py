"""A conductor in a box, on SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest

from pinfold.conductor.settings import Settings
from pinfold.image.files import FileStore
from pinfold.runtime import RealRuntime
from tests.books import new_book, sqlite_url
from tests.conductor.box import Box

MakeBox = Callable[..., Box]


@pytest.fixture
def url(database: str, request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    """Where the book is."""
    if database == "sqlite":
        return sqlite_url(tmp_path)
    url: str = request.getfixturevalue(database).emptied()
    return url


@pytest.fixture
def make_box(url: str, tmp_path: pathlib.Path) -> Iterator[MakeBox]:
    """Makes conductors on one book; settings by keyword."""
    book = new_book(url)
    images = FileStore(RealRuntime(), str(tmp_path / "images"))

    def make(**settings: object) -> Box:
        return Box(book, images, Settings(host="conductor-1", **settings))  # type: ignore[arg-type]

    yield make
    book.engine.dispose()


@pytest.fixture
def box(make_box: MakeBox) -> Box:
    """A conductor with two workers that are up."""
    box = make_box()
    box.register("n1")
    box.register("n2")
    return box
