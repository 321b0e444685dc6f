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
STRANGER = "11111111-2222-3333-4444-555555555555"


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
    cloud.delete(server)


@only_all_in_one
def test_what_was_done_behind_its_back_is_named_and_only_what_is_safe_is_healed(cloud: Cloud) -> None:
    """A guest that vanished keeps its claim, one of nobody's is left alone, and one without a claim goes."""
    gone, _, stray = cloud.boot("gone", "p2"), cloud.boot("kept", "p2"), cloud.boot("stray", "p2")
    cloud.offload(stray)
    held = cloud.used()
    somebody = hypervisor(cloud)
    somebody.destroy(HOST, gone)
    for instance in (stray, STRANGER):
        somebody.spawn(GuestSpec(instance, "other", HOST, 1, 512, 1), iter([b"disk"]))
    try:
        code, said = audit(cloud, "--heal", "--node", HOST)
        (did,) = said["healed"]
        assert (did["node"], did["kind"], did["server"]) == (HOST, "stray-guest", stray)
        assert "removed" in did["did"]
        left = {difference["server"]: difference["kind"] for difference in said["differences"]}
        assert (code, left) == (1, {gone: "missing-guest", STRANGER: "unknown-guest"})
        assert all(difference["cause"] and difference["cure"] for difference in said["differences"])
        assert (cloud.where(stray), cloud.where(STRANGER)) == ([], [HOST])
        assert cloud.used() == held
    finally:
        somebody.destroy(HOST, STRANGER)


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
