"""What each operation leaves behind, in the book and at the hypervisor."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from devstack.client import ApiError, pins
from devstack.seed import CONTENT
from tests.functional.harness import Cloud, check_books, until


def start_of(disk: Path) -> bytes:
    """The first part of a disk, which is a sparse file of 1 GB."""
    with open(disk, "rb") as file:
        return file.read(1_000_000)


def test_bytes_written_before_a_shelve_are_there_after_the_unshelve(cloud: Cloud) -> None:
    server = cloud.boot("server", "p2")
    disk = cloud.disk(server, "host-1")
    assert start_of(disk).startswith(CONTENT)
    written = b"written by the guest itself"
    with open(disk, "r+b") as file:
        file.seek(300_000)
        file.write(written)
    cloud.offload(server)
    assert not disk.exists()
    host = cloud.unshelve(server, "host-2")["OS-EXT-SRV-ATTR:host"]
    content = start_of(cloud.disk(server, host))
    assert content.startswith(CONTENT)
    assert content[300_000 : 300_000 + len(written)] == written
    check_books(cloud)


def test_an_unshelve_right_after_the_state_shows_always_succeeds(cloud: Cloud) -> None:
    """F042: the state is the last thing written."""

    def round_trips(number: int) -> None:
        server = cloud.boot(f"server-{number}", "p2", host=None)
        for _ in range(15):
            cloud.client.act(server, "shelve")
            cloud.client.wait(server, "SHELVED_OFFLOADED", poll=0.005)
            cloud.client.act(server, "unshelve")
            cloud.client.wait(server, "ACTIVE", poll=0.005)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(round_trips, range(3)))
    check_books(cloud)


def test_a_boot_by_another_right_after_the_state_shows_succeeds(cloud: Cloud) -> None:
    """F042: a p8 leaves room for no other on its host, until it is offloaded."""
    for number in range(5):
        leaving = cloud.boot(f"leaving-{number}", "p8")
        cloud.client.act(leaving, "shelve")
        cloud.client.wait(leaving, "SHELVED_OFFLOADED", poll=0.005)
        coming = cloud.boot(f"coming-{number}", "p8")
        cloud.delete(coming)
        cloud.delete(leaving)
    check_books(cloud)


def test_the_host_names_the_node_where_the_guest_is(cloud: Cloud) -> None:
    """F062: after a boot, an unshelve elsewhere and a failed unshelve; later actions reach that node."""
    server = cloud.boot("server", "p4")
    assert cloud.where(server) == ["host-1"]
    cloud.offload(server)
    assert cloud.where(server) == []
    assert cloud.unshelve(server, "host-3")["OS-EXT-SRV-ATTR:host"] == "host-3"
    assert cloud.where(server) == ["host-3"]
    cloud.offload(server)
    with cloud.fault("spawn", "fail", when="after"):
        cloud.client.act(server, "unshelve")
        assert cloud.client.wait(server, "SHELVED_OFFLOADED")["OS-EXT-SRV-ATTR:host"] is None
    assert cloud.where(server) == []
    host = cloud.unshelve(server)["OS-EXT-SRV-ATTR:host"]
    assert cloud.where(server) == [host]
    cloud.delete(server)
    assert cloud.where(server) == []
    check_books(cloud)


def test_an_unshelve_that_fails_on_one_host_succeeds_on_another(cloud: Cloud) -> None:
    server = cloud.boot("server", "p4")
    cloud.offload(server)
    with cloud.fault("spawn", "fail", times=1):
        shown = cloud.unshelve(server)
    assert cloud.where(server) == [shown["OS-EXT-SRV-ATTR:host"]]
    check_books(cloud)


def test_no_shelve_image_is_left_behind(cloud: Cloud) -> None:
    """F067: not after five rounds, and not when the shelved server is deleted."""
    server = cloud.boot("server", "p2")
    for _ in range(5):
        cloud.offload(server)
        until(lambda: len(cloud.shelved_images()) == 1, lambda: f"{cloud.shelved_images()}", 15)
        cloud.unshelve(server)
    cloud.offload(server)
    cloud.delete(server)
    cloud.await_no_images()


def test_a_missing_shelve_image_ends_the_unshelve_in_error(cloud: Cloud) -> None:
    """F093: with a fault that names the image, no claim on any node and no task."""
    server = cloud.boot("server", "p4")
    cloud.offload(server)
    (image,) = cloud.shelved_images()
    cloud.client.call("DELETE", f"/image/v2/images/{image['id']}")
    cloud.client.act(server, "unshelve")
    shown = cloud.client.wait(server, "ERROR")
    assert image["id"] in shown["fault"]["message"]
    assert shown["OS-EXT-SRV-ATTR:host"] is None
    assert cloud.pins(server) == {}
    check_books(cloud)


def test_no_valid_host_says_how_many_were_refused_for_what(cloud: Cloud) -> None:
    for host in cloud.options.host_names:
        cloud.boot(f"on-{host}", "p8", host)
    server = cloud.ask("one-too-many", "p8", host=None)
    shown = cloud.client.wait(server, "ERROR")
    assert "3" in shown["fault"]["message"], shown["fault"]
    (create,) = cloud.client.operations(server)
    refusals = cloud.client.operation(create["id"])["refusals"]
    assert {refusal["host"] for refusal in refusals} == set(cloud.options.host_names)
    check_books(cloud)


def test_create_shows_a_task_as_long_as_it_builds(cloud: Cloud) -> None:
    server = cloud.ask("server", "p2")
    while (shown := cloud.client.server(server))["status"] == "BUILD":
        assert shown["OS-EXT-STS:task_state"] in ("scheduling", "spawning")
    assert shown["status"] == "ACTIVE"
    assert shown["OS-EXT-STS:task_state"] is None


@pytest.mark.parametrize("flavor", ["p1", "p2", "p4", "p8", "s1", "s2"])
def test_every_flavor_boots_and_leaves_nothing(cloud: Cloud, flavor: str) -> None:
    before = cloud.client.node("host-1")
    server = cloud.boot("server", flavor)
    node = cloud.client.node("host-1")
    assert len(pins(node, server)) == (int(flavor[1:]) if flavor.startswith("p") else 0)
    assert node["memory_used_mb"] > before["memory_used_mb"]
    check_books(cloud)
    cloud.delete(server)
    after = cloud.client.node("host-1")
    for field in ("memory_used_mb", "disk_used_gb", "vcpus_shared_used", "cells", "claims"):
        assert after[field] == before[field]


def test_of_more_servers_at_once_than_there_is_room_for_those_that_fit_run(cloud: Cloud) -> None:
    """F047: a host has room for three p4; the others are told that no host is valid."""
    hosts = len(cloud.client.nodes())
    with ThreadPoolExecutor(3 * hosts + 2) as pool:
        servers = list(
            pool.map(lambda n: cloud.client.boot(f"p4-{n}", "p4", cloud.image), range(3 * hosts + 2))
        )
    found = [cloud.client.settled(server, 60) for server in servers]
    assert sorted(server["status"] for server in found) == ["ACTIVE"] * 3 * hosts + ["ERROR"] * 2
    for server in found:
        assert server["status"] == "ACTIVE" or "No valid host" in server["fault"]["message"]
    assert [len(pins(node)) for node in cloud.client.nodes().values()] == [12] * hosts
    check_books(cloud)


def test_of_twenty_shelves_at_once_one_is_accepted(cloud: Cloud) -> None:
    """F025: exactly one 202; nineteen 409; one image."""
    server = cloud.boot("server", "p2")
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: cloud.client.action(server, "shelve").status_code, range(20)))
    assert sorted(answers) == [202] + [409] * 19
    cloud.client.wait(server, "SHELVED_OFFLOADED")
    assert len(cloud.shelved_images()) == 1
    check_books(cloud)


def test_of_mixed_requests_at_once_one_is_accepted_until_the_delete(cloud: Cloud) -> None:
    """F025: shelves and deletes; every answer is one of what is allowed, and the end is the deletion."""
    server = cloud.boot("server", "p2")

    def request(number: int) -> int:
        if number % 4 == 3:
            return cloud.client.request("DELETE", f"/v2.1/servers/{server}").status_code
        return cloud.client.action(server, "shelve").status_code

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(request, range(16)))
    assert set(answers) <= {202, 204, 404, 409}
    assert answers.count(202) <= 1
    cloud.client.wait_gone(server)
    cloud.await_unused()
    check_books(cloud)


def test_a_request_in_the_wrong_state_is_409_and_changes_nothing(cloud: Cloud) -> None:
    server = cloud.boot("server", "p2")
    for action in ("unshelve", "shelveOffload"):
        with pytest.raises(ApiError) as refused:
            cloud.client.act(server, action)
        assert refused.value.status == 409
    assert cloud.client.server(server)["status"] == "ACTIVE"
    check_books(cloud)


def test_force_delete_ends_a_server_in_any_state(cloud: Cloud) -> None:
    running, shelved = cloud.boot("running", "p2"), cloud.boot("shelved", "p2")
    cloud.offload(shelved)
    for server in (running, shelved):
        cloud.client.act(server, "forceDelete")
        cloud.client.wait_gone(server)
    cloud.await_unused()
    check_books(cloud)
