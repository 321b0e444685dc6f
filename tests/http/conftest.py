"""A cloud on SQLite; for a few tests, on PostgreSQL too."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pinfold.db.session import Book, make_engine
from pinfold.runtime import RealRuntime
from tests.books import new_book, sqlite_url
from tests.http.cloud import Cloud

MakeCloud = Callable[..., Cloud]


@pytest.fixture(scope="session")
def empty_book(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A SQLite file with the schema of this release, to be copied: migrations take their time."""
    folder = tmp_path_factory.mktemp("empty")
    new_book(sqlite_url(folder)).engine.dispose()
    return folder / "book.db"


@pytest.fixture
def make_cloud(tmp_path: pathlib.Path, empty_book: pathlib.Path) -> Iterator[MakeCloud]:
    """Makes a cloud on SQLite; settings of the API by keyword."""
    made = []

    def make(url: str | None = None, **settings: Any) -> Cloud:
        if url is None:
            url = sqlite_url(tmp_path)
            shutil.copy(empty_book, tmp_path)
            book = Book(make_engine(url), RealRuntime())
        else:
            book = new_book(url)
        made.append(Cloud(url, book, tmp_path, **settings))
        return made[-1].stock()

    yield make
    for cloud in made:
        cloud.transport.close()
        cloud.book.engine.dispose()


@pytest.fixture
def cloud(make_cloud: MakeCloud) -> Cloud:
    """A cloud with two hosts, flavor p2 and an image."""
    return make_cloud()


@pytest.fixture(params=["sqlite", "postgresql"])
def any_cloud(request: pytest.FixtureRequest, make_cloud: MakeCloud) -> Cloud:
    """The same on either database."""
    if request.param == "sqlite":
        return make_cloud()
    return make_cloud(request.getfixturevalue("postgresql").create())
