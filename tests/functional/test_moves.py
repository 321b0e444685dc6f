"""Moves on a running cloud, by its API and by the real client. After every step the books are right."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devstack.client import Json, until
from tests.functional.harness import Cloud, check_books, only_all_in_one, only_multi
from tests.functional.test_cli import openstack, shell

TEXT = b"what it wrote"


def written(cloud: Cloud, server: str) -> str:
    """The server, which has written to its disk."""
    with open(cloud.disk(server, cloud.where(server)[0]), "r+b") as disk:
        disk.write(TEXT)
    return server


def read(cloud: Cloud, server: str) -> bytes:
    host = cloud.client.server(server)["OS-EXT-SRV-ATTR:host"]
    with open(cloud.disk(server, host), "rb") as disk:
        return disk.read(len(TEXT))


def act(cloud: Cloud, server: str, action: str, value: Any, *statuses: str) -> Json:
    """An action and its end, and what must hold after it."""
    cloud.client.act(server, action, value)
    shown = cloud.client.wait(server, *statuses)
    cloud.client.settled(server)
    check_books(cloud)
    return shown


@pytest.mark.parametrize("end", ["confirmResize", "revertResize"])
def test_a_server_is_resized_with_its_disk_and_that_is_confirmed_or_reverted(cloud: Cloud, end: str) -> None:
    server = written(cloud, cloud.boot("server", "p2"))
    held = cloud.pins(server)
    shown = act(cloud, server, "resize", {"flavorRef": "p4"}, "VERIFY_RESIZE")
    target = shown["OS-EXT-SRV-ATTR:host"]
    assert target != "host-1"
    assert read(cloud, server) == TEXT
    both = cloud.pins(server)
    assert (both["host-1"], len(both[target])) == (held["host-1"], 4)
    shown = act(cloud, server, end, None, "ACTIVE")
    if end == "confirmResize":
        assert (shown["OS-EXT-SRV-ATTR:host"], cloud.pins(server)) == (target, {target: both[target]})
    else:
        assert (shown["OS-EXT-SRV-ATTR:host"], cloud.pins(server)) == ("host-1", held)
    assert cloud.where(server) == [shown["OS-EXT-SRV-ATTR:host"]]
    cloud.await_no_images()


def test_a_move_that_fails_leaves_the_server_as_it_was(cloud: Cloud) -> None:
    server = written(cloud, cloud.boot("server", "p2"))
    held = cloud.pins(server)
    calls = ("migrate_disk", "finish_migration", "check_live_migration", "live_migrate")
    for call in calls:
        with cloud.fault(call):
            live = {"host": None, "block_migration": "auto"}
            action, value = ("os-migrateLive", live) if "live" in call else ("migrate", None)
            shown = act(cloud, server, action, value, "ACTIVE")
        assert "fault" in cloud.client.server(server), call
        assert (shown["OS-EXT-SRV-ATTR:host"], cloud.pins(server)) == ("host-1", held), call
    assert read(cloud, server) == TEXT


def test_a_worker_killed_in_a_move_leaves_no_trace_of_that(cloud: Cloud) -> None:
    server = written(cloud, cloud.boot("server", "p2"))
    with cloud.fault("finish_migration", "hang"):
        cloud.client.act(server, "migrate", {"host": "host-2"})
        until(
            lambda: len(cloud.pins(server)) == 2 and cloud.await_task(server, "resize_finish"),
            lambda: "it has not come to the destination",
            30,
        )
        old = cloud.kill("compute-host-2")
    cloud.await_replaced("compute-host-2", old)
    shown = cloud.client.wait(server, "VERIFY_RESIZE", "ACTIVE", seconds=60)
    cloud.client.settled(server, seconds=60)
    check_books(cloud, 60)
    assert read(cloud, server) == TEXT
    if shown["status"] == "VERIFY_RESIZE":
        act(cloud, server, "confirmResize", None, "ACTIVE")


@only_multi
def test_a_server_is_evacuated_from_a_host_that_is_dead_and_comes_back(cloud: Cloud) -> None:
    server = cloud.boot("server", "p2")
    cloud.stop("compute-host-1")
    until(
        lambda: cloud.client.node("host-1")["state"] == "down", lambda: "host-1 is still taken to be up", 40
    )
    shown = act(cloud, server, "evacuate", {"host": "host-2"}, "SHUTOFF")
    assert shown["OS-EXT-SRV-ATTR:host"] == "host-2"
    assert sorted(cloud.where(server)) == ["host-1", "host-2"]
    assert cloud.used("host-1")
    cloud.resume()
    cloud.await_unused("host-1")
    check_books(cloud)
    assert cloud.where(server) == ["host-2"]


@only_all_in_one
def test_moves_by_the_command_line(cloud: Cloud) -> None:
    server = cloud.boot("cli", "p2")
    shell(cloud, "openstack server migrate --host host-2 --wait cli")
    check_books(cloud)
    assert cloud.client.server(server)["status"] == "VERIFY_RESIZE"
    shell(cloud, "openstack server migration revert cli")
    cloud.client.wait(server, "ACTIVE")
    check_books(cloud)
    shell(cloud, "openstack server migrate --live-migration --host host-2 --wait cli")
    check_books(cloud)
    assert cloud.client.server(server)["OS-EXT-SRV-ATTR:host"] == "host-2"
    shell(cloud, "openstack compute service set --down host-2 pinfold-compute")
    try:
        # not --wait: this client compares "active" with "ACTIVE", and would wait for ever for any cloud
        shell(cloud, "openstack server evacuate --host host-3 cli")
        # from 2.95 on it is shut down after that
        cloud.client.wait(server, "SHUTOFF")
    finally:
        shell(cloud, "openstack compute service set --up host-2 pinfold-compute")
    assert cloud.client.server(server)["OS-EXT-SRV-ATTR:host"] == "host-3"
    check_books(cloud)
    listed = openstack(cloud, "server migration list --server cli")
    assert [(move["Type"], move["Status"]) for move in listed] == [
        ("evacuation", "done"),
        ("live-migration", "completed"),
        ("migration", "reverted"),
    ]


@only_all_in_one
@pytest.mark.parametrize("end", ["abort", "force complete"])
def test_a_live_migration_is_shown_and_ended_by_the_command_line(cloud: Cloud, end: str) -> None:
    server = cloud.boot("cli", "p2")
    with cloud.fault("live_migrate", "hang"):
        cloud.client.act(server, "os-migrateLive", {"host": "host-2", "block_migration": "auto"})
        until(
            lambda: any(
                step["step"] == "live_migrate"
                for operation in cloud.client.operations(server)
                for step in operation["steps"]
            ),
            lambda: "it is not handed over",
            30,
        )
        (move,) = openstack(cloud, "server migration list --server cli")
        # by its number this client asks for a migration of a server of that number
        assert openstack(cloud, f"server migration show cli {move['UUID']}")["Status"] == "running"
        shell(cloud, f"openstack server migration {end} cli {move['Id']}")
        shown = cloud.client.settled(server)
    assert shown["OS-EXT-SRV-ATTR:host"] == ("host-1" if end == "abort" else "host-2")
    check_books(cloud)


@only_all_in_one
def test_a_host_is_drained(cloud: Cloud) -> None:
    servers = [cloud.boot(f"server-{flavor}", flavor) for flavor in ("p1", "p4")]
    try:
        planned = json.loads(cloud.manage("host", "drain", "host-1", "--plan", "--json").stdout)
        assert [task["move"] for task in planned] == ["migrate", "migrate"]
        assert {task["target_host"] for task in planned} <= {"host-2", "host-3"}
        done = cloud.manage("host", "drain", "host-1")
        assert (done.returncode, done.stdout) == (0, "Nothing is left on host host-1.\n")
        check_books(cloud)
        assert cloud.used("host-1") == frozenset()
        assert {cloud.client.server(server)["status"] for server in servers} == {"ACTIVE"}
    finally:
        shell(cloud, "openstack compute service set --enable host-1 pinfold-compute")
