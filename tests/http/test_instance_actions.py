"""What was done with a server, its topology and its moves, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from pinfold.api.migrations import view
from pinfold.db.models import Operation
from pinfold.db.moves_read import MoveRow
from tests.conductor.box import WHO
from tests.http.cloud import ADMIN, MISSING, Cloud


def url(server: str) -> str:
    return f"/v2.1/servers/{server}/os-instance-actions"


def actions(cloud: Cloud, server: str, token: str = ADMIN, version: str = "2.84", query: str = "") -> Any:
    answer = cloud.client(token, version).get(url(server) + query)
    assert answer.status_code == 200, answer.text
    return answer.json()["instanceActions"]


def events(cloud: Cloud, server: str, number: int = 0, token: str = ADMIN, version: str = "2.84") -> Any:
    request = actions(cloud, server)[number]["request_id"]
    answer = cloud.client(token, version).get(f"{url(server)}/{request}")
    assert answer.status_code == 200, answer.text
    return answer.json()["instanceAction"].get("events")


def test_actions_are_listed_newest_first(any_cloud: Cloud) -> None:
    cloud = any_cloud
    server = cloud.boot()
    cloud.act(server, "shelve")
    first, second = actions(cloud, server)
    assert (first["action"], second["action"]) == ("shelve", "create")
    assert second == {
        "action": "create",
        "instance_uuid": server,
        "request_id": second["request_id"],
        "user_id": "ann",
        "project_id": "demo",
        "start_time": second["start_time"],
        "message": None,
        "updated_at": second["updated_at"],
    }
    assert second["request_id"].startswith("req-")
    assert len(second["start_time"]) == len("2026-11-30T16:26:49.000000")
    assert "updated_at" not in actions(cloud, server, version="2.57")[0]
    assert len(cloud.statements(cloud.admin, url(server))) == 2


def test_the_request_id_of_an_answer_finds_its_action(cloud: Cloud) -> None:
    answer = cloud.demo.post("/v2.1/servers", json=cloud.body())
    server, request = answer.json()["server"]["id"], answer.headers["x-compute-request-id"]
    shown = cloud.demo.get(f"{url(server)}/{request}").json()["instanceAction"]
    assert (shown["action"], shown["request_id"]) == ("create", request)
    assert cloud.demo.get(f"{url(server)}/req-{MISSING}").status_code == 404


def test_events_tell_what_happened_where(any_cloud: Cloud) -> None:
    cloud = any_cloud
    server = cloud.boot(cloud.admin, availability_zone=":n1")
    (event,) = events(cloud, server)
    assert set(event) == {
        *("event", "start_time", "finish_time", "result", "traceback", "hostId", "host", "details")
    }
    assert (event["event"], event["result"], event["host"]) == (
        "compute__do_build_and_run_instance",
        "Success",
        "n1",
    )
    cloud.shelve(server)
    assert [event["event"] for event in events(cloud, server)] == ["compute_shelve_instance"]
    cloud.act(server, "unshelve", None, cloud.admin)
    cloud.build(server)
    assert [event["event"] for event in events(cloud, server)] == [
        "compute_unshelve_instance",
        "schedule_instances",
        "get_image_info",
    ]


def test_who_sees_what_of_an_event(cloud: Cloud) -> None:
    server = cloud.boot()
    ann = "ann:demo:member"
    assert events(cloud, server, token=ann, version="2.50") is None
    assert set(events(cloud, server, token=ann, version="2.51")[0]) == {
        *("event", "start_time", "finish_time", "result")
    }
    assert set(events(cloud, server, token=ann)[0]) == {
        *("event", "start_time", "finish_time", "result", "hostId")
    }
    assert "traceback" in events(cloud, server, version="2.1")[0]
    assert cloud.other.get(url(server)).status_code == 404
    reader = cloud.client("rob:demo:reader")
    assert reader.get(url(server)).status_code == 200


def test_a_create_that_failed_says_error(cloud: Cloud) -> None:
    cloud.flavor("huge", 64)
    server = cloud.ask(flavorRef="huge")
    cloud.box.runner.run(cloud.open_operation(server))
    assert actions(cloud, server)[0]["message"] == "Error"
    (event,) = events(cloud, server)
    assert (event["event"], event["result"]) == ("conductor_schedule_and_build_instances", "Error")
    assert "No valid host" in event["details"]


def test_an_attempt_that_failed_before_another_succeeded_is_told(cloud: Cloud) -> None:
    server = cloud.ask()
    cloud.box.runner.run(cloud.open_operation(server))
    cloud.box.claim(cloud.box.last)
    cloud.box.abort(cloud.box.last)
    cloud.box.claim(cloud.box.last)
    cloud.box.finish(cloud.box.last)
    assert cloud.show(server)["status"] == "ACTIVE"
    assert [event["result"] for event in events(cloud, server)] == ["Success", "Error"]
    assert actions(cloud, server)[0]["message"] == "Error"


def test_a_deleted_server_has_its_actions_from_2_21_on(any_cloud: Cloud) -> None:
    cloud = any_cloud
    server = cloud.ask()
    cloud.demo.delete(f"/v2.1/servers/{server}")
    assert [row["action"] for row in actions(cloud, server, "ann:demo:member")] == ["delete", "create"]
    assert events(cloud, server) == []
    assert cloud.client(ADMIN, "2.20").get(url(server)).status_code == 404


def test_from_2_58_on_lists_are_paged_and_filtered_by_time(any_cloud: Cloud) -> None:
    cloud = any_cloud
    server = cloud.boot()
    for _ in range(2):
        cloud.shelve(server)
        cloud.act(server, "unshelve")
        cloud.build(server)
    # the box has one request id for all that it asks for
    mine = sa.update(Operation).where(Operation.request_id == WHO.request_id)
    cloud.book.write(lambda session: session.execute(mine.values(request_id=Operation.id)))
    everything = actions(cloud, server)
    assert len(everything) == 5
    document = cloud.admin.get(f"{url(server)}?limit=2").json()
    following = cloud.admin.get(document["links"][0]["href"]).json()["instanceActions"]
    assert following == everything[2:4]
    assert actions(cloud, server, query="?changes-since=2100-01-01T00:00:00Z") == []
    assert actions(cloud, server, query="?changes-before=2100-01-01T00:00:00Z") == everything
    for query in ("marker=x", "limit=x", "changes-since=x", "other=1"):
        assert cloud.admin.get(f"{url(server)}?{query}").status_code == 400
    assert len(actions(cloud, server, version="2.57", query="?limit=2&other=1")) == 5


# --- topology ---------------------------------------------------------------------------------------


def test_the_topology_is_that_of_the_claim(any_cloud: Cloud) -> None:
    cloud = any_cloud
    cloud.flavor("wide", 4, {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2"})
    server = cloud.boot(cloud.admin, flavorRef="wide", availability_zone=":n1")
    path = f"/v2.1/servers/{server}/topology"
    shown = cloud.admin.get(path).json()
    assert (len(shown["nodes"]), shown["pagesize_kb"]) == (2, None)
    assert {cpu for cell in shown["nodes"] for cpu in cell["vcpu_set"]} == {0, 1, 2, 3}
    pins = {cpu for cell in shown["nodes"] for cpu in cell["cpu_pinning"].values()}
    assert pins == cloud.box.used("n1")
    reader = cloud.client("rob:admin:reader").get(path).json()
    assert set(reader["nodes"][0]) == {"vcpu_set", "siblings", "memory_mb"}
    assert cloud.client(ADMIN, "2.77").get(path).status_code == 404
    cloud.shelve(server)
    assert cloud.admin.get(path).json() == {"nodes": [], "pagesize_kb": None}


# --- moves ------------------------------------------------------------------------------------------


def test_there_are_no_moves(cloud: Cloud) -> None:
    assert cloud.client(ADMIN, "2.80").get("/v2.1/os-migrations").json() == {"migrations": []}
    assert cloud.client("mia:demo:manager").get("/v2.1/os-migrations?project_id=demo").status_code == 200
    assert cloud.client("mia:demo:manager").get("/v2.1/os-migrations").status_code == 403
    assert cloud.demo.get("/v2.1/os-migrations?project_id=demo").status_code == 403


@pytest.mark.parametrize(
    "query",
    [
        "limit=x",
        "marker=x",
        "changes-since=x",
        "other=1",
        "changes-since=2030-01-01T00:00:00Z&changes-before=2020-01-01T00:00:00Z",
    ],
)
def test_a_bad_parameter_is_400(cloud: Cloud, query: str) -> None:
    assert cloud.admin.get(f"/v2.1/os-migrations?{query}").status_code == 400
    assert cloud.client(ADMIN, "2.58").get("/v2.1/os-migrations?limit=x&other=1").status_code == 200


def test_a_server_has_no_live_migrations(cloud: Cloud) -> None:
    server = cloud.boot()
    path = f"/v2.1/servers/{server}/migrations"
    assert cloud.admin.get(path).json() == {"migrations": []}
    assert cloud.admin.get(f"{path}/1").status_code == 404
    assert cloud.admin.delete(f"{path}/1").status_code == 409
    assert cloud.admin.post(f"{path}/1/action", json={"force_complete": None}).status_code == 409
    assert cloud.demo.get(path).status_code == 403
    assert cloud.client(ADMIN, "2.22").get(path).status_code == 404


def test_fields_of_a_move_by_microversion(cloud: Cloud) -> None:
    places = {"source": ["n1", "n1"], "target": ["n2", "n2"]}
    move = MoveRow("00000001-u", "resize", "s", "succeeded", places, "req", "ann", "demo", 1.0, None)

    class Asks:
        minor = 1
        admin = True

        def allows(self, rule: str) -> bool:
            assert rule == "os-migrations:index:host"
            return self.admin

    call: Any = Asks()
    oldest = set(view(call, move))
    for minor, added in ((23, {"migration_type"}), (59, {"uuid"}), (80, {"user_id", "project_id"})):
        call.minor = minor
        newer = set(view(call, move))
        assert newer - oldest == added
        oldest = newer
    call.admin = False
    assert view(call, move)["source_compute"] is None
