"""A cloud on SQLite; for a few tests, on PostgreSQL too."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.books import new_book, sqlite_url
from tests.http.cloud import Cloud

MakeCloud = Callable[..., Cloud]


@pytest.fixture
def make_cloud(tmp_path: pathlib.Path) -> Iterator[MakeCloud]:
    """Makes a cloud on SQLite; settings of the API by keyword."""
    made = []

    def make(url: str | None = None, **settings: Any) -> Cloud:
        url = url or sqlite_url(tmp_path)
        made.append(Cloud(url, new_book(url), tmp_path, **settings))
        return made[-1].stock()

    yield make
    for cloud in made:
        cloud.close()


@pytest.fixture
def cloud(make_cloud: MakeCloud) -> Cloud:
    """A cloud with two hosts, flavor p2 and an image."""
    return make_cloud()


@pytest.fixture(params=["sqlite", "postgresql"])
def any_cloud(request: pytest.FixtureRequest, make_cloud: MakeCloud) -> Cloud:
    """The same on either database."""
    if request.param == "sqlite":
        return make_cloud()
    return make_cloud(request.getfixturevalue("postgresql").emptied())
