"""A cloud on SQLite; for a few tests, on PostgreSQL too."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pinfold.db.session import Book, make_engine
from pinfold.runtime import RealRuntime
from tests.books import new_book, sqlite_url
from tests.http.cloud import Cloud

MakeCloud = Callable[..., Cloud]


@dataclass(frozen=True)
class Stocked:
    """A folder with a cloud that was stocked, what its hosts called themselves, and its image."""

    folder: pathlib.Path
    incarnations: dict[str, str]
    tiny: str


@pytest.fixture(scope="session")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> Stocked:
    """To be copied: to stock a cloud takes three times as long as to make one."""
    folder = tmp_path_factory.mktemp("stocked")
    url = sqlite_url(folder)
    cloud = Cloud(url, new_book(url), folder).stock()
    # what is in the write-ahead log goes into the file with its last connection
    cloud.close()
    return Stocked(folder, cloud.box.incarnations, cloud.tiny)


@pytest.fixture
def make_cloud(tmp_path: pathlib.Path, stocked: Stocked) -> Iterator[MakeCloud]:
    """Makes a cloud on SQLite; settings of the API by keyword."""
    made = []

    def make(url: str | None = None, **settings: Any) -> Cloud:
        if url is not None:
            made.append(Cloud(url, new_book(url), tmp_path, **settings).stock())
            return made[-1]
        shutil.copytree(stocked.folder, tmp_path, dirs_exist_ok=True)
        url = sqlite_url(tmp_path)
        made.append(Cloud(url, Book(make_engine(url), RealRuntime()), tmp_path, **settings))
        made[-1].box.incarnations |= stocked.incarnations
        for host in stocked.incarnations:
            made[-1].box.beat(host)
        made[-1].tiny = stocked.tiny
        return made[-1]

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
