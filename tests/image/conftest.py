"""Each store behind one face, for the contract's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1 import session, token_endpoint

from pinfold.db.session import Book
from pinfold.image.files import FileStore
from pinfold.image.glance import GlanceStore
from pinfold.image.store import Image, Store
from pinfold.runtime import RealRuntime
from tests.books import new_book, sqlite_url
from tests.http.cloud import Cloud
from tests.image.server import Gate, ImageApi, served

RUNTIME = RealRuntime()

Open = Callable[[], Store]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the files are, in the end."""
    return tmp_path / "images"


@pytest.fixture
def files(path: Path) -> FileStore:
    return FileStore(RUNTIME, str(path))


@pytest.fixture(scope="session")
def gate() -> Iterator[Gate]:
    """A server on loopback, one for all tests: its stop takes half a second."""
    gate = Gate()
    with served(gate):
        yield gate


@pytest.fixture
def api(gate: Gate, files: FileStore) -> ImageApi:
    """An image service of this test alone."""
    gate.application = ImageApi(RUNTIME, files)
    return gate.application


@pytest.fixture
def endpoint(gate: Gate, api: ImageApi) -> str:
    return gate.address


@pytest.fixture
def glance(endpoint: str) -> GlanceStore:
    return connected(endpoint)


def connected(endpoint: str) -> GlanceStore:
    """A store over a connection of its own."""
    http = session.Session(auth=token_endpoint.Token(endpoint, "admin:admin:admin"), timeout=20)
    return GlanceStore(RUNTIME, http, endpoint, pause=0.01)


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Book]:
    """An empty book, which Pinfold's API wants although its images are not there."""
    book = new_book(sqlite_url(tmp_path_factory.mktemp("book")))
    yield book
    book.engine.dispose()


@pytest.fixture
def pinfold(book: Book, gate: Gate, tmp_path: Path) -> Iterator[str]:
    """Where Pinfold's own image service listens."""
    cloud = Cloud("", book, tmp_path)
    gate.application = cloud.app
    yield gate.address
    cloud.transport.close()


PINFOLD = "pinfold"


@pytest.fixture(params=["files", "glance", PINFOLD])
def opened(request: pytest.FixtureRequest, path: Path) -> Open:
    """Opens one store, each time as another process does: files; a strict image service; Pinfold's own."""
    if request.param == "files":
        return lambda: FileStore(RUNTIME, str(path))
    endpoint = request.getfixturevalue("endpoint" if request.param == "glance" else "pinfold")
    return lambda: connected(endpoint)


@pytest.fixture
def store(opened: Open) -> Store:
    return opened()


def record(image: str = "", **fields: Any) -> Image:
    """An image record as an API makes it."""
    now = RUNTIME.now()
    image = image or RUNTIME.new_id()
    known: dict[str, Any] = {"name": "tiny", "status": "queued", "owner": "p", "visibility": "private"}
    return Image(**{**known, "id": image, "created_at": now, "updated_at": now, **fields})
