"""Worlds for the worker's tests, with the in-memory book and with the real conductor on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compute.books import BookOfTests, FakeBook
from tests.compute.realbook import RealBook
from tests.compute.world import World

MakeWorld = Callable[[], World]


@pytest.fixture(params=["fake book", "real conductor"])
def make_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeWorld]:
    """Makes worlds, each with nothing in it but an image."""
    worlds: list[World] = []

    def make_book(world: World) -> BookOfTests:
        if request.param == "fake book":
            return FakeBook(world.images)
        return RealBook(world.folder, world.images)

    def make() -> World:
        folder = tmp_path / f"world-{len(worlds)}"
        folder.mkdir()
        worlds.append(World(folder, make_book))
        return worlds[-1]

    yield make
    for world in worlds:
        world.stop.set()
        if isinstance(world.book, RealBook):
            world.book.close()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """One of them."""
    return make_world()
