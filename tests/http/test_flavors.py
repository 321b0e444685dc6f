"""Flavors over HTTP."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.http.cloud import ADMIN, Cloud

SPECS = "/v2.1/flavors/p2/os-extra_specs"


def test_what_the_client_sends_makes_a_flavor(cloud: Cloud) -> None:
    body = {
        "ram": 64,
        "os-flavor-access:is_public": True,
        "OS-FLV-EXT-DATA:ephemeral": 0,
        "name": "pin1",
        "disk": 1,
        "swap": 0,
        "vcpus": 1,
        "id": None,
    }
    answer = cloud.client(ADMIN, "2.61").post("/v2.1/flavors", json={"flavor": body})
    flavor = answer.json()["flavor"]
    assert answer.status_code == 200
    assert len(flavor["id"]) == 36
    assert flavor["links"][1]["href"] == f"http://cloud:8774/flavors/{flavor['id']}"
    del flavor["id"], flavor["links"]
    assert flavor == {
        "name": "pin1",
        "ram": 64,
        "disk": 1,
        "swap": "",
        "OS-FLV-EXT-DATA:ephemeral": 0,
        "OS-FLV-DISABLED:disabled": False,
        "vcpus": 1,
        "os-flavor-access:is_public": True,
        "rxtx_factor": 1.0,
        "description": None,
        "extra_specs": {},
    }


def test_fields_by_microversion(cloud: Cloud) -> None:
    for minor in range(1, 105):
        flavor = cloud.client(ADMIN, f"2.{minor}").get("/v2.1/flavors/p2").json()["flavor"]
        assert ("description" in flavor) is (minor >= 55)
        assert ("extra_specs" in flavor) is (minor >= 61)
        assert ("rxtx_factor" in flavor) is ("OS-FLV-DISABLED:disabled" in flavor) is (minor < 102)
        assert flavor["swap"] == (0 if minor >= 75 else "")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vcpus", 0),
        ("vcpus", -1),
        ("vcpus", "x"),
        ("vcpus", 1.5),
        ("vcpus", 2**31),
        ("vcpus", 10**30),
        ("vcpus", True),
        ("ram", 0),
        ("disk", -1),
        ("swap", "x"),
        ("rxtx_factor", 0),
        ("rxtx_factor", "x"),
        ("name", ""),
        ("name", " a"),
        ("name", "n\0"),
        ("name", "a" * 256),
        ("id", "a\0"),
        ("id", " a"),
        ("id", "a/b"),
        ("id", {}),
        ("os-flavor-access:is_public", "perhaps"),
        ("description", 5),
        ("other", 1),
    ],
)
def test_a_bad_field_is_400_that_names_it(cloud: Cloud, field: str, value: object) -> None:
    body: dict[str, Any] = {"name": "new", "vcpus": 1, "ram": 1, "disk": 0, field: value}
    before = cloud.everything()
    answer = cloud.admin.post("/v2.1/flavors", json={"flavor": body})
    assert answer.status_code == 400, answer.text
    assert field in answer.text
    assert cloud.everything() == before


def test_an_id_or_name_that_is_taken_is_409(any_cloud: Cloud) -> None:
    body = {"name": "p2", "vcpus": 1, "ram": 1, "disk": 0}
    assert any_cloud.admin.post("/v2.1/flavors", json={"flavor": body | {"id": "other"}}).status_code == 409
    answer = any_cloud.admin.post("/v2.1/flavors", json={"flavor": body | {"id": "p2", "name": "other"}})
    assert answer.status_code == 409
    assert answer.headers["X-Pinfold-Error"] == "flavor-exists"


def test_deleting_is_202_and_then_404(cloud: Cloud) -> None:
    assert cloud.admin.delete("/v2.1/flavors/p2").status_code == 202
    answer = cloud.admin.delete("/v2.1/flavors/p2")
    assert answer.json() == {"itemNotFound": {"code": 404, "message": "Flavor p2 could not be found."}}


def test_the_description_can_be_changed_from_2_55_on(cloud: Cloud) -> None:
    body = {"flavor": {"description": "two CPUs"}}
    assert cloud.client(ADMIN, "2.54").put("/v2.1/flavors/p2", json=body).status_code == 404
    assert cloud.admin.put("/v2.1/flavors/p2", json=body).json()["flavor"]["description"] == "two CPUs"


def test_ordinary_users_read_only(cloud: Cloud) -> None:
    before = cloud.everything()
    assert cloud.demo.get("/v2.1/flavors/p2").status_code == 200
    body = {"flavor": {"name": "x", "vcpus": 1, "ram": 1, "disk": 0}}
    assert cloud.demo.post("/v2.1/flavors", json=body).status_code == 403
    assert cloud.demo.delete("/v2.1/flavors/p2").status_code == 403
    assert cloud.demo.post(SPECS, json={"extra_specs": {"a": "b"}}).status_code == 403
    assert cloud.demo.delete(f"{SPECS}/hw:cpu_policy").status_code == 403
    assert cloud.everything() == before


def test_flavors_that_are_not_public_are_for_admins(cloud: Cloud) -> None:
    cloud.flavor("secret", **{"os-flavor-access:is_public": False})  # type: ignore[arg-type]

    def ids(query: str, client: Any = cloud.admin) -> list[str]:
        return [flavor["id"] for flavor in client.get(f"/v2.1/flavors{query}").json()["flavors"]]

    assert ids("") == ["p2", "secret"]  # the project that made it may use it
    assert ids("?is_public=True", cloud.client("admin:third")) == ["p2"]
    assert ids("?is_public=None") == ["p2", "secret"]
    assert ids("?is_public=False") == ["secret"]
    assert ids("?is_public=None", cloud.demo) == ["p2"]
    assert cloud.demo.get("/v2.1/flavors/secret").status_code == 404
    assert cloud.admin.get("/v2.1/flavors/secret").status_code == 200


def test_lists_are_paged_sorted_and_filtered(any_cloud: Cloud) -> None:
    cloud = any_cloud
    for name, ram in (("b", 100), ("c", 900), ("a", 900)):
        cloud.flavor(name, ram=ram)

    def ids(query: str) -> list[str]:
        return [flavor["id"] for flavor in cloud.demo.get(f"/v2.1/flavors/detail?{query}").json()["flavors"]]

    assert ids("") == ["a", "b", "c", "p2"]
    assert ids("minRam=500") == ["a", "c", "p2"]
    assert ids("minDisk=2") == []
    assert ids("sort_key=memory_mb&sort_dir=asc")[0] == "b"
    document = cloud.demo.get("/v2.1/flavors?limit=3").json()
    following = cloud.demo.get(document["flavors_links"][0]["href"]).json()["flavors"]
    assert [flavor["id"] for flavor in following] == ["p2"]
    assert len(cloud.statements(cloud.demo, "/v2.1/flavors/detail")) == 1


@pytest.mark.parametrize(
    "query",
    [
        "limit=x",
        "marker=nope",
        "sort_key=x",
        "sort_dir=x",
        "minRam=x",
        "minDisk=-1",
        "is_public=x",
        "other=1",
    ],
)
def test_a_bad_parameter_is_400(cloud: Cloud, query: str) -> None:
    answer = cloud.admin.get(f"/v2.1/flavors/detail?{query}")
    assert answer.status_code == 400, answer.text


# --- extra specs ------------------------------------------------------------------------------------


def test_extra_specs_are_added_changed_and_removed(any_cloud: Cloud) -> None:
    admin = any_cloud.admin
    added = {"extra_specs": {"hw:numa_nodes": "1", "mine": 5}}
    assert admin.post(SPECS, json=added).json() == {"extra_specs": {"hw:numa_nodes": "1", "mine": "5"}}
    assert admin.put(f"{SPECS}/mine", json={"mine": "6"}).json() == {"mine": "6"}
    assert admin.get(f"{SPECS}/mine").json() == {"mine": "6"}
    assert admin.put(f"{SPECS}/mine", json={"other": "6"}).status_code == 400
    answer = admin.delete(f"{SPECS}/mine")
    assert (answer.status_code, answer.content) == (200, b"")
    assert admin.delete(f"{SPECS}/mine").status_code == 404
    assert admin.get(SPECS).json() == {"extra_specs": {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "1"}}


@pytest.mark.parametrize(
    ("specs", "named"),
    [
        ({"hw:cpu_policy": "dedicatd"}, "hw:cpu_policy"),
        ({"hw:cpu_polcy": "dedicated"}, "hw:cpu_polcy"),
        ({"hw:numa_nodes": "0"}, "hw:numa_nodes"),
    ],
)
def test_extra_specs_are_checked_from_2_86_on_and_before_kept_with_a_warning(
    cloud: Cloud, specs: dict[str, str], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = cloud.client(ADMIN, "2.86").post(SPECS, json={"extra_specs": specs})
    assert answer.status_code == 400
    assert named in answer.text
    with caplog.at_level(logging.WARNING, "pinfold.api.flavors"):
        kept = cloud.client(ADMIN, "2.85").post(SPECS, json={"extra_specs": specs})
    assert (kept.status_code, kept.json()) == (200, {"extra_specs": specs})
    assert named in caplog.text
    assert named in kept.headers["X-Pinfold-Warning"]
    ((name, value),) = specs.items()
    again = cloud.client(ADMIN, "2.1").put(f"{SPECS}/{name}", json={name: value})
    assert (again.status_code, again.headers["X-Pinfold-Warning"]) == (
        200,
        kept.headers["X-Pinfold-Warning"],
    )
    assert cloud.admin.get(SPECS).json()["extra_specs"].items() >= specs.items()


def test_a_warning_is_one_line_of_ascii_whatever_was_sent(cloud: Cloud) -> None:
    specs = {"hw:cpu_policy": "\u2603\r\nX-Other: 1"}
    answer = cloud.client(ADMIN, "2.1").post(SPECS, json={"extra_specs": specs})
    assert answer.status_code == 200
    assert r"\u2603\x0d\x0aX-Other: 1" in answer.headers["X-Pinfold-Warning"]
    assert "X-Other" not in answer.headers


def test_there_is_no_warning_where_there_is_nothing_wrong(cloud: Cloud) -> None:
    answer = cloud.client(ADMIN, "2.1").post(SPECS, json={"extra_specs": {"hw:numa_nodes": "1", "a:b": "c"}})
    assert "X-Pinfold-Warning" not in answer.headers


@pytest.mark.parametrize(
    "specs",
    [{"a/b": "c"}, {"": "c"}, {"k" * 256: "c"}, {"k": "v" * 256}, {"k": None}, {"k": {}}, [], {"k\0": "v"}],
)
def test_malformed_extra_specs_are_400(cloud: Cloud, specs: object) -> None:
    assert cloud.client(ADMIN, "2.1").post(SPECS, json={"extra_specs": specs}).status_code == 400
