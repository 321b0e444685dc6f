"""Discovery, and what a microversion changes."""

from __future__ import annotations

import httpx
import pytest

from tests.http.cloud import ADMIN, MISSING, Cloud


def ask(cloud: Cloud, path: str = "/v2.1/servers", **headers: str) -> httpx.Response:
    """GET as an admin, with these headers only."""
    with httpx.Client(
        transport=cloud.client(None)._transport,
        base_url="http://cloud:8774",
    ) as client:
        wired = {name.replace("_", "-"): value for name, value in headers.items()}
        return client.get(path, headers={"X-Auth-Token": ADMIN} | wired)


@pytest.mark.parametrize(
    ("headers", "spoken"),
    [
        ({}, "2.1"),
        ({"OpenStack_API_Version": "compute 2.55"}, "2.55"),
        ({"X_OpenStack_Nova_API_Version": "2.55"}, "2.55"),
        ({"OpenStack_API_Version": "compute 2.60", "X_OpenStack_Nova_API_Version": "2.55"}, "2.60"),
        ({"OpenStack_API_Version": "volume 3.50"}, "2.1"),
        ({"OpenStack_API_Version": "volume 3.50", "X_OpenStack_Nova_API_Version": "2.7"}, "2.7"),
        ({"OpenStack_API_Version": "volume 3.50, compute 2.9"}, "2.9"),
        ({"OpenStack_API_Version": "compute latest"}, "2.104"),
        ({"X_OpenStack_Nova_API_Version": "latest"}, "2.104"),
    ],
)
def test_the_version_is_negotiated_and_named_in_the_answer(
    cloud: Cloud, headers: dict[str, str], spoken: str
) -> None:
    answer = ask(cloud, **headers)
    assert answer.status_code == 200
    assert answer.headers["OpenStack-API-Version"] == f"compute {spoken}"
    assert answer.headers["X-OpenStack-Nova-API-Version"] == spoken
    assert "X-OpenStack-Nova-API-Version" in answer.headers["Vary"]
    assert "OpenStack-API-Version" in answer.headers["Vary"].split(", ")


@pytest.mark.parametrize("version", ["2.0", "2.105", "3.0", "1.1", "2.999999"])
def test_a_version_that_is_not_spoken_is_406(cloud: Cloud, version: str) -> None:
    answer = ask(cloud, OpenStack_API_Version=f"compute {version}")
    assert answer.status_code == 406
    assert answer.json()["computeFault"]["code"] == 406


@pytest.mark.parametrize(
    "version", ["x", "2", "2.1.1", "2.01", "-2.1", "2.", "", "2.1e3", "2.99999999999999"]
)
def test_a_malformed_version_is_400_without_version_headers(cloud: Cloud, version: str) -> None:
    answer = ask(
        cloud, OpenStack_API_Version=f"compute {version}", X_OpenStack_Nova_API_Version=version or "x"
    )
    assert answer.status_code == 400
    assert "OpenStack-API-Version" not in answer.headers


def test_errors_name_the_version_and_the_request_too(cloud: Cloud) -> None:
    answer = cloud.admin.get("/v2.1/servers/nope")
    assert answer.headers["OpenStack-API-Version"] == "compute 2.100"
    assert answer.headers["x-openstack-request-id"] == answer.headers["x-compute-request-id"]
    assert answer.headers["x-openstack-request-id"].startswith("req-")


def test_the_versions_are_discovered_without_a_token(cloud: Cloud) -> None:
    client = cloud.client(None)
    root = client.get("/").json()["versions"]
    assert [version["id"] for version in root] == ["v2.0", "v2.1"]
    version = client.get("/v2.1").json()["version"]
    assert client.get("/v2.1/").json()["version"] == version
    assert (version["min_version"], version["version"], version["status"]) == ("2.1", "2.104", "CURRENT")
    assert version["links"][0] == {"rel": "self", "href": "http://cloud:8774/v2.1/"}


def test_links_follow_the_host_header_or_the_option(cloud: Cloud, make_cloud: object) -> None:
    answer = cloud.admin.get("/v2.1", headers={"Host": "api.example.org:1234"})
    assert answer.json()["version"]["links"][0]["href"] == "http://api.example.org:1234/v2.1/"


def test_a_project_id_may_stand_in_the_url(cloud: Cloud) -> None:
    server = cloud.ask()
    assert cloud.demo.get(f"/v2.1/demo/servers/{server}").status_code == 200
    assert cloud.demo.get("/v2.1/demo/servers/detail").status_code == 200
    assert cloud.demo.get("/v2.1/demo/").json()["version"]["id"] == "v2.1"
    assert cloud.client(None).get(f"/v2.1/{MISSING}").json()["version"]["id"] == "v2.1"
    assert cloud.demo.get("/v2.1/os-unknown").status_code == 404
    assert cloud.demo.get("/v2.1/other/servers").status_code == 400
    assert cloud.other.get(f"/v2.1/demo/servers/{server}").status_code == 400


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v3/x"),
        ("GET", "/v2.1/servers/a/b/c"),
        ("POST", "/v2.1/flavors/detail/x"),
        ("DELETE", "/v2.1/servers"),
    ],
)
def test_an_unknown_url_or_method_is_404_with_its_own_body(cloud: Cloud, method: str, path: str) -> None:
    answer = cloud.admin.request(method, path)
    assert answer.status_code == 404
    assert answer.json()["code"] == "404 Not Found"


# Field of a shown server: since which minor version. (Before: not there.)
FIELDS = {
    "OS-EXT-SRV-ATTR:hostname": 3,
    "OS-EXT-SRV-ATTR:user_data": 3,
    "OS-EXT-SRV-ATTR:reservation_id": 3,
    "locked": 9,
    "host_status": 16,
    "description": 19,
    "tags": 26,
    "trusted_image_certificates": 63,
    "server_groups": 71,
    "locked_reason": 73,
    "pinned_availability_zone": 96,
    "scheduler_hints": 100,
}
ALWAYS = {
    "id",
    "name",
    "status",
    "tenant_id",
    "user_id",
    "metadata",
    "hostId",
    "image",
    "flavor",
    "created",
    "updated",
    "addresses",
    "accessIPv4",
    "accessIPv6",
    "links",
    "key_name",
    "config_drive",
    "progress",
    "OS-DCF:diskConfig",
    "OS-EXT-AZ:availability_zone",
    "OS-EXT-STS:task_state",
    "OS-EXT-STS:vm_state",
    "OS-EXT-STS:power_state",
    "OS-SRV-USG:launched_at",
    "OS-SRV-USG:terminated_at",
    "os-extended-volumes:volumes_attached",
}
HOST = {"OS-EXT-SRV-ATTR:host", "OS-EXT-SRV-ATTR:hypervisor_hostname", "OS-EXT-SRV-ATTR:instance_name"}


def test_each_field_of_a_server_is_there_from_its_version_on(cloud: Cloud) -> None:
    server = cloud.boot()
    attributes = {
        f"OS-EXT-SRV-ATTR:{name}" for name in ("kernel_id", "launch_index", "ramdisk_id", "root_device_name")
    }
    for minor in range(1, 105):
        shown = set(cloud.show(server, cloud.client(ADMIN, f"2.{minor}")))
        wanted = ALWAYS | HOST | {name for name, since in FIELDS.items() if minor >= since}
        assert shown == wanted | (attributes if minor >= 3 else set()), minor


def test_what_an_ordinary_user_sees_at_each_version(cloud: Cloud) -> None:
    server = cloud.boot()
    for minor in range(1, 105):
        shown = set(cloud.show(server, cloud.client("ann:demo", f"2.{minor}")))
        wanted = {
            name
            for name, since in FIELDS.items()
            if minor >= since and "ATTR" not in name and name != "host_status"
        }
        assert shown == ALWAYS | wanted | ({"OS-EXT-SRV-ATTR:hostname"} if minor >= 90 else set()), minor


def test_the_detail_list_has_the_same_fields_but_server_groups(cloud: Cloud) -> None:
    server = cloud.boot()
    for minor in (1, 3, 47, 71, 104):
        client = cloud.client("ann:demo", f"2.{minor}")
        listed = client.get("/v2.1/servers/detail").json()["servers"][0]
        assert set(listed) == set(cloud.show(server, client)) - {"server_groups"}


def test_the_flavor_of_a_server_has_no_id_from_2_47_on(cloud: Cloud) -> None:
    server = cloud.boot()
    assert set(cloud.show(server, cloud.client(ADMIN, "2.46"))["flavor"]) == {"id", "links"}
    flavor = cloud.show(server, cloud.client(ADMIN, "2.47"))["flavor"]
    assert set(flavor) == {"vcpus", "ram", "disk", "ephemeral", "swap", "original_name", "extra_specs"}


def test_image_properties_are_there_from_2_98_on(cloud: Cloud) -> None:
    server = cloud.boot()
    assert set(cloud.show(server, cloud.client(ADMIN, "2.97"))["image"]) == {"id", "links"}
    assert cloud.show(server, cloud.client(ADMIN, "2.98"))["image"]["properties"] == {}


def test_hints_are_shown_as_lists(cloud: Cloud) -> None:
    answer = cloud.demo.post(
        "/v2.1/servers", json=cloud.body() | {"os:scheduler_hints": {"a": "b", "c": ["d"]}}
    )
    assert cloud.show(answer.json()["server"]["id"])["scheduler_hints"] == {"a": ["b"], "c": ["d"]}


def test_times_are_in_nova_s_forms(cloud: Cloud) -> None:
    shown = cloud.show(cloud.boot())
    assert len(shown["created"]) == len("2026-11-30T16:23:02Z")
    assert shown["created"].endswith("Z")
    assert len(shown["OS-SRV-USG:launched_at"]) == len("2026-11-30T16:23:18.000000")
