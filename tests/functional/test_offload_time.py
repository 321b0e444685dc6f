"""[DEFAULT] shelved_offload_time below and above zero, each on a small cloud of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.harness import Cloud, check_books


def small(folder: Path, seconds: int) -> Iterator[Cloud]:
    cloud = Cloud(folder / "stack", "--hosts", "2", "--set", f"DEFAULT.shelved_offload_time={seconds}")
    yield cloud
    cloud.close()


@pytest.fixture(scope="module")
def running_never(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    yield from small(tmp_path_factory.mktemp("never"), -1)


@pytest.fixture
def never(running_never: Cloud) -> Cloud:
    running_never.reset()
    return running_never


@pytest.fixture
def later(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    yield from small(tmp_path_factory.mktemp("later"), 2)


def test_below_zero_a_shelved_server_keeps_its_place(never: Cloud) -> None:
    server = never.boot("server", "p4")
    held = never.pins(server)
    never.client.act(server, "shelve")
    shown = never.client.wait(server, "SHELVED")
    assert shown["OS-EXT-SRV-ATTR:host"] == "host-1"
    assert never.pins(server) == held
    check_books(never)
    assert never.unshelve(server)["OS-EXT-SRV-ATTR:host"] == "host-1"
    assert never.pins(server) == held
    never.await_no_images()
    check_books(never)


def test_below_zero_an_offload_that_is_asked_for_frees_the_pins_at_once(never: Cloud) -> None:
    server = never.boot("server", "p8", "host-2")
    never.client.act(server, "shelve")
    never.client.wait(server, "SHELVED")
    never.client.act(server, "shelveOffload")
    never.client.wait(server, "SHELVED_OFFLOADED", poll=0.002)
    assert never.used("host-2") == frozenset()
    never.boot("next", "p8", "host-2")
    check_books(never)


def test_above_zero_it_is_offloaded_once_the_time_is_over(later: Cloud) -> None:
    server = later.boot("server", "p4")
    later.client.act(server, "shelve")
    shown = later.client.wait(server, "SHELVED", "SHELVED_OFFLOADED")
    assert shown["status"] == "SHELVED"
    assert later.pins(server)
    later.client.wait(server, "SHELVED_OFFLOADED", seconds=20)
    assert later.pins(server) == {}
    check_books(later)
    later.unshelve(server)
    check_books(later)


def test_a_delete_of_a_shelved_server_leaves_no_image(never: Cloud) -> None:
    """F067."""
    server = never.boot("server", "p2")
    never.client.act(server, "shelve")
    never.client.wait(server, "SHELVED")
    assert len(never.shelved_images()) == 1
    never.delete(server)
    never.await_no_images()
