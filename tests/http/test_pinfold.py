"""Nodes, operations, identity, health and metrics."""

from __future__ import annotations

import pathlib

import pytest
import sqlalchemy as sa

from pinfold.api.health import BookCollector
from pinfold.db.models import Operation
from tests.http.cloud import ADMIN, MISSING, Cloud


def test_a_node_shows_who_holds_which_cpu(any_cloud: Cloud) -> None:
    server = any_cloud.boot(any_cloud.admin, availability_zone="nova:n1")
    node = any_cloud.admin.get("/pinfold/v1/nodes/n1").json()
    held = {int(cpu) for cell in node["cells"] for cpu in cell["pins"]}
    assert held == any_cloud.box.used("n1")
    assert {holder for cell in node["cells"] for holder in cell["pins"].values()} == {server}
    (claim,) = node["claims"]
    assert (claim["server"], claim["role"]) == (server, "current")
    assert {cpu for cell in claim["cells"] for cpu in cell["pins"].values()} == held
    assert (node["memory_used_mb"], node["disk_used_gb"], node["vcpus_shared_used"]) == (512, 1, 0)


def test_a_node_has_exactly_the_fields_of_the_contract(cloud: Cloud) -> None:
    node = cloud.admin.get("/pinfold/v1/nodes/n2").json()
    assert set(node) == {
        *("node", "host", "generation", "state", "memory_mb", "memory_used_mb", "disk_gb", "disk_used_gb"),
        *("vcpus_shared", "vcpus_shared_used", "cells", "claims"),
    }
    assert (node["node"], node["host"], node["state"], node["vcpus_shared"]) == ("n2", "n2", "up", 8)
    assert set(node["cells"][0]) == {
        *("id", "cpus", "dedicated", "shared", "siblings", "memory_mb", "memory_used_mb", "pages", "pins"),
        "shared_used",
    }
    assert node["cells"][1]["cpus"] == list(range(8, 16))
    assert node["cells"][1]["siblings"] == [[8, 12], [9, 13], [10, 14], [11, 15]]


def test_a_cpu_held_for_an_isolated_sibling_stands_in_the_pins(cloud: Cloud) -> None:
    cloud.flavor("alone", 1, {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "isolate"})
    server = cloud.boot(cloud.admin, flavorRef="alone", availability_zone="nova:n1")
    node = cloud.admin.get("/pinfold/v1/nodes/n1").json()
    pins = {cpu for cell in node["cells"] for cpu, holder in cell["pins"].items() if holder == server}
    assert len(pins) == 2


def test_a_server_without_numa_counts_in_the_totals_alone(cloud: Cloud) -> None:
    cloud.flavor("floating", 2, {})
    server = cloud.boot(cloud.admin, flavorRef="floating", availability_zone="nova:n1")
    node = cloud.admin.get("/pinfold/v1/nodes/n1").json()
    assert (node["memory_used_mb"], node["vcpus_shared_used"]) == (512, 2)
    assert [cell["memory_used_mb"] for cell in node["cells"]] == [0, 0]
    assert node["claims"] == [{"server": server, "role": "current", "cells": []}]


def test_a_node_whose_worker_is_silent_is_down(cloud: Cloud) -> None:
    cloud.box.die("n1")
    states = {node["node"]: node["state"] for node in cloud.admin.get("/pinfold/v1/nodes").json()["nodes"]}
    assert states == {"n1": "down", "n2": "up"}


def test_the_list_of_nodes_costs_three_statements(cloud: Cloud) -> None:
    for _ in range(3):
        cloud.boot()
    assert len(cloud.statements(cloud.admin, "/pinfold/v1/nodes")) == 3


@pytest.mark.parametrize("name", ["nowhere", "%00", "a" * 300])
def test_what_is_no_node_is_404(cloud: Cloud, name: str) -> None:
    assert cloud.admin.get(f"/pinfold/v1/nodes/{name}").status_code == 404


def test_nodes_are_for_admins(cloud: Cloud) -> None:
    assert cloud.demo.get("/pinfold/v1/nodes").status_code == 403
    assert cloud.demo.get("/pinfold/v1/nodes/n1").status_code == 403


# --- operations -------------------------------------------------------------------------------------


def test_operations_tell_the_story_of_a_server(any_cloud: Cloud) -> None:
    server = any_cloud.boot()
    any_cloud.shelve(server)
    listed = any_cloud.admin.get(f"/pinfold/v1/operations?server={server}").json()["operations"]
    assert [(one["kind"], one["state"]) for one in listed] == [
        ("shelve", "succeeded"),
        ("create", "succeeded"),
    ]
    steps = listed[0]["steps"]
    assert [step["step"] for step in steps] == ["power_off", "snapshot", "record", "destroy"]
    assert all(step["start"] <= step["end"] for step in steps)
    assert any_cloud.admin.get(f"/pinfold/v1/operations/{listed[0]['id']}").json() == listed[0]


def test_an_operation_under_way_shows_where_it_is(cloud: Cloud) -> None:
    server = cloud.ask()
    (shown,) = cloud.admin.get(f"/pinfold/v1/operations?server={server}").json()["operations"]
    assert (shown["state"], shown["task_state"], shown["attempt"]) == ("running", "scheduling", 0)
    assert {"kind", "state", "step", "attempt", "owner", "deadline", "steps", "error"} <= set(shown)
    assert shown["deadline"].endswith("Z")


def test_operations_of_a_deleted_server_can_be_read(cloud: Cloud) -> None:
    server = cloud.boot()
    cloud.shelve(server)
    assert cloud.demo.delete(f"/v2.1/servers/{server}").status_code == 204
    listed = cloud.demo.get(f"/pinfold/v1/operations?server={server}").json()["operations"]
    assert listed[0]["kind"] == "delete"


def test_hosts_and_refusals_are_for_admins(cloud: Cloud) -> None:
    cloud.flavor("huge", 64)
    server = cloud.ask(flavorRef="huge")
    cloud.box.runner.run(cloud.open_operation(server))
    (shown,) = cloud.admin.get(f"/pinfold/v1/operations?server={server}").json()["operations"]
    assert shown["state"] == "failed"
    assert {refusal["host"] for refusal in shown["refusals"]} == {"n1", "n2"}
    (hidden,) = cloud.demo.get(f"/pinfold/v1/operations?server={server}").json()["operations"]
    assert not {"refusals", "targets"} & set(hidden)
    assert (hidden["owner"], [step for step in hidden["steps"] if "host" in step]) == (None, [])


def test_operations_of_others_are_404(cloud: Cloud) -> None:
    server = cloud.ask()
    operation = cloud.open_operation(server)
    assert cloud.other.get(f"/pinfold/v1/operations?server={server}").status_code == 404
    assert cloud.other.get(f"/pinfold/v1/operations/{operation}").status_code == 404
    assert cloud.demo.get(f"/pinfold/v1/operations/{operation}").status_code == 200


@pytest.mark.parametrize(
    ("query", "code"), [("", 400), ("?server=", 400), ("?server=x", 404), (f"?server={MISSING}", 404)]
)
def test_a_server_must_be_named(cloud: Cloud, query: str, code: int) -> None:
    assert cloud.admin.get(f"/pinfold/v1/operations{query}").status_code == code


# --- identity ---------------------------------------------------------------------------------------


def test_clients_find_an_identity_service(cloud: Cloud) -> None:
    anybody = cloud.client(None)
    assert anybody.get("/identity").status_code == 300
    assert anybody.get("/identity/v3/").json()["version"]["id"] == "v3.14"
    assert anybody.get("/identity/v3/projects/demo").json()["project"]["name"] == "demo"
    found = anybody.get("/identity/v3/projects?name=demo").json()["projects"]
    assert [project["id"] for project in found] == ["demo"]


# --- health and metrics -----------------------------------------------------------------------------


def test_health_is_good_without_a_token(cloud: Cloud) -> None:
    answer = cloud.client(None).get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"database": "ok", "broker": "ok"})


def test_health_is_bad_when_the_database_is_gone(cloud: Cloud, tmp_path: pathlib.Path) -> None:
    cloud.book.engine.dispose()
    for file in tmp_path.glob("book.db*"):
        file.unlink()
    (tmp_path / "book.db").mkdir()
    answer = cloud.client(None).get("/healthz")
    assert (answer.status_code, answer.json()["database"]) == (503, "no answer")


def test_metrics_count_operations_claims_and_free_cpus(cloud: Cloud) -> None:
    cloud.deps.registry.register(BookCollector(cloud.book, 15.0, cloud.runtime))
    cloud.boot(cloud.admin, availability_zone="nova:n1")
    text = cloud.client(None).get("/metrics").text
    assert 'pinfold_operations{kind="create",result="succeeded"} 1.0' in text
    assert 'pinfold_claims{node="n1",role="current"} 1.0' in text
    assert 'pinfold_node_up{node="n2"} 1.0' in text
    assert 'pinfold_cpus_free{cell="0",node="n2"} 7.0' in text


def test_a_request_id_leads_from_the_answer_to_the_operation(cloud: Cloud) -> None:
    answer = cloud.demo.post("/v2.1/servers", json=cloud.body())
    query = sa.select(Operation.request_id, Operation.user_id, Operation.project_id)
    row = cloud.book.read(lambda session: session.execute(query).one())
    assert tuple(row) == (answer.headers["x-openstack-request-id"], "ann", "demo")


def test_without_a_token_the_caller_is_admin(cloud: Cloud) -> None:
    server = cloud.ask(cloud.client(None))
    assert cloud.show(server)["tenant_id"] == "admin"
    assert cloud.client("notused").get("/pinfold/v1/nodes").status_code == 200
    assert cloud.client(ADMIN).get("/pinfold/v1/nodes").status_code == 200
