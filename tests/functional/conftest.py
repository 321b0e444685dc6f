"""The clouds: started once per session, emptied before each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.harness import Cloud

SHAPES: dict[str, tuple[str, ...]] = {"all-in-one": (), "multi": ("--multi",)}


@pytest.fixture(scope="session", params=list(SHAPES))
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """A running cloud of each shape."""
    yield from _cloud(tmp_path_factory.mktemp("cloud") / "stack", *SHAPES[request.param])


def _cloud(folder: Path, *options: str) -> Iterator[Cloud]:
    cloud = Cloud(folder, *options)
    try:
        yield cloud
    finally:
        keep = folder.parent / "log"
        shutil.copytree(cloud.layout.log, keep, dirs_exist_ok=True)
        cloud.close()


@pytest.fixture
def cloud(running: Cloud) -> Cloud:
    """An empty cloud, of each shape in turn."""
    running.reset()
    return running
