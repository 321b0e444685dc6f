"""pinfold-manage audit: what somebody has done behind our back is named, with its cause and its cure."""

from __future__ import annotations

import json
import shutil
from typing import Any

from pinfold.runtime import RealRuntime
from pinfold.virt.driver import GuestSpec
from pinfold.virt.fake import FakeDriver
from tests.functional.harness import Cloud, check_books, only_all_in_one, only_multi, until

HOST = "host-1"


def audit(cloud: Cloud, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and what was said."""
    done = cloud.manage("audit", "--json", *options)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def hypervisor(cloud: Cloud, host: str = HOST) -> FakeDriver:
    """The host's hypervisor, as somebody else uses it."""
    return FakeDriver(RealRuntime(), host, [host], str(cloud.layout.hypervisor / host))


def test_a_cloud_that_is_well_has_no_differences(cloud: Cloud) -> None:
    server = cloud.boot("server", "p4")
    code, said = audit(cloud)
    assert (code, said["differences"], said["healed"], said["nodes"]) == (0, [], [], 3)
    assert "3 nodes, 0 differences" in cloud.manage("audit").stdout
    cloud.delete(server)


@only_all_in_one
def test_a_guest_that_was_removed_behind_its_back_is_named_and_its_claim_kept(cloud: Cloud) -> None:
    gone, kept = cloud.boot("gone", "p2"), cloud.boot("kept", "p2")
    hypervisor(cloud).destroy(HOST, gone)
    code, said = audit(cloud, "--node", HOST)
    (difference,) = said["differences"]
    assert (code, difference["kind"], difference["server"]) == (1, "missing-guest", gone)
    assert difference["node"] == HOST
    assert difference["cause"]
    assert "rebuild" in difference["cure"]
    code, said = audit(cloud, "--heal")
    assert (code, said["healed"]) == (1, [])
    assert set(cloud.pins(gone)) == set(cloud.pins(kept)) == {HOST}
    cloud.delete(gone)
    assert audit(cloud)[0] == 0


@only_all_in_one
def test_a_guest_without_a_claim_is_removed_by_heal_and_that_is_written_down(cloud: Cloud) -> None:
    server = cloud.boot("server", "p4")
    cloud.offload(server)
    hypervisor(cloud).spawn(GuestSpec(server, "server", HOST, 1, 512, 1), iter([b"disk"]))
    code, said = audit(cloud)
    (difference,) = said["differences"]
    assert (code, difference["kind"], difference["server"]) == (1, "stray-guest", server)
    code, said = audit(cloud, "--heal")
    assert (code, said["differences"]) == (0, [])
    (did,) = said["healed"]
    assert (did["server"], did["node"]) == (server, HOST)
    assert "removed" in did["did"]
    assert cloud.where(server) == []


@only_all_in_one
def test_a_guest_that_nobody_knows_is_named_and_left_alone(cloud: Cloud) -> None:
    other = "11111111-2222-3333-4444-555555555555"
    hypervisor(cloud).spawn(GuestSpec(other, "other", HOST, 1, 512, 1), iter([b"disk"]))
    try:
        code, said = audit(cloud, "--heal")
        (difference,) = said["differences"]
        assert (code, difference["kind"], difference["server"]) == (1, "unknown-guest", other)
        assert cloud.where(other) == [HOST]
    finally:
        hypervisor(cloud).destroy(HOST, other)


@only_all_in_one
def test_a_hypervisor_that_shows_nothing_heals_nothing_and_alarms(cloud: Cloud) -> None:
    """What it held stays held, and the log has an error."""
    servers = [cloud.boot(f"server-{number}", "p2") for number in range(3)]
    guests = next(cloud.layout.hypervisor.glob(f"{HOST}/*/guests"))
    aside = guests.with_name("aside-for-a-test")
    held = cloud.used()
    guests.rename(aside)
    guests.mkdir()
    try:
        code, said = audit(cloud, "--heal")
        (difference,) = said["differences"]
        assert (code, difference["kind"], said["healed"]) == (1, "mass", [])
        assert "3 servers are at home there" in difference["what"]
        assert cloud.used() == held
    finally:
        shutil.rmtree(guests)
        aside.rename(guests)
    assert audit(cloud)[0] == 0
    assert all(cloud.where(server) == [HOST] for server in servers)
    check_books(cloud)


@only_multi
def test_a_leftover_of_a_host_that_is_down_is_named_until_its_worker_is_back(cloud: Cloud) -> None:
    server = cloud.boot("server", "p4")
    cloud.stop("compute-host-1")
    try:
        until(lambda: cloud.client.node(HOST)["state"] == "down", lambda: "host-1 is not down", 30)
        cloud.delete(server)
        code, said = audit(cloud, "--heal")
        (difference,) = said["differences"]
        assert (code, difference["kind"], difference["server"]) == (1, "leftover", server)
        assert "start its worker" in difference["cure"]
    finally:
        cloud.resume()
    cloud.await_unused()
    assert audit(cloud)[0] == 0


@only_all_in_one
def test_an_operation_is_seen_hurried_and_called_off_without_sql(cloud: Cloud) -> None:
    """Its spawn hangs all the time."""
    with cloud.fault("spawn", "hang"):
        server = cloud.ask("server", "p2")
        cloud.await_task(server, "spawning")
        (operation,) = [work["id"] for work in cloud.client.operations(server)]
        assert operation in cloud.manage("operation", "list").stdout
        assert "spawn" in cloud.manage("operation", "show", operation).stdout
        assert cloud.manage("operation", "retry", operation).returncode == 0
        assert cloud.manage("operation", "unwind", operation).returncode == 0
        assert cloud.client.settled(server, 30)["status"] == "ERROR"
        assert operation not in cloud.manage("operation", "list").stdout
    cloud.await_unused()
    check_books(cloud)
