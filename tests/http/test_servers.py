"""Servers over HTTP: what is shown, and what a request does to them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from pinfold.db.models import Instance, Operation, Service
from tests.http.cloud import MISSING, Cloud


def test_a_new_server_is_shown_as_building_and_scheduling(cloud: Cloud) -> None:
    shown = cloud.show(cloud.ask())
    assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("BUILD", "scheduling")
    assert (shown["OS-EXT-SRV-ATTR:host"], shown["hostId"], shown["addresses"]) == (None, "", {})


def test_a_server_that_runs_is_shown_with_its_host(any_cloud: Cloud) -> None:
    shown = any_cloud.show(any_cloud.boot())
    assert (shown["status"], shown["OS-EXT-STS:power_state"]) == ("ACTIVE", 1)
    assert shown["OS-EXT-SRV-ATTR:host"] in ("n1", "n2")
    assert (shown["host_status"], shown["OS-EXT-AZ:availability_zone"]) == ("UP", "nova")
    assert "fault" not in shown


def test_between_claim_and_finish_the_incoming_host_is_shown(cloud: Cloud) -> None:
    server = cloud.ask()
    cloud.box.runner.run(cloud.open_operation(server))
    cloud.box.claim(cloud.box.last)
    shown = cloud.show(server)
    assert shown["OS-EXT-SRV-ATTR:host"] == cloud.box.last.host
    assert shown["OS-EXT-STS:task_state"] == "spawning"


def test_an_offloaded_server_has_no_host(any_cloud: Cloud) -> None:
    server = any_cloud.boot()
    any_cloud.shelve(server)
    shown = any_cloud.show(server)
    assert shown["status"] == "SHELVED_OFFLOADED"
    assert (shown["OS-EXT-SRV-ATTR:host"], shown["OS-EXT-SRV-ATTR:hypervisor_hostname"]) == (None, None)
    assert (shown["hostId"], shown["host_status"], shown["OS-EXT-AZ:availability_zone"]) == ("", "", "")


def test_a_fault_is_shown_whatever_the_status(cloud: Cloud) -> None:
    server = cloud.boot()
    cloud.shelve(server)
    assert cloud.act(server, "unshelve").status_code == 202
    cloud.box.runner.run(cloud.open_operation(server))
    while cloud.box.operation(server).open_key:
        cloud.box.claim(cloud.box.last)
        cloud.box.abort(cloud.box.last)
    shown = cloud.show(server)
    assert shown["status"] == "SHELVED_OFFLOADED"
    assert shown["fault"]["code"] == 500
    assert "hypervisor said no" in shown["fault"]["message"]
    assert "details" not in cloud.show(server, cloud.demo)["fault"]


@pytest.mark.parametrize("client", ["admin", "demo"])
def test_a_missing_server_is_404(cloud: Cloud, client: str) -> None:
    answer = getattr(cloud, client).get(f"/v2.1/servers/{MISSING}")
    assert answer.status_code == 404
    message = f"Instance {MISSING} could not be found."
    assert answer.json() == {"itemNotFound": {"code": 404, "message": message}}
    assert answer.headers["X-Pinfold-Error"] == "server-not-found"


@pytest.mark.parametrize("name", ["srv1", "a" * 300, "%00", "%ff%fe", "...", "%e2%98%83", "-1"])
def test_a_name_where_an_id_belongs_is_404_without_a_question_to_the_database(
    cloud: Cloud, name: str
) -> None:
    assert cloud.demo.get(f"/v2.1/servers/{name}").status_code == 404


def test_an_id_may_be_written_in_capitals_or_without_dashes(cloud: Cloud) -> None:
    server = cloud.ask()
    assert cloud.show(server.upper())["id"] == server
    assert cloud.show(server.replace("-", ""))["id"] == server


def test_another_project_neither_sees_nor_touches_a_server(cloud: Cloud) -> None:
    server = cloud.boot()
    before = cloud.everything()
    assert cloud.other.get(f"/v2.1/servers/{server}").status_code == 404
    assert cloud.other.delete(f"/v2.1/servers/{server}").status_code == 404
    assert cloud.other.put(f"/v2.1/servers/{server}", json={"server": {"name": "x"}}).status_code == 404
    assert cloud.act(server, "shelve", client=cloud.other).status_code == 404
    assert cloud.other.get("/v2.1/servers").json() == {"servers": []}
    assert cloud.everything() == before


def test_a_reader_sees_and_does_not_touch(cloud: Cloud) -> None:
    server = cloud.boot()
    reader = cloud.client("rita:demo:reader")
    assert reader.get(f"/v2.1/servers/{server}").status_code == 200
    before = cloud.everything()
    assert cloud.act(server, "shelve", client=reader).status_code == 403
    assert reader.delete(f"/v2.1/servers/{server}").status_code == 403
    assert reader.post("/v2.1/servers", json=cloud.body()).status_code == 403
    assert cloud.everything() == before


def test_an_ordinary_user_sees_no_hosts(cloud: Cloud) -> None:
    shown = cloud.show(cloud.boot(), cloud.demo)
    assert not [name for name in shown if name.startswith("OS-EXT-SRV-ATTR:") and "hostname" not in name]
    assert "OS-EXT-SRV-ATTR:hypervisor_hostname" not in shown
    assert "host_status" not in shown
    assert shown["hostId"]


def test_host_status_says_what_is_wrong_with_the_host(cloud: Cloud) -> None:
    server = cloud.boot()

    def with_service(**values: object) -> str:
        host = cloud.box.last.host
        query = sa.update(Service).where(Service.host == host).values(**values)
        cloud.book.write(lambda session: session.execute(query))
        return str(cloud.show(server)["host_status"])

    assert with_service(disabled=True) == "MAINTENANCE"
    assert with_service(disabled=False, last_seen_at=0.0) == "UNKNOWN"
    assert with_service(forced_down=True) == "DOWN"


def test_delete_of_a_server_without_a_host_is_done_when_it_is_answered(any_cloud: Cloud) -> None:
    server = any_cloud.boot()
    any_cloud.shelve(server)
    conductor, worker = any_cloud.listen()
    assert any_cloud.demo.delete(f"/v2.1/servers/{server}").status_code == 204
    assert any_cloud.demo.get(f"/v2.1/servers/{server}").status_code == 404
    assert (conductor.heard, worker.heard) == ([], [])


def test_delete_of_a_running_server_shows_deleting_and_is_idempotent(cloud: Cloud) -> None:
    server = cloud.boot()
    for _ in range(3):
        assert cloud.demo.delete(f"/v2.1/servers/{server}").status_code == 204
    assert cloud.show(server)["OS-EXT-STS:task_state"] == "deleting"
    assert len(_operations(cloud, server)) == 2


def test_force_delete_is_202(cloud: Cloud) -> None:
    server = cloud.boot()
    assert cloud.act(server, "forceDelete").status_code == 202
    assert "force_delete" in _operations(cloud, server)


def test_a_locked_server_is_its_owners_no_more_until_unlocked(cloud: Cloud) -> None:
    server = cloud.boot()
    query = sa.update(Instance).where(Instance.id == server).values(locked_by="admin", locked_reason="why")
    cloud.book.write(lambda session: session.execute(query))
    assert cloud.act(server, "shelve").status_code == 409
    assert cloud.demo.delete(f"/v2.1/servers/{server}").status_code == 409
    shown = cloud.show(server)
    assert (shown["locked"], shown["locked_reason"]) == (True, "why")
    assert cloud.act(server, "shelve", client=cloud.admin).status_code == 202


def test_update_changes_plain_fields_in_any_state(any_cloud: Cloud) -> None:
    server = any_cloud.ask()
    fields = {"name": "b", "description": "d", "hostname": "h-1", "accessIPv4": "10.0.0.1"}
    answer = any_cloud.demo.put(f"/v2.1/servers/{server}", json={"server": fields})
    assert answer.status_code == 200
    shown = answer.json()["server"]
    assert [shown[name] for name in ("name", "description", "accessIPv4")] == ["b", "d", "10.0.0.1"]
    assert any_cloud.show(server)["OS-EXT-SRV-ATTR:hostname"] == "h-1"


def test_update_answers_with_all_fields_from_2_75_on(cloud: Cloud) -> None:
    server = cloud.boot()

    def fields(version: str) -> set[str]:
        answer = cloud.client("admin:admin", version).put(
            f"/v2.1/servers/{server}", json={"server": {"name": "c"}}
        )
        return set(answer.json()["server"])

    late = {"OS-EXT-STS:task_state", "key_name", "OS-SRV-USG:launched_at", "host_status"}
    assert late <= fields("2.75")
    assert not late & fields("2.74")


def test_metadata_can_be_read(cloud: Cloud) -> None:
    server = cloud.ask(metadata={"k": "v"})
    assert cloud.demo.get(f"/v2.1/servers/{server}/metadata").json() == {"metadata": {"k": "v"}}
    assert cloud.demo.get(f"/v2.1/servers/{server}/metadata/k").json() == {"meta": {"k": "v"}}
    assert cloud.demo.get(f"/v2.1/servers/{server}/metadata/nope").status_code == 404


# --- actions ----------------------------------------------------------------------------------------


def test_shelve_is_written_before_anybody_is_told(cloud: Cloud) -> None:
    server = cloud.boot()
    answer = cloud.act(server, "shelve")
    assert (answer.status_code, answer.content) == (202, b"")
    operation = cloud.box.operation(server)
    assert (operation.kind, operation.arguments["snapshot_name"]) == ("shelve", "a-shelved")
    assert cloud.show(server)["OS-EXT-STS:task_state"] == "shelving"


def test_a_broker_that_is_away_does_not_change_the_answer(cloud: Cloud) -> None:
    """Nobody has ever listened: the sweeper will ring."""
    assert cloud.act(cloud.boot(), "shelve").status_code == 202


def test_the_conductor_and_the_worker_are_rung(cloud: Cloud) -> None:
    conductor, worker = cloud.listen()
    server = cloud.boot(availability_zone="nova:n1", client=cloud.admin)
    assert conductor.rang.wait(5)
    context, operation = conductor.heard[0]
    assert context.project_id == "admin"
    assert operation == cloud.box.operation(server).id
    assert cloud.act(server, "shelve", client=cloud.admin).status_code == 202
    assert worker.rang.wait(5)
    assert worker.heard[0]["instance"] == server


def test_of_twenty_shelves_at_once_one_is_accepted(any_cloud: Cloud) -> None:
    """F025."""
    server = any_cloud.boot()
    with ThreadPoolExecutor(20) as pool:
        codes = [
            answer.status_code for answer in pool.map(lambda _: any_cloud.act(server, "shelve"), range(20))
        ]
    assert sorted(codes) == [202] + [409] * 19
    assert _operations(any_cloud, server).count("shelve") == 1


@pytest.mark.parametrize(
    ("state", "action", "code"),
    [
        ("building", "shelve", 409),
        ("active", "unshelve", 409),
        ("active", "shelveOffload", 409),
        ("offloaded", "shelve", 409),
        ("offloaded", "shelveOffload", 409),
        ("offloaded", "unshelve", 202),
        ("active", "shelve", 202),
        ("offloaded", "forceDelete", 202),
    ],
)
def test_an_action_is_refused_in_the_wrong_state(cloud: Cloud, state: str, action: str, code: int) -> None:
    server = cloud.ask() if state == "building" else cloud.boot()
    if state == "offloaded":
        cloud.shelve(server)
    before = cloud.everything()
    answer = cloud.act(server, action, client=cloud.admin)
    assert answer.status_code == code, answer.text
    if code == 409:
        assert "state" in answer.json()["conflictingRequest"]["message"]
        assert cloud.everything() == before


def test_shelve_offload_is_for_admins(cloud: Cloud) -> None:
    assert cloud.act(cloud.boot(), "shelveOffload").status_code == 403


@pytest.mark.parametrize(
    ("version", "value", "code"),
    [
        ("2.1", None, 202),
        ("2.1", {"anything": 1}, 202),
        ("2.76", [], 202),
        ("2.77", None, 202),
        ("2.77", {}, 400),
        ("2.77", {"availability_zone": None}, 400),
        ("2.77", {"availability_zone": "nova"}, 202),
        ("2.77", {"availability_zone": "nowhere"}, 400),
        ("2.77", {"host": "n1"}, 400),
        ("2.90", {"availability_zone": "nova", "x": 1}, 400),
        ("2.91", {}, 202),
        ("2.91", {"availability_zone": None}, 202),
        ("2.91", {"host": "n1"}, 202),
        ("2.91", {"host": "nowhere"}, 400),
        ("2.91", {"host": 1}, 400),
        ("2.91", {"availability_zone": "nova", "host": "n2"}, 202),
        ("2.104", {"node": "n2"}, 400),
    ],
)
def test_what_unshelve_takes_depends_on_the_microversion(
    cloud: Cloud, version: str, value: object, code: int
) -> None:
    server = cloud.boot()
    cloud.shelve(server)
    answer = cloud.act(server, "unshelve", value, cloud.client("admin:admin", version))
    assert answer.status_code == code, answer.text


def test_unshelve_to_a_host_is_for_admins_and_is_written_down(cloud: Cloud) -> None:
    server = cloud.boot()
    cloud.shelve(server)
    assert cloud.act(server, "unshelve", {"host": "n2"}).status_code == 403
    assert cloud.act(server, "unshelve", {"host": "n2"}, cloud.admin).status_code == 202
    assert cloud.box.operation(server).arguments == {"host": "n2"}


def test_unshelve_pins_and_unpins_the_zone(cloud: Cloud) -> None:
    server = cloud.boot()
    cloud.shelve(server)
    assert cloud.act(server, "unshelve", {"availability_zone": "nova"}).status_code == 202
    assert cloud.show(server)["pinned_availability_zone"] == "nova"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, 400),
        ({"shelve": None, "unshelve": None}, 400),
        ([], 400),
        ("shelve", 400),
        (None, 400),
        ({"nonsense": None}, 400),
        ({"rescue": None}, 501),
        ({"addFloatingIp": {}}, 404),
    ],
)
def test_what_is_no_action_is_refused(cloud: Cloud, body: object, code: int) -> None:
    server = cloud.boot()
    before = cloud.everything()
    answer = cloud.demo.post(f"/v2.1/servers/{server}/action", json=body)
    assert answer.status_code == code, answer.text
    assert cloud.everything() == before


def test_an_action_that_is_not_built_is_404_on_a_server_that_is_not_there(cloud: Cloud) -> None:
    assert cloud.act(MISSING, "rescue").status_code == 404


def _operations(cloud: Cloud, server: str) -> list[str]:
    query = sa.select(Operation.kind).where(Operation.instance_id == server)
    return cloud.book.read(lambda session: list(session.scalars(query)))
