"""What is looked at when a server is placed again: its present size, and nothing that was asked for once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.functional.harness import Cloud, check_books

LIVE_AGAIN = {"OpenStack-API-Version": "compute 2.90"}


def fill(cloud: Cloud, but: str) -> None:
    """Take all dedicated CPUs, but for two of one host."""
    for host in cloud.client.nodes():
        for flavor in ("p8", "p4", *(["p2"] if host != but else [])):
            cloud.boot(f"{flavor}-{host}", flavor, host)


@pytest.mark.parametrize(
    ("before", "after", "end"), [("p8", "p2", "confirmResize"), ("p2", "p8", "revertResize")]
)
def test_a_server_that_was_resized_or_not_after_all_is_placed_by_its_size_on_any_host(
    cloud: Cloud, before: str, after: str, end: str
) -> None:
    """F063, F064: it was forced to host-1, moved off it, and finds the last two CPUs there."""
    server = cloud.boot("server", before, "host-1")
    cloud.client.act(server, "resize", {"flavorRef": after})
    cloud.client.wait(server, "VERIFY_RESIZE")
    cloud.client.act(server, end)
    cloud.client.wait(server, "ACTIVE")
    cloud.offload(server)
    fill(cloud, but="host-1")
    assert cloud.unshelve(server)["OS-EXT-SRV-ATTR:host"] == "host-1"
    assert {host: len(cpus) for host, cpus in cloud.pins(server).items()} == {"host-1": 2}
    check_books(cloud)


@contextmanager
def fenced(cloud: Cloud, host: str) -> Iterator[None]:
    """An operator has said that the host is down."""
    rows = cloud.client.get(f"/v2.1/os-services?binary=nova-compute&host={host}")["services"]
    path = f"/v2.1/os-services/{rows[0]['id']}"
    cloud.client.call("PUT", path, {"forced_down": True})
    try:
        yield
    finally:
        cloud.client.call("PUT", path, {"forced_down": False})


def test_an_evacuation_that_nobody_takes_changes_nothing_and_is_tried_again(cloud: Cloud) -> None:
    """F083: and the stop that its host has died in is not in the way."""
    server = cloud.boot("server", "p8", "host-1")
    others = [cloud.boot(f"on-{host}", "p8", host) for host in ("host-2", "host-3")]
    path = f"/v2.1/servers/{server}/action"
    with cloud.fault("power_off", "hang", server=server), fenced_after_a_stop(cloud, server):
        held = cloud.pins(server)
        cloud.client.call("POST", path, {"evacuate": {}}, **LIVE_AGAIN)
        shown = cloud.client.settled(server)
        assert (shown["OS-EXT-STS:vm_state"], shown["OS-EXT-SRV-ATTR:host"]) == ("active", "host-1")
        assert "No valid host" in shown["fault"]["message"]
        assert cloud.pins(server) == held
        cloud.delete(others[0])
        cloud.client.call("POST", path, {"evacuate": {}}, **LIVE_AGAIN)
        assert cloud.client.wait(server, "ACTIVE")["OS-EXT-SRV-ATTR:host"] == "host-2"
    # the host is back: its worker looks when it starts
    cloud.await_replaced("compute-host-1", cloud.kill("compute-host-1"))
    cloud.await_unused("host-1")
    check_books(cloud)


@contextmanager
def fenced_after_a_stop(cloud: Cloud, server: str) -> Iterator[None]:
    """host-1 is said to be down while it stops the server."""
    cloud.client.act(server, "os-stop")
    cloud.await_task(server, "powering-off")
    with fenced(cloud, "host-1"):
        yield
