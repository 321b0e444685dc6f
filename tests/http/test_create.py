"""POST /servers: every field, and what is refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import sqlalchemy as sa

from pinfold.db.models import Instance
from tests.http.cloud import MISSING, Cloud


def test_the_answer_is_nova_s(cloud: Cloud) -> None:
    answer = cloud.demo.post("/v2.1/servers", json=cloud.body())
    server = answer.json()["server"]
    assert set(server) == {"id", "links", "OS-DCF:diskConfig", "security_groups", "adminPass"}
    assert len(server["adminPass"]) == 12
    assert answer.headers["Location"] == f"http://cloud:8774/v2.1/servers/{server['id']}"
    assert server["links"][0]["href"] == answer.headers["Location"]


def test_what_the_command_line_client_sends_is_accepted(cloud: Cloud) -> None:
    mapping = {
        "uuid": cloud.tiny,
        "boot_index": 0,
        "source_type": "image",
        "destination_type": "local",
        "delete_on_termination": True,
    }
    cloud.keypair("kp1")
    body = cloud.body(
        block_device_mapping_v2=[mapping],
        min_count=1,
        max_count=1,
        key_name="kp1",
        config_drive=True,
        metadata={"a": "b"},
        description="d",
        tags=["t1"],
        adminPass="Passw0rd",
        user_data=base64.b64encode(b"#!/bin/sh").decode(),
        availability_zone="nova",
        security_groups=[{"name": "default"}],
    )
    body["OS-SCH-HNT:scheduler_hints"] = {"foo": "bar"}
    answer = cloud.demo.post("/v2.1/servers", json=body)
    assert answer.status_code == 202, answer.text
    assert answer.json()["server"]["adminPass"] == "Passw0rd"
    shown = cloud.show(answer.json()["server"]["id"])
    assert (shown["key_name"], shown["config_drive"], shown["metadata"]) == ("kp1", "True", {"a": "b"})
    assert (shown["description"], shown["tags"], shown["scheduler_hints"]) == ("d", ["t1"], {"foo": ["bar"]})
    assert shown["pinned_availability_zone"] == "nova"


@pytest.mark.parametrize("networks", ["none", "auto", []])
def test_there_may_be_no_networks(cloud: Cloud, networks: object) -> None:
    assert cloud.demo.post("/v2.1/servers", json=cloud.body(networks=networks)).status_code == 202


def test_networks_may_be_absent_below_2_37_only(cloud: Cloud) -> None:
    body = cloud.body(networks=None)
    assert cloud.client("ann:demo", "2.36").post("/v2.1/servers", json=body).status_code == 202
    answer = cloud.client("ann:demo", "2.37").post("/v2.1/servers", json=body)
    assert answer.status_code == 400
    assert "networks" in answer.json()["badRequest"]["message"]


# field: (a value that is good, the first microversion that has it)
NEWER: dict[str, tuple[Any, int]] = {
    "description": ("d", 19),
    "tags": (["a"], 52),
    "trusted_image_certificates": (None, 63),
    "host": ("n1", 74),
    "hypervisor_hostname": ("n1", 74),
    "hostname": ("host-1", 90),
}


@pytest.mark.parametrize("field", NEWER)
def test_a_field_is_known_from_its_microversion_on(cloud: Cloud, field: str) -> None:
    value, since = NEWER[field]
    body = cloud.body()
    body["server"][field] = value
    for minor, code in ((since - 1, 400), (since, 202)):
        if minor < 37:
            body["server"].pop("networks", None)
        answer = cloud.client("admin:admin", f"2.{minor}").post("/v2.1/servers", json=body)
        assert answer.status_code == code, (minor, answer.text)
        if code == 400:
            assert field in answer.json()["badRequest"]["message"]


VOLUME = {"boot_index": 0, "source_type": "volume", "destination_type": "volume", "uuid": MISSING}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", " a"),
        ("name", "a" * 256),
        ("name", "a\nb"),
        ("name", "a\0b"),
        ("name", 5),
        ("imageRef", "not-an-id"),
        ("imageRef", ""),
        ("imageRef", MISSING),
        ("flavorRef", "nope"),
        ("flavorRef", 7),
        ("flavorRef", "p\0"),
        ("networks", [{"uuid": MISSING}]),
        ("networks", "some"),
        ("networks", {}),
        ("block_device_mapping_v2", [VOLUME]),
        ("block_device_mapping_v2", [VOLUME | {"source_type": "image"}]),
        ("block_device_mapping_v2", [{}]),
        ("block_device_mapping_v2", "x"),
        ("block_device_mapping", [{"volume_id": MISSING}]),
        ("trusted_image_certificates", [MISSING]),
        ("security_groups", [{"name": "mine"}]),
        ("min_count", 0),
        ("min_count", -1),
        ("max_count", 10**12),
        ("max_count", "many"),
        ("max_count", 1.5),
        ("metadata", {"k": 1}),
        ("metadata", {"k" * 256: "v"}),
        ("metadata", {"k": "v" * 256}),
        ("metadata", []),
        ("tags", ["a,b"]),
        ("tags", ["a"] * 2),
        ("tags", ["t" * 61]),
        ("tags", [str(n) for n in range(51)]),
        ("user_data", "not base64!"),
        ("user_data", "AAAA" * 17000),
        ("config_drive", "perhaps"),
        ("availability_zone", "elsewhere"),
        ("availability_zone", "nova:nowhere"),
        ("availability_zone", "nova::nowhere"),
        ("availability_zone", "nova:n1:n2"),
        ("host", "nowhere"),
        ("hypervisor_hostname", "nowhere"),
        ("hostname", "-a"),
        ("hostname", "a b"),
        ("accessIPv4", "1.2.3"),
        ("accessIPv6", "fe80::1%eth0"),
        ("OS-DCF:diskConfig", "SOME"),
        ("unknown", 1),
    ],
)
def test_a_bad_field_is_400_that_names_it_and_nothing_is_written(
    cloud: Cloud, field: str, value: object
) -> None:
    body = cloud.body()
    body["server"][field] = value
    before = cloud.everything()
    answer = cloud.admin.post("/v2.1/servers", json=body)
    assert answer.status_code in (400, 413), answer.text
    named = {"host": "n", "hypervisor_hostname": "n", "max_count": "count"}.get(field, field)
    assert named in answer.text
    assert cloud.everything() == before


def test_a_server_must_have_an_image(cloud: Cloud) -> None:
    assert "imageRef" in cloud.demo.post("/v2.1/servers", json=cloud.body(imageRef=None)).text


def test_the_boot_mapping_may_stand_alone(cloud: Cloud) -> None:
    mapping = {"uuid": cloud.tiny, "boot_index": 0, "source_type": "image", "destination_type": "local"}
    server = cloud.ask(imageRef=None, block_device_mapping_v2=[mapping])
    assert cloud.show(server)["image"]["id"] == cloud.tiny


def test_several_servers_get_numbered_names(cloud: Cloud) -> None:
    answer = cloud.demo.post(
        "/v2.1/servers", json=cloud.body(min_count=2, max_count=3, return_reservation_id=True)
    )
    assert list(answer.json()) == ["reservation_id"]
    listed = cloud.demo.get("/v2.1/servers?sort_key=launch_index&sort_dir=asc").json()["servers"]
    assert [server["name"] for server in listed] == ["a-1", "a-2", "a-3"]
    shown = [cloud.show(server["id"]) for server in listed]
    reservation = answer.json()["reservation_id"]
    assert {server["OS-EXT-SRV-ATTR:reservation_id"] for server in shown} == {reservation}


def test_min_count_above_max_count_is_400(cloud: Cloud) -> None:
    assert cloud.demo.post("/v2.1/servers", json=cloud.body(min_count=3, max_count=2)).status_code == 400


def test_more_servers_than_allowed_in_one_request_are_403(cloud: Cloud) -> None:
    assert cloud.demo.post("/v2.1/servers", json=cloud.body(min_count=101)).status_code == 403


@pytest.mark.parametrize(
    ("fields", "arguments"),
    [
        ({"availability_zone": "nova:n1"}, {"host": "n1"}),
        ({"availability_zone": "nova:n1:n1"}, {"host": "n1", "node": "n1"}),
        ({"availability_zone": "nova::n2"}, {"node": "n2"}),
        ({"host": "n2"}, {"host": "n2"}),
        ({"hypervisor_hostname": "n2"}, {"node": "n2"}),
    ],
)
def test_an_admin_chooses_the_host(cloud: Cloud, fields: dict[str, Any], arguments: dict[str, str]) -> None:
    server = cloud.ask(cloud.admin, **fields)
    assert cloud.box.operation(server).arguments == arguments
    answer = cloud.demo.post("/v2.1/servers", json=cloud.body(**fields))
    assert answer.status_code == 403


@pytest.mark.parametrize("hints", [{"group": "x"}, {"same_host": [1]}, {"cidr": "x"}, 5])
def test_bad_hints_are_400(cloud: Cloud, hints: object) -> None:
    for key in ("os:scheduler_hints", "OS-SCH-HNT:scheduler_hints"):
        assert cloud.demo.post("/v2.1/servers", json=cloud.body() | {key: hints}).status_code == 400


# F118: demands that can never be are refused before anything is written.
IMPOSSIBLE: list[tuple[int, dict[str, str], str]] = [
    (2, {"hw:numa_nodes": "0"}, "hw:numa_nodes"),
    (2, {"hw:numa_nodes": "-1"}, "hw:numa_nodes"),
    (2, {"hw:numa_nodes": "x"}, "hw:numa_nodes"),
    (3, {"hw:numa_nodes": "2"}, "hw:numa_nodes"),
    (4, {"hw:numa_nodes": "2", "hw:numa_cpus.0": "0,1", "hw:numa_cpus.1": "1,2,3"}, "hw:numa_"),
    (4, {"hw:numa_nodes": "2", "hw:numa_cpus.0": "0,1", "hw:numa_cpus.1": "2,9"}, "hw:numa_"),
    (
        2,
        {
            "hw:numa_nodes": "2",
            "hw:numa_cpus.0": "0",
            "hw:numa_cpus.1": "1",
            "hw:numa_mem.0": "256",
            "hw:numa_mem.1": "128",
        },
        "hw:numa_mem",
    ),
    (2, {"hw:mem_page_size": "2M"}, "hw:mem_page_size"),
    (2, {"hw:mem_page_size": "-1"}, "hw:mem_page_size"),
    (2, {"hw:cpu_policy": "dedicatd"}, "hw:cpu_policy"),
    (2, {"hw:cpu_policy": "shared", "hw:cpu_thread_policy": "require"}, "hw:cpu_thread_policy"),
    (4, {"hw:cpu_policy": "mixed"}, "hw:cpu_"),
    (4, {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-3"}, "hw:cpu_dedicated_mask"),
    (4, {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0-3"}, "hw:cpu_dedicated_mask"),
]


@pytest.mark.parametrize(("vcpus", "specs", "key"), IMPOSSIBLE)
def test_impossible_demands_are_400_that_names_the_key(
    cloud: Cloud, vcpus: int, specs: dict[str, str], key: str
) -> None:
    cloud.flavor("bad", vcpus, specs)
    before = cloud.everything()
    answer = cloud.demo.post("/v2.1/servers", json=cloud.body(flavorRef="bad"))
    assert answer.status_code == 400, answer.text
    assert key in answer.json()["badRequest"]["message"]
    assert cloud.everything() == before


def test_an_image_that_contradicts_the_flavor_is_400(cloud: Cloud) -> None:
    cloud.flavor("floating", specs={"hw:cpu_policy": "shared"})
    image = cloud.image("pinned", hw_cpu_policy="dedicated")
    answer = cloud.demo.post("/v2.1/servers", json=cloud.body(flavorRef="floating", imageRef=image))
    assert answer.status_code == 400
    assert "hw_cpu_policy" in answer.text


@pytest.mark.parametrize("fields", [{"min_ram": 513}, {"min_disk": 2}])
def test_an_image_that_needs_more_than_the_flavor_has_is_400(cloud: Cloud, fields: dict[str, int]) -> None:
    image = cloud.image("large", **fields)
    answer = cloud.demo.post("/v2.1/servers", json=cloud.body(imageRef=image))
    assert answer.status_code == 400
    assert answer.headers["X-Pinfold-Error"] == "flavor-too-small"


def test_an_image_without_data_is_400(cloud: Cloud) -> None:
    image = cloud.admin.post("/image/v2/images", json={"name": "x", "visibility": "public"}).json()["id"]
    answer = cloud.demo.post("/v2.1/servers", json=cloud.body(imageRef=image))
    assert (answer.status_code, answer.headers["X-Pinfold-Error"]) == (400, "image-not-active")


def test_somebody_elses_image_is_400(cloud: Cloud) -> None:
    image = cloud.image("private", visibility="private")
    assert cloud.demo.post("/v2.1/servers", json=cloud.body(imageRef=image)).status_code == 400
    assert cloud.admin.post("/v2.1/servers", json=cloud.body(imageRef=image)).status_code == 202


def test_a_flavor_that_is_not_public_is_400_for_others(cloud: Cloud) -> None:
    cloud.flavor("secret", **{"os-flavor-access:is_public": False})  # type: ignore[arg-type]
    assert cloud.demo.post("/v2.1/servers", json=cloud.body(flavorRef="secret")).status_code == 400


def test_a_flavor_without_a_disk_is_for_admins(cloud: Cloud) -> None:
    cloud.flavor("diskless", disk=0)
    assert cloud.demo.post("/v2.1/servers", json=cloud.body(flavorRef="diskless")).status_code == 403
    assert cloud.admin.post("/v2.1/servers", json=cloud.body(flavorRef="diskless")).status_code == 202


def test_the_server_keeps_its_own_copy_of_the_flavor(cloud: Cloud) -> None:
    server = cloud.ask()
    assert cloud.admin.delete("/v2.1/flavors/p2").status_code == 202
    flavor = cloud.show(server)["flavor"]
    assert flavor == {
        "vcpus": 2,
        "ram": 512,
        "disk": 1,
        "ephemeral": 0,
        "swap": 0,
        "original_name": "p2",
        "extra_specs": {"hw:cpu_policy": "dedicated"},
    }


def test_no_password_where_it_is_turned_off(make_cloud: Any) -> None:
    cloud = make_cloud(enable_instance_password=False)
    assert "adminPass" not in cloud.demo.post("/v2.1/servers", json=cloud.body()).json()["server"]


@pytest.mark.parametrize(
    ("name", "hostname"),
    [("Web Server_1", "web-server-1"), ("a.b.c", "a-b-c"), ("\u2603", None), ("x" * 100, "x" * 63)],
)
def test_the_host_name_comes_from_the_name(cloud: Cloud, name: str, hostname: str | None) -> None:
    server = cloud.ask(name=name)
    query = sa.select(Instance.hostname).where(Instance.id == server)
    stored = cloud.book.read(lambda session: session.scalar(query))
    assert stored == (hostname or f"server-{server}")
