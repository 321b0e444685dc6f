"""Server groups over HTTP, and hints."""

from __future__ import annotations

from typing import Any

import pytest

from pinfold.api.schemas import HINT_KEYS
from tests.http.cloud import MISSING, Cloud

URL = "/v2.1/os-server-groups"


def make(cloud: Cloud, policy: str = "anti-affinity", **fields: Any) -> str:
    answer = cloud.demo.post(URL, json={"server_group": {"name": "sg1", "policy": policy, **fields}})
    assert answer.status_code == 200, answer.text
    group: str = answer.json()["server_group"]["id"]
    return group


def post(cloud: Cloud, hints: dict[str, Any], client: Any = None, **fields: Any) -> Any:
    body = cloud.body(**fields) | {HINT_KEYS[1]: hints}
    return (client or cloud.demo).post("/v2.1/servers", json=body)


def test_what_the_command_line_client_sends_and_gets(any_cloud: Cloud) -> None:
    client = any_cloud.client("ann:demo:member", "2.64")
    answer = client.post(URL, json={"server_group": {"policy": "anti-affinity", "name": "sg1"}})
    group = answer.json()["server_group"]
    rest = {
        "name": "sg1",
        "policy": "anti-affinity",
        "rules": {},
        "members": [],
        "project_id": "demo",
        "user_id": "ann",
    }
    assert (answer.status_code, group) == (200, {"id": group["id"], **rest})
    assert client.get(URL).json() == {"server_groups": [group]}
    assert client.get(f"{URL}/{group['id']}").json() == {"server_group": group}
    assert (
        client.get(f"{URL}/sg1").json()["itemNotFound"]["message"] == "Instance group sg1 could not be found."
    )
    assert client.delete(f"{URL}/{group['id']}").status_code == 204
    assert client.delete(f"{URL}/{group['id']}").status_code == 404


def test_fields_by_microversion(cloud: Cloud) -> None:
    group = make(cloud)
    for minor, fields in {
        1: {"id", "name", "policies", "metadata", "members"},
        13: {"id", "name", "policies", "metadata", "members", "project_id", "user_id"},
        64: {"id", "name", "policy", "rules", "members", "project_id", "user_id"},
    }.items():
        shown = cloud.client("ann:demo:member", f"2.{minor}").get(f"{URL}/{group}").json()["server_group"]
        assert set(shown) == fields


@pytest.mark.parametrize(
    ("version", "fields", "code"),
    [
        ("2.1", {"policies": ["affinity"]}, 200),
        ("2.14", {"policies": ["soft-affinity"]}, 400),
        ("2.15", {"policies": ["soft-affinity"]}, 200),
        ("2.15", {"policies": ["affinity", "anti-affinity"]}, 400),
        ("2.15", {"policies": []}, 400),
        ("2.15", {"policy": "affinity"}, 400),
        ("2.64", {"policies": ["affinity"]}, 400),
        ("2.64", {"policy": "legacy"}, 400),
        ("2.64", {"policy": "anti-affinity", "rules": {"max_server_per_host": "3"}}, 200),
        ("2.64", {"policy": "anti-affinity", "rules": {"max_server_per_host": 0}}, 400),
        ("2.64", {"policy": "anti-affinity", "rules": {"other": 1}}, 400),
        ("2.64", {"policy": "affinity", "rules": {"max_server_per_host": 3}}, 400),
    ],
)
def test_bodies_by_microversion(cloud: Cloud, version: str, fields: dict[str, Any], code: int) -> None:
    answer = cloud.client("ann:demo:member", version).post(
        URL, json={"server_group": {"name": "g", **fields}}
    )
    assert answer.status_code == code, answer.text


def test_rules_are_numbers_whatever_they_were_sent_as(cloud: Cloud) -> None:
    group = make(cloud, rules={"max_server_per_host": "3"})
    assert cloud.demo.get(f"{URL}/{group}").json()["server_group"]["rules"] == {"max_server_per_host": 3}


def test_other_projects_do_not_see_it_and_admins_see_all(cloud: Cloud) -> None:
    group = make(cloud)
    assert cloud.other.get(f"{URL}/{group}").status_code == 404
    assert cloud.other.delete(f"{URL}/{group}").status_code == 404
    assert cloud.other.get(f"{URL}?all_projects=1").json() == {"server_groups": []}
    assert cloud.admin.get(URL).json() == {"server_groups": []}
    assert len(cloud.admin.get(f"{URL}?all_projects=1").json()["server_groups"]) == 1


def test_members_are_the_servers_that_were_made_with_its_hint_and_are_there(any_cloud: Cloud) -> None:
    cloud = any_cloud
    group = make(cloud)
    servers = [post(cloud, {"group": group}).json()["server"]["id"] for _ in range(2)]
    assert sorted(cloud.demo.get(f"{URL}/{group}").json()["server_group"]["members"]) == sorted(servers)
    assert cloud.show(servers[0])["server_groups"] == [group]
    assert cloud.show(servers[0])["scheduler_hints"] == {"group": [group]}
    cloud.demo.delete(f"/v2.1/servers/{servers[0]}")
    assert cloud.demo.get(f"{URL}/{group}").json()["server_group"]["members"] == [servers[1]]
    cloud.demo.delete(f"{URL}/{group}")
    assert cloud.show(servers[1])["server_groups"] == []


def test_two_of_an_anti_affinity_group_run_on_two_hosts(any_cloud: Cloud) -> None:
    cloud = any_cloud
    group = make(cloud)
    servers = [post(cloud, {"group": group}).json()["server"]["id"] for _ in range(2)]
    for server in servers:
        cloud.build(server)
    assert {cloud.show(server)["OS-EXT-SRV-ATTR:host"] for server in servers} == {"n1", "n2"}
    third = post(cloud, {"group": group}).json()["server"]["id"]
    cloud.box.runner.run(cloud.open_operation(third))
    shown = cloud.show(third)
    assert (shown["status"], shown["fault"]["code"]) == ("ERROR", 500)
    assert "server group" in shown["fault"]["message"]


def test_lists_are_paged_and_cost_one_statement(any_cloud: Cloud) -> None:
    cloud = any_cloud
    groups = [make(cloud, name=f"g{number}") for number in range(4)]
    for _ in range(2):
        post(cloud, {"group": groups[0]})
    found = [group["id"] for group in cloud.demo.get(f"{URL}?limit=2&offset=1").json()["server_groups"]]
    assert found == groups[1:3]
    assert len(cloud.statements(cloud.demo, URL)) == 1
    assert cloud.demo.get(f"{URL}?other=1").status_code == 400


def test_a_project_has_no_more_groups_than_the_quota(any_cloud: Cloud) -> None:
    any_cloud.admin.put("/v2.1/os-quota-sets/demo", json={"quota_set": {"server_groups": 1}})
    make(any_cloud)
    answer = any_cloud.demo.post(URL, json={"server_group": {"name": "g", "policy": "affinity"}})
    assert (answer.status_code, answer.headers["X-Pinfold-Error"]) == (403, "quota")


def test_a_group_has_no_more_members_than_the_quota(any_cloud: Cloud) -> None:
    cloud = any_cloud
    cloud.admin.put("/v2.1/os-quota-sets/demo", json={"quota_set": {"server_group_members": 2}})
    group = make(cloud, "affinity")
    before = cloud.everything()
    answer = post(cloud, {"group": group}, min_count=3, max_count=3)
    assert (answer.status_code, answer.headers["X-Pinfold-Error"]) == (403, "quota")
    assert cloud.everything()["instances"] == before["instances"]
    assert post(cloud, {"group": group}, min_count=2, max_count=2).status_code == 202
    assert post(cloud, {"group": group}).status_code == 403


# --- hints ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hints", [{"group": "sg1"}, {"group": MISSING}, {"same_host": "a"}, {"cidr": "x"}])
def test_hints_that_cannot_be_are_400(cloud: Cloud, hints: dict[str, Any]) -> None:
    before = cloud.everything()
    assert post(cloud, hints).status_code == 400
    assert cloud.everything()["instances"] == before["instances"]


def test_a_group_of_another_project_is_400(cloud: Cloud) -> None:
    assert post(cloud, {"group": make(cloud)}, cloud.other).status_code == 400


@pytest.mark.parametrize("hints", [{"_nova_check_type": ["rebuild"]}, {"_x": ["1"]}, {"": "x"}])
def test_f060_internal_hints_are_400(cloud: Cloud, hints: dict[str, Any]) -> None:
    """F060."""
    before = cloud.everything()
    assert post(cloud, hints).status_code == 400
    assert cloud.everything() == before


def test_f060_unknown_hints_change_nothing(cloud: Cloud) -> None:
    """F060: the server is claimed like any other."""
    server = post(cloud, {"foo": "bar"}).json()["server"]["id"]
    cloud.build(server)
    assert len(cloud.box.used("n1") | cloud.box.used("n2")) == 2
    assert cloud.show(server)["scheduler_hints"] == {"foo": ["bar"]}


def test_a_server_is_put_beside_another_or_away_from_it(cloud: Cloud) -> None:
    other = cloud.boot()
    host = cloud.show(other)["OS-EXT-SRV-ATTR:host"]
    for hint, same in (("same_host", True), ("different_host", False)):
        server = post(cloud, {hint: [other.upper()]}).json()["server"]["id"]
        cloud.build(server)
        assert (cloud.show(server)["OS-EXT-SRV-ATTR:host"] == host) is same
