"""The clouds: started once per session, emptied before each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.harness import Cloud
from tests.functional.variants import VARIANTS


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--variant",
        choices=list(VARIANTS),
        default="standard",
        help="what the clouds of tests/functional run on",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A variant without a cloud of some shape has no tests of it."""
    shapes = VARIANTS[config.getoption("--variant", "standard")]
    others = [item for item in items if _shape(item) not in (None, *shapes)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


def _shape(item: pytest.Item) -> str | None:
    call = getattr(item, "callspec", None)
    shape: str | None = call.params.get("running") if call else None
    return shape


@pytest.fixture(scope="session", params=list(VARIANTS["standard"]))
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """A running cloud of each shape."""
    shapes = VARIANTS[request.config.getoption("--variant", "standard")]
    folder = tmp_path_factory.mktemp("cloud")
    yield from _cloud(folder / "stack", *(option.format(folder=folder) for option in shapes[request.param]))


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
