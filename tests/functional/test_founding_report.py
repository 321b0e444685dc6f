"""The five facts of the founding report, "Resizing a pinned VM results in inconsistent state"."""

from __future__ import annotations

from devstack.client import pins
from tests.functional.harness import Cloud, check_books, watch


def test_usage_is_dropped_at_once_on_offload(cloud: Cloud) -> None:
    """F002: the first answer that says SHELVED_OFFLOADED finds the node empty."""
    first = cloud.boot("first", "p8")
    cloud.client.act(first, "shelve")
    cloud.client.wait(first, "SHELVED_OFFLOADED", poll=0.002)
    node = cloud.client.node("host-1")
    assert not pins(node)
    assert node["claims"] == []
    assert node["memory_used_mb"] == 0
    cloud.audit()
    assert cloud.client.node("host-1") == node
    second = cloud.boot("second", "p8")
    assert len(cloud.pins(second)["host-1"]) == 8
    check_books(cloud)


def test_an_abort_clears_host_node_and_numa_data(cloud: Cloud) -> None:
    """F001: after an unshelve whose spawn failed, nothing points at any node."""
    server = cloud.boot("server", "p4")
    cloud.offload(server)
    with cloud.fault("spawn"):
        cloud.client.act(server, "unshelve")
        shown = cloud.client.wait(server, "SHELVED_OFFLOADED")
    assert shown["OS-EXT-SRV-ATTR:host"] is None
    assert shown["OS-EXT-SRV-ATTR:hypervisor_hostname"] is None
    assert shown["OS-EXT-STS:vm_state"] == "shelved_offloaded"
    assert "spawn" in shown["fault"]["message"] or "spawn" in shown["fault"].get("details", "")
    assert cloud.pins(server) == {}
    cloud.audit()
    assert cloud.pins(server) == {}
    check_books(cloud)
    cloud.delete(server)
    assert len(cloud.pins(cloud.boot("next", "p8"))["host-1"]) == 8


def test_an_unshelving_servers_claim_is_never_taken_for_an_offloaded_ones(cloud: Cloud) -> None:
    """F004, F005: from claim to ACTIVE the pins stay, whatever audits, although the state says offloaded."""
    server = cloud.boot("server", "p4")
    cloud.offload(server)
    with cloud.fault("spawn", "hang", server=server):
        cloud.client.act(server, "unshelve", {"host": "host-1"})
        held = cloud.await_pins(server)
        cloud.await_task(server, "spawning")
        cloud.audit()
        assert cloud.client.server(server)["OS-EXT-STS:vm_state"] == "shelved_offloaded"
        assert cloud.pins(server) == held
        neighbour = cloud.boot("neighbour", "p4")
        assert not cloud.pins(neighbour)["host-1"] & held["host-1"]
        refused = cloud.ask("refused", "p8")
        cloud.client.wait(refused, "ERROR")
        cloud.audit()
        assert cloud.pins(server) == held
    assert cloud.client.wait(server, "ACTIVE")["OS-EXT-SRV-ATTR:host"] == "host-1"
    assert cloud.pins(server) == held
    check_books(cloud)


def test_the_host_is_not_forgotten_before_its_resources_are_freed(cloud: Cloud) -> None:
    """F003: in every answer during an offload, a server without a host holds no pins."""
    server = cloud.boot("server", "p4")
    cloud.client.act(server, "shelve")

    def offloaded() -> bool:
        shown = cloud.client.server(server)
        if shown["OS-EXT-SRV-ATTR:host"] is None:
            assert cloud.pins(server) == {}
        return bool(shown["status"] == "SHELVED_OFFLOADED")

    watch(offloaded, "the offload")
    assert cloud.pins(server) == {}
    check_books(cloud)


def test_a_failed_unshelve_followed_by_a_delete_frees_nothing_twice(cloud: Cloud) -> None:
    """And the delete is done in the API without a message: its operation was never cast."""
    server = cloud.boot("server", "p8")
    freed = cloud.pins(server)["host-1"]
    cloud.offload(server)
    with cloud.fault("spawn", server=server):
        cloud.client.act(server, "unshelve")
        cloud.client.wait(server, "SHELVED_OFFLOADED")
    heir = cloud.boot("heir", "p8")
    assert cloud.pins(heir)["host-1"] == freed
    before = cloud.client.node("host-1")
    cloud.client.delete(server)
    assert cloud.client.request("GET", f"/v2.1/servers/{server}").status_code == 404
    (delete,) = [work for work in cloud.client.operations(server) if work["kind"] == "delete"]
    assert delete["attempt"] == 0
    cloud.audit()
    assert cloud.client.node("host-1") == before
    assert cloud.pins(heir)["host-1"] == freed
    check_books(cloud)
