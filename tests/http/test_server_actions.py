"""Actions on servers in their places: who may, from which states, what is shown meanwhile, and what is written."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from pinfold.db.models import Instance, Operation, Report
from pinfold.model import states
from pinfold.model.work import Times
from pinfold.rpcapi import clients
from pinfold.rpcapi.context import Context
from pinfold.rpcapi.wire import exported
from tests.http.cloud import DEMO, MISSING, Cloud
from tests.http.conftest import MakeCloud

UP = ("active", "stopped", "paused", "suspended")
EVERY = ("building", *UP, "shelved", "shelved_offloaded", "soft-delete", "error")

# action: its value, the states it may start in, the task state at once, where it leads
PLAIN: dict[str, tuple[Any, tuple[str, ...], str, str]] = {
    "os-stop": (None, ("active", "error"), "powering-off", "SHUTOFF"),
    "os-start": (None, ("stopped",), "powering-on", "ACTIVE"),
    "pause": (None, ("active",), "pausing", "PAUSED"),
    "unpause": (None, ("paused",), "unpausing", "ACTIVE"),
    "suspend": (None, ("active",), "suspending", "SUSPENDED"),
    "resume": (None, ("suspended",), "resuming", "ACTIVE"),
    "restore": (None, ("soft-delete",), "restoring", "ACTIVE"),
}
MORE: dict[str, tuple[Any, tuple[str, ...], str, str]] = {
    "soft reboot": ({"type": "SOFT"}, ("active",), "rebooting", "ACTIVE"),
    "hard reboot": ({"type": "hard"}, (*UP, "error"), "rebooting_hard", "ACTIVE"),
    "createImage": ({"name": "image"}, UP, "image_snapshot_pending", ""),
    "rebuild": ({"imageRef": ""}, ("active", "stopped", "error"), "rebuilding", ""),
}
ACTIONS = {**PLAIN, **MORE}


def key_of(action: str) -> str:
    return "reboot" if action.endswith("reboot") else action


def value_of(cloud: Cloud, action: str) -> Any:
    return {"imageRef": cloud.tiny} if action == "rebuild" else ACTIONS[action][0]


def put(cloud: Cloud, server: str, vm_state: str) -> None:
    """As if it had come to this state, with its claim."""
    cloud.book.write(
        lambda session: session.execute(
            sa.update(Instance).where(Instance.id == server).values(vm_state=vm_state)
        )
    )


def task(cloud: Cloud, server: str) -> str | None:
    found: str | None = cloud.show(server)["OS-EXT-STS:task_state"]
    return found


@pytest.mark.parametrize("vm_state", EVERY)
@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_starts_from_its_states_and_no_others(cloud: Cloud, action: str, vm_state: str) -> None:
    """From others it is 409, which names the field, and nothing is written."""
    server = cloud.boot()
    put(cloud, server, vm_state)
    before = cloud.everything()
    answer = cloud.act(server, key_of(action), value_of(cloud, action))
    if vm_state in ACTIONS[action][1]:
        assert answer.status_code == 202, answer.text
        assert task(cloud, server) == ACTIONS[action][2]
    else:
        assert answer.status_code == 409, answer.text
        assert "vm_state" in answer.json()["conflictingRequest"]["message"]
        assert cloud.everything() == before


@pytest.mark.parametrize("action", PLAIN)
def test_an_action_that_is_done_shows_its_new_state_and_the_same_claim(cloud: Cloud, action: str) -> None:
    server = cloud.boot()
    put(cloud, server, PLAIN[action][1][0])
    claims = cloud.box.claims(server)
    cloud.through(server, action)
    shown = cloud.show(server)
    assert (shown["status"], shown["OS-EXT-STS:task_state"]) == (PLAIN[action][3], None)
    assert cloud.box.claims(server) == claims


def test_the_power_state_is_shown(cloud: Cloud) -> None:
    server = cloud.boot()
    for action, power in (("pause", 3), ("unpause", 1), ("suspend", 7), ("resume", 1), ("os-stop", 4)):
        cloud.through(server, action)
        assert cloud.show(server)["OS-EXT-STS:power_state"] == power


@pytest.mark.parametrize("action", ACTIONS)
def test_an_open_operation_is_409_for_everything_but_a_hard_reboot_of_what_that_may_take_over(
    cloud: Cloud, action: str
) -> None:
    """F025: of two requests at once the second finds the first."""
    server = cloud.boot()
    assert cloud.act(server, "pause").status_code == 202
    put(cloud, server, ACTIONS[action][1][0])
    answer = cloud.act(server, key_of(action), value_of(cloud, action))
    if action == "hard reboot":
        assert answer.status_code == 202
        assert _results(cloud, server)["pause"] == "superseded"
    else:
        assert answer.status_code == 409
        assert "task_state" in answer.json()["conflictingRequest"]["message"]


def _results(cloud: Cloud, server: str) -> dict[str, str | None]:
    query = sa.select(Operation.kind, Operation.result).where(Operation.instance_id == server)
    return cloud.book.read(lambda session: dict(session.execute(query).tuples().all()))


@pytest.mark.parametrize("action", [*ACTIONS, "shelve", "unshelve", "forceDelete"])
def test_a_locked_server_is_409_for_its_users_and_not_for_admins(cloud: Cloud, action: str) -> None:
    server = cloud.boot()
    assert cloud.act(server, "lock", client=cloud.admin).status_code == 202
    value = value_of(cloud, action) if action in ACTIONS else None
    if action in ACTIONS:
        put(cloud, server, ACTIONS[action][1][0])
    answer = cloud.act(server, key_of(action), value)
    if action == "createImage":
        assert answer.status_code == 202
        return
    assert answer.status_code == 409
    assert answer.json()["conflictingRequest"]["message"] == f"Instance {server} is locked"
    assert cloud.demo.delete(f"/v2.1/servers/{server}").status_code == 409
    if action != "unshelve":
        assert cloud.act(server, key_of(action), value, client=cloud.admin).status_code == 202


@pytest.mark.parametrize("action", ACTIONS)
def test_a_server_that_is_not_ones_own_is_404_and_a_reader_may_not(cloud: Cloud, action: str) -> None:
    server = cloud.boot()
    value = value_of(cloud, action)
    assert cloud.act(server, key_of(action), value, client=cloud.other).status_code == 404
    assert cloud.act(MISSING, key_of(action), value).status_code == 404
    reader = cloud.client("ann:demo:reader")
    assert cloud.act(server, key_of(action), value, client=reader).status_code == 403


@pytest.mark.parametrize("action", ["os-start", "os-stop"])
def test_a_server_without_a_host_is_not_ready_for_start_and_stop(cloud: Cloud, action: str) -> None:
    server = cloud.boot()
    cloud.shelve(server)
    answer = cloud.act(server, action)
    assert answer.status_code == 409
    assert answer.headers["X-Pinfold-Error"] == "no-host"


def test_a_server_that_has_never_run_is_told_so(cloud: Cloud) -> None:
    server = cloud.boot()
    cloud.book.write(
        lambda session: session.execute(
            sa.update(Instance).where(Instance.id == server).values(launched_at=None)
        )
    )
    answer = cloud.act(server, "pause")
    assert answer.status_code == 409
    assert "launched_at" in answer.json()["conflictingRequest"]["message"]


def test_a_host_that_is_down_is_409(cloud: Cloud) -> None:
    server = cloud.boot()
    cloud.box.die(cloud.show(server)["OS-EXT-SRV-ATTR:host"])
    answer = cloud.act(server, "os-stop")
    assert answer.status_code == 409
    assert answer.headers["X-Pinfold-Error"] == "host-down"


def test_a_failed_action_leaves_the_server_as_it_was_with_a_fault_and_can_be_tried_again(
    cloud: Cloud,
) -> None:
    """F077."""
    server = cloud.boot()
    cloud.act(server, "os-stop")
    cloud.box.begin(cloud.cast(server), "power_off")
    cloud.box.abort(cloud.box.last, "power_off", message="The hypervisor is busy.")
    shown = cloud.show(server)
    assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("ACTIVE", None)
    assert shown["fault"]["message"] == "The hypervisor is busy."
    cloud.through(server, "os-stop")
    assert "fault" not in cloud.show(server)


@pytest.mark.parametrize("body", [{"type": "cold"}, {"type": None}, {}, None, {"type": "SOFT", "more": 1}])
def test_a_reboot_needs_a_type(cloud: Cloud, body: Any) -> None:
    assert cloud.act(cloud.boot(), "reboot", body).status_code == 400


def test_a_reboot_shows_its_own_status(cloud: Cloud) -> None:
    server = cloud.boot()
    cloud.act(server, "reboot", {"type": "SOFT"})
    assert cloud.show(server)["status"] == "REBOOT"
    assert _ids(cloud.demo, "status=REBOOT") == [server]
    assert _ids(cloud.demo, "status=ACTIVE") == []
    cloud.carry(server)
    assert _ids(cloud.demo, "status=ACTIVE") == [server]
    cloud.act(server, "reboot", {"type": "HARD"})
    assert cloud.show(server)["status"] == "HARD_REBOOT"


def _ids(client: httpx.Client, query: str) -> list[str]:
    answer = client.get(f"/v2.1/servers/detail?{query}")
    assert answer.status_code == 200, answer.text
    return [server["id"] for server in answer.json()["servers"]]


def test_of_twenty_stops_at_once_one_is_accepted(any_cloud: Cloud) -> None:
    server = any_cloud.boot()
    answers: list[int] = []

    def stop() -> None:
        answers.append(any_cloud.act(server, "os-stop", client=any_cloud.client(DEMO)).status_code)

    threads = [threading.Thread(target=stop) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [202] + [409] * 19


# --- locks --------------------------------------------------------------------------------------------


def test_lock_and_unlock_with_a_reason(any_cloud: Cloud) -> None:
    cloud = any_cloud
    server = cloud.boot()
    assert cloud.act(server, "lock", {"locked_reason": "why"}).status_code == 202
    shown = cloud.show(server)
    assert (shown["locked"], shown["locked_reason"]) == (True, "why")
    assert _ids(cloud.demo, "locked=true") == [server]
    assert cloud.act(server, "lock", {"locked_reason": "another"}).status_code == 202
    assert cloud.show(server)["locked_reason"] == "why"
    assert cloud.act(server, "unlock").status_code == 202
    shown = cloud.show(server)
    assert (shown["locked"], shown["locked_reason"]) == (False, None)
    actions = cloud.demo.get(f"/v2.1/servers/{server}/os-instance-actions").json()["instanceActions"]
    assert [action["action"] for action in actions] == ["unlock", "lock", "create"]


def test_what_an_admin_has_locked_its_user_cannot_unlock(cloud: Cloud) -> None:
    server = cloud.boot()
    cloud.act(server, "lock", client=cloud.admin)
    assert cloud.act(server, "unlock").status_code == 403
    assert cloud.act(server, "unlock", client=cloud.admin).status_code == 202
    cloud.act(server, "lock")
    assert cloud.act(server, "unlock", client=cloud.admin).status_code == 202
    assert cloud.act(server, "unlock").status_code == 202


@pytest.mark.parametrize("vm_state", EVERY)
def test_a_lock_is_taken_in_every_state(cloud: Cloud, vm_state: str) -> None:
    server = cloud.boot()
    put(cloud, server, vm_state)
    assert cloud.act(server, "lock").status_code == 202
    assert cloud.act(server, "unlock").status_code == 202


@pytest.mark.parametrize(
    ("version", "value", "code"),
    [
        ("2.72", {"locked_reason": "x"}, 202),
        ("2.72", 7, 202),
        ("2.73", None, 202),
        ("2.73", {}, 202),
        ("2.73", {"locked_reason": ""}, 400),
        ("2.73", {"locked_reason": "x" * 256}, 400),
        ("2.73", {"reason": "x"}, 400),
        ("2.73", 7, 400),
    ],
)
def test_what_lock_takes_depends_on_the_microversion(
    cloud: Cloud, version: str, value: Any, code: int
) -> None:
    client = cloud.client(DEMO, version)
    assert cloud.act(cloud.boot(), "lock", value, client=client).status_code == code


# --- reset-state --------------------------------------------------------------------------------------


def test_reset_state_is_for_admins(cloud: Cloud) -> None:
    server = cloud.boot()
    assert cloud.act(server, "os-resetState", {"state": "error"}).status_code == 403
    assert cloud.act(server, "os-resetState", {"state": "stopped"}, client=cloud.admin).status_code == 400
    assert cloud.act(MISSING, "os-resetState", {"state": "error"}, client=cloud.admin).status_code == 404


def test_reset_state_to_error_and_back_keeps_the_claim(any_cloud: Cloud) -> None:
    server = any_cloud.boot()
    claims = any_cloud.box.claims(server)
    for state, status in (("error", "ERROR"), ("active", "ACTIVE")):
        answer = any_cloud.act(server, "os-resetState", {"state": state}, client=any_cloud.admin)
        assert answer.status_code == 202
        shown = any_cloud.show(server)
        assert (shown["status"], shown["OS-EXT-STS:task_state"]) == (status, None)
        assert any_cloud.box.claims(server) == claims


def test_a_server_without_a_host_or_an_image_cannot_be_reset_to_active(cloud: Cloud) -> None:
    """Nova leaves it ACTIVE without a host. Here nothing runs without a claim."""
    server = cloud.ask()
    cloud.box.runner.run(cloud.open_operation(server))
    for _ in range(2):
        cloud.box.claim(cloud.box.last)
        cloud.box.abort(cloud.box.last)
    assert cloud.show(server)["status"] == "ERROR"
    answer = cloud.act(server, "os-resetState", {"state": "active"}, client=cloud.admin)
    assert answer.status_code == 409
    assert "no host" in answer.json()["conflictingRequest"]["message"]
    assert cloud.act(server, "os-resetState", {"state": "error"}, client=cloud.admin).status_code == 202
    assert "fault" in cloud.show(server)


def test_an_offloaded_server_reset_to_error_and_to_active_is_offloaded_again(cloud: Cloud) -> None:
    """Its image says what it is, so that it can be unshelved."""
    server = cloud.boot()
    cloud.shelve(server)
    for state, status in (("error", "ERROR"), ("active", "SHELVED_OFFLOADED")):
        cloud.act(server, "os-resetState", {"state": state}, client=cloud.admin)
        assert cloud.show(server)["status"] == status
    assert cloud.act(server, "unshelve").status_code == 202


# --- metadata, tags, update ---------------------------------------------------------------------------


@pytest.mark.parametrize("vm_state", EVERY)
def test_metadata_and_tags_are_changed_in_the_states_that_allow_it(cloud: Cloud, vm_state: str) -> None:
    server = cloud.boot()
    put(cloud, server, vm_state)
    code = 200 if vm_state in UP else 409
    url = f"/v2.1/servers/{server}"
    assert cloud.demo.post(f"{url}/metadata", json={"metadata": {"a": "b"}}).status_code == code
    assert cloud.demo.put(f"{url}/tags", json={"tags": ["a"]}).status_code == code
    assert cloud.demo.put(f"{url}/tags/b").status_code == (201 if code == 200 else 409)
    assert cloud.demo.delete(f"{url}/tags").status_code == (204 if code == 200 else 409)
    assert cloud.demo.put(url, json={"server": {"name": "new"}}).status_code == 200


def test_tags_are_added_listed_and_removed(any_cloud: Cloud) -> None:
    cloud = any_cloud
    server = cloud.boot()
    url = f"/v2.1/servers/{server}/tags"
    added = cloud.demo.put(f"{url}/t9")
    assert (added.status_code, added.headers["Location"]) == (201, f"http://cloud:8774{url}/t9")
    assert cloud.demo.put(f"{url}/t9").status_code == 204
    assert cloud.demo.get(url).json() == {"tags": ["t9"]}
    assert cloud.demo.get(f"{url}/t9").status_code == 204
    assert cloud.demo.get(f"{url}/other").status_code == 404
    assert cloud.demo.delete(f"{url}/other").status_code == 404
    assert cloud.show(server)["tags"] == ["t9"]
    assert cloud.demo.delete(f"{url}/t9").status_code == 204
    assert cloud.demo.get(url).json() == {"tags": []}
    assert cloud.client(DEMO, "2.25").get(url).status_code == 404


@pytest.mark.parametrize("tag", ["a,b", "x" * 61, " a", "%20"])
def test_an_odd_tag_is_400(cloud: Cloud, tag: str) -> None:
    url = f"/v2.1/servers/{cloud.boot()}/tags"
    assert cloud.demo.put(f"{url}/{tag}").status_code == 400


def test_a_server_has_at_most_fifty_tags(cloud: Cloud) -> None:
    url = f"/v2.1/servers/{cloud.boot()}/tags"
    assert cloud.demo.put(url, json={"tags": [f"t{n}" for n in range(51)]}).status_code == 400
    assert cloud.demo.put(url, json={"tags": [f"t{n}" for n in range(50)]}).status_code == 200
    assert cloud.demo.put(f"{url}/one-more").status_code == 400
    assert cloud.demo.put(f"{url}/t7").status_code == 204


def test_the_pinned_zone_can_be_changed_from_2_104_on(cloud: Cloud) -> None:
    server = cloud.boot()
    url = f"/v2.1/servers/{server}"
    new, old = cloud.client(DEMO, "2.104"), cloud.client(DEMO, "2.103")
    body: dict[str, Any] = {"server": {"pinned_availability_zone": "nova"}}
    assert old.put(url, json=body).status_code == 400
    assert new.put(url, json=body).json()["server"]["pinned_availability_zone"] == "nova"
    assert new.put(url, json={"server": {"pinned_availability_zone": "moon"}}).status_code == 400
    body = {"server": {"pinned_availability_zone": None}}
    assert new.put(url, json=body).json()["server"]["pinned_availability_zone"] is None


# --- console ------------------------------------------------------------------------------------------


class Teller:
    """A worker that is asked for a console, and its answer."""

    def __init__(self, cloud: Cloud, answer: dict[str, Any] | None) -> None:
        self._cloud = cloud
        self._answer = answer
        self.asked: list[dict[str, Any]] = []

    @exported
    def report(self, context: Context, record: dict[str, Any]) -> None:
        self.asked.append(record)
        if self._answer is not None:
            self._cloud.box.manager.answer(
                context, record={"request": record["request"], "host": "n1", "payload": self._answer}
            )


def _told(cloud: Cloud, answer: dict[str, Any] | None) -> Teller:
    teller = Teller(cloud, answer)
    cloud.transport.serve(clients.COMPUTE_TOPIC, "n1", teller, clients.COMPUTE.version)
    return teller


@pytest.mark.parametrize(("length", "lines"), [(5, 5), ("5", 5), (-1, None), (None, None), (0, 0)])
def test_the_console_is_told_by_the_servers_worker(cloud: Cloud, length: Any, lines: int | None) -> None:
    server = cloud.boot(availability_zone="nova:n1", client=cloud.admin)
    teller = _told(cloud, {"output": "one\ntwo\x1b\x00\n"})
    answer = cloud.act(server, "os-getConsoleOutput", {"length": length}, client=cloud.admin)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"output": "one\ntwo\n"}
    assert teller.asked[0]["arguments"] == {"node": "n1", "instance": server, "lines": lines}
    assert cloud.book.read(lambda session: session.scalars(sa.select(Report)).all()) == []


def test_a_worker_that_cannot_read_the_console_says_why(cloud: Cloud) -> None:
    server = cloud.boot(availability_zone="nova:n1", client=cloud.admin)
    _told(cloud, {"error": "The disk is broken."})
    answer = cloud.act(server, "os-getConsoleOutput", {}, client=cloud.admin)
    assert answer.status_code == 503
    assert "The disk is broken." in answer.text


def test_a_worker_that_does_not_answer_in_ten_seconds_is_504(cloud: Cloud) -> None:
    server = cloud.boot(availability_zone="nova:n1", client=cloud.admin)
    _told(cloud, None)
    before = cloud.runtime.monotonic()
    answer = cloud.act(server, "os-getConsoleOutput", {}, client=cloud.admin)
    assert answer.status_code == 504
    assert 10 <= cloud.runtime.monotonic() - before < 20
    assert cloud.book.read(lambda session: session.scalars(sa.select(Report)).all()) == []


def test_a_console_that_nobody_has_is_409_and_one_that_is_not_asked_for_well_400(cloud: Cloud) -> None:
    server = cloud.boot()
    for odd in (None, 7, {"length": "x"}, {"length": -2}, {"lines": 1}):
        assert cloud.act(server, "os-getConsoleOutput", odd).status_code == 400
    cloud.shelve(server)
    assert cloud.act(server, "os-getConsoleOutput", {}).status_code == 409


# --- soft delete --------------------------------------------------------------------------------------


@pytest.fixture
def soft(make_cloud: MakeCloud) -> Cloud:
    """A cloud that keeps deleted servers for a while."""
    return make_cloud(times=Times(keep_deleted=1000.0))


def test_a_deleted_server_is_kept_hidden_and_can_be_restored(soft: Cloud) -> None:
    server = soft.boot()
    used = soft.box.used("n1") | soft.box.used("n2")
    assert soft.demo.delete(f"/v2.1/servers/{server}").status_code == 204
    assert task(soft, server) == "soft-deleting"
    soft.carry(server)
    shown = soft.show(server)
    assert (shown["status"], shown["OS-EXT-STS:vm_state"]) == ("SOFT_DELETED", "soft-delete")
    assert soft.box.used("n1") | soft.box.used("n2") == used
    assert _ids(soft.demo, "") == []
    assert _ids(soft.admin, "all_tenants=1&soft_deleted=true") == [server]
    assert _ids(soft.admin, "all_tenants=1&deleted=true") == [server]
    assert _ids(soft.demo, "status=SOFT_DELETED") == [server]
    soft.through(server, "restore")
    assert soft.show(server)["status"] == "ACTIVE"
    assert _ids(soft.demo, "") == [server]


def test_a_force_delete_of_a_soft_deleted_server_is_for_good(soft: Cloud) -> None:
    server = soft.boot()
    soft.demo.delete(f"/v2.1/servers/{server}")
    soft.carry(server)
    assert soft.demo.delete(f"/v2.1/servers/{server}").status_code == 204
    soft.carry(server)
    assert soft.show(server)["status"] == "SOFT_DELETED"
    assert soft.act(server, "forceDelete").status_code == 202
    soft.carry(server)
    assert soft.demo.get(f"/v2.1/servers/{server}").status_code == 404
    assert soft.box.used("n1") | soft.box.used("n2") == set()


def test_what_cannot_be_kept_is_deleted_for_good(soft: Cloud) -> None:
    """Never launched; offloaded; on a host that is down."""
    building = soft.ask()
    assert soft.demo.delete(f"/v2.1/servers/{building}").status_code == 204
    offloaded = soft.boot()
    soft.shelve(offloaded)
    assert soft.demo.delete(f"/v2.1/servers/{offloaded}").status_code == 204
    stranded = soft.boot()
    soft.box.die(soft.show(stranded)["OS-EXT-SRV-ATTR:host"])
    assert soft.demo.delete(f"/v2.1/servers/{stranded}").status_code == 204
    for server in (building, offloaded, stranded):
        assert soft.demo.get(f"/v2.1/servers/{server}").status_code == 404


# --- images and rebuild -------------------------------------------------------------------------------


def test_create_image_answers_with_an_image_that_is_there(any_cloud: Cloud) -> None:
    cloud = any_cloud
    server = cloud.boot()
    answer = cloud.act(server, "createImage", {"name": "shot", "metadata": {"purpose": "test"}})
    assert answer.status_code == 202
    image = answer.json()["image_id"]
    shown = cloud.demo.get(f"/image/v2/images/{image}").json()
    assert (shown["name"], shown["status"], shown["owner"]) == ("shot", "queued", "demo")
    assert shown["visibility"] == "private"
    assert (shown["purpose"], shown["instance_uuid"], shown["base_image_ref"]) == (
        "test",
        server,
        cloud.tiny,
    )
    work = cloud.cast(server)
    assert (work.snapshot, work.snapshot_name, work.snapshot_owner) == (image, "shot", "demo")
    assert cloud.show(server)["status"] == "ACTIVE"


def test_before_2_45_the_image_is_named_in_a_header(cloud: Cloud) -> None:
    client = cloud.client(DEMO, "2.44")
    answer = cloud.act(cloud.boot(), "createImage", {"name": "shot"}, client=client)
    assert (answer.status_code, answer.content) == (202, b"")
    (image,) = [image for image in cloud.images.list() if image.name == "shot"]
    assert answer.headers["Location"].endswith(f"/images/{image.id}")


def test_a_server_deleted_in_the_middle_leaves_no_unfinished_image(cloud: Cloud) -> None:
    """F092."""
    server = cloud.boot()
    image = cloud.act(server, "createImage", {"name": "shot"}).json()["image_id"]
    cloud.box.begin(cloud.cast(server), "snapshot")
    assert cloud.demo.delete(f"/v2.1/servers/{server}").status_code == 204
    cloud.box.sweeper.outbox()
    assert cloud.demo.get(f"/image/v2/images/{image}").status_code == 404


def test_an_image_that_is_complete_stays_when_its_server_is_deleted(cloud: Cloud) -> None:
    """F092: though the operation has not ended."""
    server = cloud.boot()
    image = cloud.act(server, "createImage", {"name": "shot"}).json()["image_id"]
    cloud.box.begin(cloud.cast(server), "snapshot")
    cloud.images.upload(image, [b"disk"])
    cloud.demo.delete(f"/v2.1/servers/{server}")
    cloud.box.sweeper.outbox()
    assert cloud.demo.get(f"/image/v2/images/{image}").json()["status"] == "active"


def test_a_rebuild_answers_with_the_server_as_it_will_be(any_cloud: Cloud) -> None:
    cloud = any_cloud
    server = cloud.boot()
    other = cloud.image("other")
    claims = cloud.box.claims(server)
    body = {
        "imageRef": other,
        "name": "new",
        "metadata": {"a": "b"},
        "description": "d",
        "adminPass": "secret",
    }
    answer = cloud.act(server, "rebuild", body)
    assert answer.status_code == 202, answer.text
    shown = answer.json()["server"]
    assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("REBUILD", "rebuilding")
    assert (shown["image"]["id"], shown["name"], shown["metadata"]) == (other, "new", {"a": "b"})
    assert (shown["adminPass"], shown["user_data"]) == ("secret", None)
    assert answer.headers["Location"] == f"http://cloud:8774/v2.1/servers/{server}"
    assert cloud.show(server)["image"]["id"] == cloud.tiny
    cloud.carry(server)
    shown = cloud.show(server)
    assert (shown["status"], shown["name"], shown["image"]["id"]) == ("ACTIVE", "new", other)
    assert (shown["metadata"], shown["description"]) == ({"a": "b"}, "d")
    assert cloud.box.claims(server) == claims


def test_a_rebuild_of_a_stopped_server_ends_stopped(cloud: Cloud) -> None:
    server = cloud.through(cloud.boot(), "os-stop")
    cloud.act(server, "rebuild", {"imageRef": cloud.tiny})
    assert cloud.show(server)["status"] == "REBUILD"
    cloud.carry(server)
    assert cloud.show(server)["status"] == "SHUTOFF"


def _useless_image(cloud: Cloud, loss: str) -> str:
    """An image that a server of flavor p2 cannot be made from."""
    if loss == "missing":
        return MISSING
    if loss == "queued":
        body = {"name": "q", "visibility": "public", "disk_format": "raw", "container_format": "bare"}
        image: str = cloud.admin.post("/image/v2/images", json=body).json()["id"]
        return image
    fields: dict[str, dict[str, Any]] = {"private": {"visibility": "private"}, "too large": {"min_disk": 50}}
    return cloud.image(loss, **fields.get(loss, {"hw_numa_nodes": "0"}))


@pytest.mark.parametrize("loss", ["missing", "queued", "private", "too large", "bad properties"])
def test_an_image_that_cannot_be_rebuilt_from_is_400_and_changes_nothing(cloud: Cloud, loss: str) -> None:
    """F033: a rejected rebuild changes no claim."""
    server = cloud.boot()
    before = cloud.everything()
    answer = cloud.act(server, "rebuild", {"imageRef": _useless_image(cloud, loss)})
    assert answer.status_code == 400, answer.text
    assert cloud.everything() == before


@pytest.mark.parametrize(
    ("version", "field", "value", "code"),
    [
        ("2.18", "description", "x", 400),
        ("2.19", "description", "x", 202),
        ("2.53", "key_name", None, 400),
        ("2.54", "key_name", None, 202),
        ("2.54", "key_name", "no-such-key", 400),
        ("2.56", "personality", [], 202),
        ("2.57", "personality", [], 400),
        ("2.57", "user_data", "aGVsbG8=", 202),
        ("2.57", "user_data", "?", 400),
        ("2.63", "trusted_image_certificates", None, 202),
        ("2.63", "trusted_image_certificates", ["a"], 400),
        ("2.89", "hostname", "h1", 400),
        ("2.90", "hostname", "h1", 202),
        ("2.90", "preserve_ephemeral", True, 400),
        ("2.90", "preserve_ephemeral", False, 202),
        ("2.90", "flavorRef", "p2", 400),
    ],
)
def test_what_rebuild_takes_depends_on_the_microversion(
    cloud: Cloud, version: str, field: str, value: Any, code: int
) -> None:
    body = {"imageRef": cloud.tiny, field: value}
    answer = cloud.act(cloud.boot(), "rebuild", body, client=cloud.client(DEMO, version))
    assert answer.status_code == code, answer.text


def test_before_2_75_a_rebuild_answers_with_fewer_fields(cloud: Cloud) -> None:
    client = cloud.client(DEMO, "2.1")
    shown = cloud.act(cloud.boot(), "rebuild", {"imageRef": cloud.tiny}, client=client).json()["server"]
    assert "OS-EXT-STS:task_state" not in shown
    assert "user_data" not in shown
    assert "key_name" not in shown
    assert shown["adminPass"]


# --- a compute service that is older ------------------------------------------------------------------


@pytest.mark.parametrize("action", ["os-stop", "rebuild", "createImage"])
def test_what_a_pinned_worker_cannot_do_is_409_at_once(cloud: Cloud, action: str) -> None:
    """F051: nothing is opened that nobody could do."""
    server = cloud.boot()
    before = cloud.everything()
    cloud.deps.compute._pin = "1.0"
    value = value_of(cloud, action)
    assert cloud.act(server, action, value).status_code == 409
    assert cloud.everything() == before


def test_every_state_has_a_test_here() -> None:
    assert {*EVERY, states.DELETED, states.RESIZED} == states.VM_STATES.keys()
