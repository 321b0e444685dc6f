"""Deletes that meet other work: nothing is left, nothing is freed twice, and nothing answers 500."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.functional.harness import Cloud, check_books, only_multi


def delete_twice(cloud: Cloud, server: str) -> list[int]:
    """Two deletes at once; their statuses."""
    with ThreadPoolExecutor(2) as pool:
        path = f"/v2.1/servers/{server}"
        return list(pool.map(lambda _: cloud.client.request("DELETE", path).status_code, range(2)))


def assert_gone(cloud: Cloud, server: str) -> None:
    cloud.client.wait_gone(server)
    cloud.await_unused()
    check_books(cloud)
    assert cloud.where(server) == []


@contextmanager
def build_held(cloud: Cloud, server_name: str, when: str) -> Iterator[str]:
    """A server whose spawn hangs before or after its work."""
    with cloud.fault("spawn", "hang", when=when):
        server = cloud.ask(server_name, "p4")
        cloud.await_pins(server)
        cloud.await_task(server, "spawning")
        yield server


@pytest.mark.parametrize("when", ["before", "after"])
def test_two_deletes_of_a_server_that_is_being_spawned(cloud: Cloud, when: str) -> None:
    """F018: both are 204 or 404; no guest, no pins."""
    with build_held(cloud, "server", when) as server:
        assert set(delete_twice(cloud, server)) <= {204, 404}
    assert_gone(cloud, server)


def test_two_deletes_of_a_server_right_after_its_create(cloud: Cloud) -> None:
    """F018: at whatever step the build happens to be."""
    for _ in range(10):
        server = cloud.ask("server", "p4")
        assert set(delete_twice(cloud, server)) <= {204, 404}
        assert_gone(cloud, server)


@only_multi
def test_two_deletes_of_a_server_that_no_conductor_has_seen(cloud: Cloud) -> None:
    """F018: the build stops before it is scheduled."""
    with cloud.frozen("conductor-1", "conductor-2"):
        server = cloud.ask("server", "p4")
        assert set(delete_twice(cloud, server)) <= {204, 404}
    assert_gone(cloud, server)


@only_multi
def test_two_deletes_of_a_server_that_its_worker_has_not_claimed(cloud: Cloud) -> None:
    """F018: the build stops between the scheduler and the claim."""
    with cloud.frozen("compute-host-1"):
        server = cloud.ask("server", "p4")
        cloud.await_task(server, "scheduling", "spawning")
        assert set(delete_twice(cloud, server)) <= {204, 404}
    assert_gone(cloud, server)


@only_multi
def test_a_delete_before_the_claim_of_a_live_unshelve(cloud: Cloud) -> None:
    """F019: the local delete wins, and the worker's claim is refused."""
    server = cloud.boot("server", "p4")
    cloud.offload(server)
    with cloud.frozen("compute-host-1"):
        cloud.client.act(server, "unshelve", {"host": "host-1"})
        cloud.client.delete(server)
    assert_gone(cloud, server)
    cloud.await_no_images()


def test_a_delete_after_the_claim_of_a_live_unshelve(cloud: Cloud) -> None:
    """F019: the delete goes to the node and ends the same."""
    server = cloud.boot("server", "p4")
    cloud.offload(server)
    with cloud.fault("spawn", "hang", server=server):
        cloud.client.act(server, "unshelve", {"host": "host-1"})
        cloud.await_pins(server)
        cloud.client.delete(server)
    assert_gone(cloud, server)
    cloud.await_no_images()


def test_a_delete_at_any_instant_of_a_live_unshelve(cloud: Cloud) -> None:
    """F019: twenty random interleavings, the same in each run."""
    chance = random.Random(1545675)
    for _ in range(20):
        server = cloud.boot("server", "p4")
        cloud.offload(server)
        cloud.client.act(server, "unshelve")
        # No condition to wait for: the instant itself is what varies.
        time.sleep(chance.uniform(0, 0.15))
        assert cloud.client.request("DELETE", f"/v2.1/servers/{server}").status_code in (204, 404)
        cloud.client.wait_gone(server)
        check_books(cloud)
    cloud.await_no_images()


def test_deleting_a_server_whose_conductor_died_frees_its_claim(cloud: Cloud) -> None:
    """F020: without waiting for any audit."""
    with build_held(cloud, "server", "before") as server:
        old = cloud.kill("conductor-1")
        if cloud.multi:
            cloud.kill("conductor-2")
        cloud.await_replaced("conductor-1", old)
        cloud.client.delete(server)
    assert_gone(cloud, server)
    assert len(cloud.pins(cloud.boot("next", "p8"))["host-1"]) == 8


def test_a_snapshot_under_way_when_its_server_is_deleted_leaves_no_image(cloud: Cloud) -> None:
    """F092, as far as the snapshots of shelves go."""
    server = cloud.boot("server", "p2")
    with cloud.fault("snapshot", "hang", server=server):
        cloud.client.act(server, "shelve")
        cloud.await_task(server, "shelving", "shelving_image_pending_upload", "shelving_image_uploading")
        cloud.client.delete(server)
    assert_gone(cloud, server)
    cloud.await_no_images()


def test_a_delete_of_a_server_on_a_hung_destroy_ends_when_it_returns(cloud: Cloud) -> None:
    server = cloud.boot("server", "p4")
    held = cloud.used()
    with cloud.fault("destroy", "hang", server=server):
        cloud.client.delete(server)
        cloud.await_task(server, "deleting")
        assert cloud.used() == held
    assert_gone(cloud, server)


def test_a_second_delete_is_404(cloud: Cloud) -> None:
    server = cloud.boot("server", "p2")
    cloud.delete(server)
    assert cloud.client.request("DELETE", f"/v2.1/servers/{server}").status_code == 404
