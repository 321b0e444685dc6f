"""Services, hypervisors and hosts over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from pinfold.db import hosts
from pinfold.db.models import Claim, Node, Operation
from pinfold.db.types import epoch
from pinfold.model.host import Hypervisor
from tests.conductor.box import two_cells
from tests.http.cloud import ADMIN, MISSING, Cloud

URL = "/v2.1/os-services"
NODES = "/v2.1/os-hypervisors"


def service(cloud: Cloud, host: str = "n1", version: str = "2.69") -> dict[str, Any]:
    answer = cloud.client(ADMIN, version).get(f"{URL}?binary=nova-compute&host={host}")
    (found,) = answer.json()["services"]
    return dict(found)


def put(cloud: Cloud, body: dict[str, Any], host: str = "n1") -> Any:
    return cloud.client(ADMIN, "2.69").put(f"{URL}/{service(cloud, host)['id']}", json=body)


def beat(cloud: Cloud, binary: str, host: str = "c1") -> None:
    id_ = cloud.runtime.new_id()
    cloud.book.write(lambda session: hosts.seen(session, binary, host, "i", new_id=id_))


# --- services ---------------------------------------------------------------------------------------


def test_services_are_listed_as_clients_know_them(any_cloud: Cloud) -> None:
    cloud = any_cloud
    beat(cloud, "pinfold-conductor")
    beat(cloud, "pinfold-api")
    rows = cloud.client(ADMIN, "2.69").get(URL).json()["services"]
    assert [(row["binary"], row["host"], row["zone"]) for row in rows] == [
        ("nova-conductor", "c1", "internal"),
        ("nova-compute", "n1", "nova"),
        ("nova-compute", "n2", "nova"),
    ]
    assert set(rows[1]) == {
        *("binary", "host", "id", "zone", "status", "state", "updated_at", "disabled_reason", "forced_down")
    }
    assert (rows[1]["status"], rows[1]["state"], rows[1]["forced_down"]) == ("enabled", "up", False)
    assert len(rows[1]["updated_at"]) == len("2026-11-30T16:30:22.000000")
    assert len(cloud.statements(cloud.admin, URL)) == 1


def test_ids_are_numbers_below_2_53_and_force_down_is_shown_from_2_11_on(cloud: Cloud) -> None:
    assert "forced_down" not in service(cloud, version="2.10")
    assert isinstance(service(cloud, version="2.52")["id"], int)
    assert len(service(cloud, version="2.53")["id"]) == 36


def test_a_disabled_worker_takes_no_servers(any_cloud: Cloud) -> None:
    cloud = any_cloud
    answer = put(cloud, {"status": "disabled", "disabled_reason": "x"}, "n2")
    assert answer.status_code == 200
    shown = answer.json()["service"]
    assert (shown["status"], shown["state"], shown["disabled_reason"]) == ("disabled", "up", "x")
    assert {cloud.show(cloud.boot())["OS-EXT-SRV-ATTR:host"] for _ in range(3)} == {"n1"}
    put(cloud, {"status": "enabled"}, "n2")
    assert service(cloud, "n2")["disabled_reason"] is None


def test_a_worker_that_is_forced_down_counts_as_down_until_it_is_not(any_cloud: Cloud) -> None:
    cloud = any_cloud
    server = cloud.boot(cloud.admin, availability_zone="nova:n1")
    assert put(cloud, {"forced_down": True}).json()["service"]["state"] == "down"
    assert cloud.show(server)["host_status"] == "DOWN"
    assert cloud.show(cloud.boot())["OS-EXT-SRV-ATTR:host"] == "n2"
    assert put(cloud, {"forced_down": "false"}).json()["service"]["state"] == "up"


def test_force_down_is_not_lifted_while_an_evacuation_is_open(cloud: Cloud) -> None:
    server = cloud.boot(cloud.admin, availability_zone="nova:n1")
    put(cloud, {"forced_down": True})

    def evacuate(session: Any) -> None:
        operation = session.scalars(sa.select(Operation).where(Operation.instance_id == server)).one()
        operation.kind, operation.open_key = "evacuate", server

    cloud.book.write(evacuate)
    answer = put(cloud, {"forced_down": False})
    assert (answer.status_code, answer.headers["X-Pinfold-Error"]) == (409, "evacuation-open")
    assert service(cloud)["forced_down"] is True


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"status": "on"},
        {"disabled_reason": "x"},
        {"status": "enabled", "disabled_reason": "x"},
        {"forced_down": "perhaps"},
        {"other": 1},
    ],
)
def test_a_bad_change_is_400(cloud: Cloud, body: dict[str, Any]) -> None:
    assert put(cloud, body).status_code == 400


def test_only_workers_can_be_changed(cloud: Cloud) -> None:
    beat(cloud, "pinfold-conductor")
    (row,) = cloud.admin.get(f"{URL}?binary=nova-conductor").json()["services"]
    assert cloud.admin.put(f"{URL}/{row['id']}", json={"status": "disabled"}).status_code == 400
    assert cloud.admin.put(f"{URL}/{MISSING}", json={"status": "disabled"}).status_code == 404
    assert cloud.admin.put(f"{URL}/n1", json={"status": "disabled"}).status_code == 400


@pytest.mark.parametrize(
    ("version", "change", "body", "told"),
    [
        ("2.1", "disable", {}, {"status": "disabled"}),
        (
            "2.1",
            "disable-log-reason",
            {"disabled_reason": "x"},
            {"status": "disabled", "disabled_reason": "x"},
        ),
        ("2.1", "enable", {}, {"status": "enabled"}),
        ("2.11", "force-down", {"forced_down": True}, {"forced_down": True}),
    ],
)
def test_below_2_53_the_change_stands_in_the_path(
    cloud: Cloud, version: str, change: str, body: dict[str, Any], told: dict[str, Any]
) -> None:
    named = {"host": "n1", "binary": "nova-compute"}
    client = cloud.client(ADMIN, version)
    answer = client.put(f"{URL}/{change}", json=named | body)
    assert answer.json() == {"service": named | told}
    assert client.put(f"{URL}/{change}", json={**named, "host": "none", **body}).status_code == 404
    assert client.put(f"{URL}/{change}", json={**named, "binary": "x", **body}).status_code == 400
    assert client.put(f"{URL}/explode", json=named).status_code == 404


def test_a_worker_with_claims_on_its_nodes_stays(any_cloud: Cloud) -> None:
    """Leftovers are claims too: that host may still run something."""
    cloud = any_cloud
    server = cloud.boot(cloud.admin, availability_zone="nova:n1")
    url = f"{URL}/{service(cloud)['id']}"
    assert cloud.admin.delete(url).status_code == 409
    cloud.box.die("n1")
    cloud.demo.delete(f"/v2.1/servers/{server}")
    cloud.admin.delete(f"/v2.1/servers/{server}")
    assert cloud.book.read(lambda session: session.scalar(sa.select(Claim.role))) == "leftover"
    before = cloud.everything()
    answer = cloud.admin.delete(url)
    assert (answer.status_code, answer.headers["X-Pinfold-Error"]) == (409, "host-in-use")
    assert cloud.everything() == before


def test_a_worker_goes_with_its_nodes_and_its_places_in_aggregates(any_cloud: Cloud) -> None:
    cloud = any_cloud
    aggregate = cloud.admin.post("/v2.1/os-aggregates", json={"aggregate": {"name": "a"}}).json()["aggregate"]
    cloud.admin.post(f"/v2.1/os-aggregates/{aggregate['id']}/action", json={"add_host": {"host": "n1"}})
    url = f"{URL}/{service(cloud)['id']}"
    assert cloud.admin.delete(url).status_code == 204
    assert cloud.admin.delete(url).status_code == 404
    assert [node["node"] for node in cloud.admin.get("/pinfold/v1/nodes").json()["nodes"]] == ["n2"]
    assert cloud.admin.get(f"/v2.1/os-aggregates/{aggregate['id']}").json()["aggregate"]["hosts"] == []
    cloud.box.register("n1")
    assert service(cloud)["status"] == "enabled"


def test_below_2_53_a_service_is_deleted_by_its_number(cloud: Cloud) -> None:
    client = cloud.client(ADMIN, "2.52")
    number = service(cloud, version="2.52")["id"]
    assert client.delete(f"{URL}/x").status_code == 400
    assert client.delete(f"{URL}/{number}").status_code == 204
    assert client.delete(f"{URL}/{number}").status_code == 404


def test_all_of_it_is_for_admins(cloud: Cloud) -> None:
    id_ = service(cloud)["id"]
    node = cloud.admin.get(NODES).json()["hypervisors"][0]["id"]
    old = cloud.client("ann:demo:member", "2.42")
    answers = [
        cloud.demo.get(URL),
        cloud.demo.put(f"{URL}/{id_}", json={"status": "disabled"}),
        cloud.demo.delete(f"{URL}/{id_}"),
        cloud.demo.get(NODES),
        cloud.demo.get(f"{NODES}/detail"),
        cloud.demo.get(f"{NODES}/{node}"),
        old.get(f"{NODES}/statistics"),
        old.get("/v2.1/os-hosts"),
        old.get("/v2.1/os-hosts/n1"),
        old.put("/v2.1/os-hosts/n1", json={"status": "disable"}),
        old.get("/v2.1/os-hosts/n1/reboot"),
    ]
    assert {answer.status_code for answer in answers} == {403}


# --- hypervisors ------------------------------------------------------------------------------------


def test_hypervisors_as_the_command_line_client_gets_them(any_cloud: Cloud) -> None:
    cloud = any_cloud
    client = cloud.client(ADMIN, "2.88")
    (first, second) = client.get(f"{NODES}/detail").json()["hypervisors"]
    assert first == {
        "id": first["id"],
        "hypervisor_hostname": "n1",
        "state": "up",
        "status": "enabled",
        "hypervisor_type": "unknown",
        "hypervisor_version": 0,
        "host_ip": None,
        "service": {"id": service(cloud)["id"], "host": "n1", "disabled_reason": None},
        "uptime": None,
    }
    assert client.get(f"{NODES}/{first['id']}").json() == {"hypervisor": first}
    brief = client.get(NODES).json()["hypervisors"]
    assert brief[1] == {"id": second["id"], "hypervisor_hostname": "n2", "state": "up", "status": "enabled"}
    assert client.get(f"{NODES}/n1").json()["badRequest"]["message"] == "Invalid uuid n1"
    assert client.get(f"{NODES}/{MISSING}").status_code == 404


def test_until_2_87_sizes_are_shown_and_counted_from_claims(any_cloud: Cloud) -> None:
    cloud = any_cloud
    cloud.flavor("floating", 2, {})
    for flavor in ("p2", "floating"):
        cloud.boot(cloud.admin, flavorRef=flavor, availability_zone="nova:n1")
    cloud.ask()
    row = cloud.client(ADMIN, "2.87").get(f"{NODES}/detail").json()["hypervisors"][0]
    assert {name: row[name] for name in row if name.startswith(("vcpus", "memory", "local", "free"))} == {
        "vcpus": 16,
        "vcpus_used": 4,
        "memory_mb": 16384,
        "memory_mb_used": 1024,
        "free_ram_mb": 15360,
        "local_gb": 100,
        "local_gb_used": 2,
        "free_disk_gb": 98,
    }
    assert (row["running_vms"], row["current_workload"], row["disk_available_least"]) == (2, 0, None)
    assert row["cpu_info"] == {"topology": {"cells": 2, "cores": 8, "threads": 2}}
    old = cloud.client(ADMIN, "2.27").get(f"{NODES}/detail").json()["hypervisors"][0]
    assert isinstance(old["cpu_info"], str)
    assert isinstance(old["id"], int)
    assert isinstance(old["service"]["id"], int)


def test_statistics_are_the_sums_of_enabled_hypervisors_until_2_87(cloud: Cloud) -> None:
    cloud.boot(cloud.admin, availability_zone="nova:n1")
    sums = cloud.client(ADMIN, "2.1").get(f"{NODES}/statistics").json()["hypervisor_statistics"]
    assert sums == {
        "count": 2,
        "current_workload": 0,
        "disk_available_least": 0,
        "free_disk_gb": 199,
        "free_ram_mb": 32256,
        "local_gb": 200,
        "local_gb_used": 1,
        "memory_mb": 32768,
        "memory_mb_used": 512,
        "running_vms": 1,
        "vcpus": 32,
        "vcpus_used": 2,
    }
    put(cloud, {"status": "disabled"})
    assert (
        cloud.client(ADMIN, "2.1").get(f"{NODES}/statistics").json()["hypervisor_statistics"]["running_vms"]
        == 0
    )
    assert cloud.client(ADMIN, "2.88").get(f"{NODES}/statistics").status_code in (400, 404)


def test_servers_are_shown_when_asked_for(any_cloud: Cloud) -> None:
    cloud = any_cloud
    server = cloud.boot(cloud.admin, availability_zone="nova:n1")
    listed = [{"name": "a", "uuid": server}]
    first, second = cloud.admin.get(f"{NODES}?with_servers=true").json()["hypervisors"]
    assert (first["servers"], second["servers"]) == (listed, [])
    assert (
        "servers" not in cloud.client(ADMIN, "2.74").get(f"{NODES}?with_servers=1").json()["hypervisors"][1]
    )
    assert cloud.admin.get(f"{NODES}/{first['id']}?with_servers=1").json()["hypervisor"]["servers"] == listed
    old = cloud.client(ADMIN, "2.52").get(f"{NODES}/n/servers").json()["hypervisors"]
    assert [row.get("servers") for row in old] == [listed, None]
    assert cloud.client(ADMIN, "2.53").get(f"{NODES}/n/servers").status_code == 404


def test_hypervisors_are_looked_up_by_a_part_of_their_names(any_cloud: Cloud) -> None:
    admin = any_cloud.admin

    def found(client: Any, url: str) -> list[str]:
        return [row["hypervisor_hostname"] for row in client.get(url).json()["hypervisors"]]

    assert found(admin, f"{NODES}?hypervisor_hostname_pattern=2") == ["n2"]
    assert found(any_cloud.client(ADMIN, "2.1"), f"{NODES}/n/search") == ["n1", "n2"]
    assert admin.get(f"{NODES}?hypervisor_hostname_pattern=%25").status_code == 404
    assert admin.get(f"{NODES}?hypervisor_hostname_pattern=n&limit=1").status_code == 400
    assert any_cloud.client(ADMIN, "2.1").get(f"{NODES}/x%00/search").status_code == 404


def test_from_2_33_on_lists_are_paged(cloud: Cloud) -> None:
    document = cloud.admin.get(f"{NODES}/detail?limit=1").json()
    following = cloud.admin.get(document["hypervisors_links"][0]["href"]).json()["hypervisors"]
    assert [row["hypervisor_hostname"] for row in following] == ["n2"]
    assert cloud.admin.get(f"{NODES}?marker={MISSING}").status_code == 400
    old = cloud.client(ADMIN, "2.33").get(f"{NODES}?limit=1").json()
    assert cloud.client(ADMIN, "2.33").get(old["hypervisors_links"][0]["href"]).status_code == 200
    assert cloud.admin.get(f"{NODES}?other=1").status_code == 400


def test_f114_lists_cost_as_many_statements_with_50_silent_workers_as_with_2(cloud: Cloud) -> None:
    few = len(cloud.statements(cloud.admin, f"{NODES}/detail?with_servers=1"))
    for number in range(48):
        cloud.box.register(f"m{number}")
        cloud.box.die(f"m{number}")
    started = cloud.runtime.monotonic()
    assert len(cloud.statements(cloud.admin, f"{NODES}/detail?with_servers=1")) == few == 2
    assert cloud.runtime.monotonic() - started < 1.0
    states = [row["state"] for row in cloud.admin.get(NODES).json()["hypervisors"]]
    assert states == ["up"] * 2 + ["down"] * 48


def test_uptime_is_told_by_hypervisors_that_tell(any_cloud: Cloud) -> None:
    cloud = any_cloud
    old = cloud.client(ADMIN, "2.87")
    node = old.get(NODES).json()["hypervisors"][0]["id"]
    assert old.get(f"{NODES}/{node}/uptime").status_code == 501
    now = cloud.book.read(lambda session: session.scalar(sa.select(epoch()))) or 0.0
    report = two_cells("n1")
    report = type(report)(
        report.name,
        report.topology,
        report.memory_mb,
        report.disk_gb,
        hypervisor=Hypervisor("QEMU", 8002000, now - 93 * 86400 - 3600 * 5 - 120),
        address="192.0.2.1",
    )
    cloud.book.write(
        lambda session: session.execute(sa.update(Node).where(Node.name == "n1").values(report=report))
    )
    assert old.get(f"{NODES}/{node}/uptime").json()["hypervisor"]["uptime"].endswith(" up 93 days,  5:02")
    shown = cloud.admin.get(f"{NODES}/{node}").json()["hypervisor"]
    assert (shown["hypervisor_type"], shown["host_ip"], shown["uptime"][-5:]) == (
        "QEMU",
        "192.0.2.1",
        " 5:02",
    )
    cloud.box.die("n1")
    assert cloud.admin.get(f"{NODES}/{node}").json()["hypervisor"]["uptime"] is None


# --- hosts ------------------------------------------------------------------------------------------


def test_hosts_are_listed_with_their_services_until_2_42(cloud: Cloud) -> None:
    beat(cloud, "pinfold-conductor")
    client = cloud.client(ADMIN, "2.1")
    assert client.get("/v2.1/os-hosts").json() == {
        "hosts": [
            {"host_name": "c1", "service": "conductor", "zone": "internal"},
            {"host_name": "n1", "service": "compute", "zone": "nova"},
            {"host_name": "n2", "service": "compute", "zone": "nova"},
        ]
    }
    assert [row["host_name"] for row in client.get("/v2.1/os-hosts?zone=internal").json()["hosts"]] == ["c1"]
    assert cloud.client(ADMIN, "2.43").get("/v2.1/os-hosts").status_code == 404


def test_a_host_shows_what_is_used_by_whom(any_cloud: Cloud) -> None:
    cloud = any_cloud
    cloud.boot(cloud.admin, availability_zone="nova:n1")
    client = cloud.client(ADMIN, "2.1")
    rows = [row["resource"] for row in client.get("/v2.1/os-hosts/n1").json()["host"]]
    used = {"host": "n1", "cpu": 2, "memory_mb": 512, "disk_gb": 1}
    assert rows == [
        {"host": "n1", "project": "(total)", "cpu": 16, "memory_mb": 16384, "disk_gb": 100},
        *(used | {"project": name} for name in ("(used_now)", "(used_max)", "admin")),
    ]
    assert client.get("/v2.1/os-hosts/none").status_code == 404


def test_a_host_is_enabled_and_disabled_and_cannot_be_switched_off(cloud: Cloud) -> None:
    client = cloud.client(ADMIN, "2.42")
    answer = client.put("/v2.1/os-hosts/n1", json={"status": "Disable"})
    assert answer.json() == {"host": "n1", "status": "disabled"}
    assert service(cloud)["status"] == "disabled"
    assert client.put("/v2.1/os-hosts/n1", json={"maintenance_mode": "enable"}).status_code == 501
    assert client.put("/v2.1/os-hosts/none", json={"status": "enable"}).status_code == 404
    assert client.put("/v2.1/os-hosts/n1", json={}).status_code == 400
    for power in ("startup", "shutdown", "reboot"):
        assert client.get(f"/v2.1/os-hosts/n1/{power}").status_code == 501
        assert client.get(f"/v2.1/os-hosts/none/{power}").status_code == 404
