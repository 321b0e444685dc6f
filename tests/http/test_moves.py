"""Actions that move servers: states, codes, and what is written."""

from __future__ import annotations

import msgspec
import pytest

from pinfold.model.quotas import DEFAULTS
from tests.conductor.box import two_cells
from tests.http.cloud import ADMIN, Cloud
from tests.http.conftest import MakeCloud

MANAGER = "meg:demo:manager,member"


def moved(cloud: Cloud) -> str:
    """A server in VERIFY_RESIZE, of flavor p4 now."""
    cloud.flavor("p4", 4)
    server = cloud.boot()
    assert cloud.act(server, "resize", {"flavorRef": "p4"}).status_code == 202
    carry(cloud, server)
    return server


def carry(cloud: Cloud, server: str) -> None:
    """What conductor and workers do with a move."""
    box = cloud.box
    box.runner.run(cloud.open_operation(server))
    box.claim(box.last)
    assert box.finish(box.last).done
    assert box.last.leg == "send"
    for step in ("power_off", "migrate_disk"):
        assert box.begin(box.last, step).accepted
    assert box.finish(box.last).done
    assert box.last.leg == "receive"
    assert box.begin(box.last, "finish_migration").accepted
    assert box.finish(box.last).done


def test_a_resize_is_accepted_and_shows_its_states(cloud: Cloud) -> None:
    cloud.flavor("p4", 4)
    server = cloud.boot()
    home = cloud.show(server)["OS-EXT-SRV-ATTR:host"]
    assert cloud.act(server, "resize", {"flavorRef": "p4"}).status_code == 202
    shown = cloud.show(server)
    assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("RESIZE", "resize_prep")
    assert shown["progress"] == 0
    carry(cloud, server)
    shown = cloud.show(server)
    assert (shown["status"], shown["OS-EXT-STS:vm_state"]) == ("VERIFY_RESIZE", "resized")
    assert shown["OS-EXT-SRV-ATTR:host"] != home
    assert shown["flavor"]["original_name"] == "p4"


def test_confirm_answers_204_and_a_second_one_400(cloud: Cloud) -> None:
    server = moved(cloud)
    assert cloud.act(server, "confirmResize").status_code == 204
    assert cloud.show(server)["status"] == "VERIFY_RESIZE"
    assert cloud.act(server, "confirmResize").status_code == 400
    _cast_again(cloud, server)
    assert cloud.box.begin(cloud.box.last, "confirm_migration").accepted
    assert cloud.box.finish(cloud.box.last).done
    assert cloud.show(server)["status"] == "ACTIVE"
    assert cloud.act(server, "confirmResize").status_code == 409


def _cast_again(cloud: Cloud, server: str) -> None:
    """The sweeper's cast, since nobody has heard the API's."""
    cloud.box.age(server)
    cloud.box.sweeper.operations()


def test_revert_answers_202_and_brings_flavor_and_host_back(cloud: Cloud) -> None:
    server = moved(cloud)
    assert cloud.act(server, "revertResize").status_code == 202
    shown = cloud.show(server)
    assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("REVERT_RESIZE", "resize_reverting")
    _cast_again(cloud, server)
    assert cloud.box.begin(cloud.box.last, "destroy").accepted
    assert cloud.box.finish(cloud.box.last).done
    assert cloud.box.begin(cloud.box.last, "revert_migration").accepted
    assert cloud.box.finish(cloud.box.last).done
    shown = cloud.show(server)
    assert (shown["status"], shown["flavor"]["original_name"]) == ("ACTIVE", "p2")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"flavorRef": "p2"}, 400),
        ({"flavorRef": "nowhere"}, 400),
        ({}, 400),
        ({"flavorRef": "small-disk"}, 400),
        ({"flavorRef": "p4", "more": 1}, 400),
        ({"flavorRef": "p4", "OS-DCF:diskConfig": "AUTO"}, 202),
    ],
)
def test_what_a_resize_asks_for_is_checked(cloud: Cloud, body: dict[str, object], status: int) -> None:
    cloud.flavor("p4", 4, disk=2)
    cloud.flavor("big", 1, disk=2)
    cloud.flavor("small-disk", 1, disk=1)
    server = cloud.boot(flavorRef="big" if body.get("flavorRef") == "small-disk" else "p2")
    assert cloud.act(server, "resize", body).status_code == status


def test_moves_are_listed_with_how_far_they_are(cloud: Cloud) -> None:
    server = moved(cloud)
    home = next(node for role, node in cloud.box.claims(server) if role == "outgoing")
    url = f"/v2.1/os-migrations?instance_uuid={server}"
    (move,) = cloud.admin.get(url).json()["migrations"]
    assert (move["status"], move["migration_type"]) == ("finished", "resize")
    assert (move["source_compute"], move["dest_compute"]) == (home, "n2" if home == "n1" else "n1")
    assert cloud.act(server, "confirmResize").status_code == 204
    assert cloud.admin.get(url).json()["migrations"][0]["status"] == "confirming"
    _cast_again(cloud, server)
    assert cloud.box.begin(cloud.box.last, "confirm_migration").accepted
    assert cloud.box.finish(cloud.box.last).done
    assert cloud.admin.get(url).json()["migrations"][0]["status"] == "confirmed"
    assert cloud.admin.get(url + "&status=error").json()["migrations"] == []


def test_a_move_is_listed_with_the_numbers_of_its_flavors_and_the_address_of_its_target(cloud: Cloud) -> None:
    for host in ("n1", "n2"):
        cloud.box.register(host, msgspec.structs.replace(two_cells(host), address=f"{host}.example"))
    server = moved(cloud)
    url = f"/v2.1/os-migrations?instance_uuid={server}"
    (resize,) = cloud.admin.get(url).json()["migrations"]
    old, new = resize["old_instance_type_id"], resize["new_instance_type_id"]
    assert isinstance(old, int)
    assert isinstance(new, int)
    assert old != new
    assert resize["dest_host"] == f"{resize['dest_compute']}.example"
    other = cloud.boot()
    assert cloud.act(other, "migrate", None, cloud.admin).status_code == 202
    (move,) = cloud.admin.get(f"/v2.1/os-migrations?instance_uuid={other}").json()["migrations"]
    assert (move["old_instance_type_id"], move["new_instance_type_id"]) == (old, old)
    assert (move["dest_compute"], move["dest_host"]) == (None, None)


def test_a_resize_beyond_the_quota_is_refused(make_cloud: MakeCloud) -> None:
    cloud = make_cloud(quotas=DEFAULTS)
    cloud.flavor("p16", 19)
    server = cloud.boot()
    cloud.boot()
    answer = cloud.act(server, "resize", {"flavorRef": "p16"})
    assert answer.status_code == 403, answer.text


def test_a_migration_is_for_managers_and_to_a_host_of_choice_for_admins(cloud: Cloud) -> None:
    server = cloud.boot()
    home = cloud.show(server)["OS-EXT-SRV-ATTR:host"]
    other = "n2" if home == "n1" else "n1"
    assert cloud.act(server, "migrate").status_code == 403
    assert cloud.act(server, "migrate", {"host": other}, cloud.client(MANAGER)).status_code == 403
    assert cloud.act(server, "migrate", {"host": home}, cloud.admin).status_code == 400
    assert cloud.act(server, "migrate", {"host": "nowhere"}, cloud.admin).status_code == 400
    assert cloud.act(server, "migrate", {"host": other}, cloud.admin).status_code == 202
    assert cloud.act(server, "migrate", None, cloud.client(MANAGER)).status_code == 409


def test_the_host_of_a_migration_is_not_looked_at_before_2_56(cloud: Cloud) -> None:
    server = cloud.boot()
    assert cloud.act(server, "migrate", {"host": "nowhere"}, cloud.client(ADMIN, "2.55")).status_code == 202


def test_moves_want_the_hosts_they_need_to_be_up(cloud: Cloud) -> None:
    server = moved(cloud)
    for host in ("n1", "n2"):
        cloud.box.die(host)
    for action in ("confirmResize", "revertResize"):
        answer = cloud.act(server, action)
        assert (answer.status_code, answer.headers["X-Pinfold-Error"]) == (409, "host-down")


def test_moves_want_the_right_state(cloud: Cloud) -> None:
    server = cloud.ask()
    for action in ("resize", "migrate", "confirmResize", "revertResize"):
        value = {"flavorRef": "p2"} if action == "resize" else None
        assert cloud.act(server, action, value, cloud.admin).status_code == 409


def test_an_evacuation_is_for_admins_and_from_a_host_that_is_down(cloud: Cloud) -> None:
    server = cloud.boot()
    home = cloud.show(server)["OS-EXT-SRV-ATTR:host"]
    other = "n2" if home == "n1" else "n1"
    assert cloud.act(server, "evacuate", {}).status_code == 403
    assert cloud.act(server, "evacuate", {}, cloud.admin).status_code == 400
    cloud.box.die(home)
    assert cloud.act(server, "evacuate", {"host": home}, cloud.admin).status_code == 400
    assert cloud.act(server, "evacuate", {"host": "nowhere"}, cloud.admin).status_code == 404
    assert cloud.act(server, "evacuate", {"force": True}, cloud.admin).status_code == 400
    answer = cloud.act(server, "evacuate", {"host": other}, cloud.admin)
    assert (answer.status_code, answer.content) == (200, b"")
    shown = cloud.show(server)
    assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("REBUILD", "rebuilding")
    assert shown["OS-EXT-SRV-ATTR:host"] == home


@pytest.mark.parametrize(
    ("action", "version", "body"),
    [
        ("evacuate", "2.67", {"force": True}),
        ("os-migrateLive", "2.30", {"host": None, "block_migration": "auto", "force": "true"}),
    ],
)
def test_nothing_is_forced_without_a_host(
    cloud: Cloud, action: str, version: str, body: dict[str, object]
) -> None:
    answer = cloud.act(cloud.boot(), action, body, cloud.client(ADMIN, version))
    assert answer.status_code == 400
    assert "non-provided destination" in answer.json()["badRequest"]["message"]


@pytest.mark.parametrize("shared", [True, False, "yes", "off"])
def test_before_2_14_the_request_says_whether_the_disk_is_on_shared_storage(
    cloud: Cloud, shared: bool | str
) -> None:
    """There is no password for a disk that is kept."""
    server, old = cloud.boot(), cloud.client(ADMIN, "2.13")
    cloud.box.die(cloud.show(server)["OS-EXT-SRV-ATTR:host"])
    assert cloud.act(server, "evacuate", {}, old).status_code == 400
    kept = shared in (True, "yes")
    body = {"onSharedStorage": shared}
    if kept:
        assert cloud.act(server, "evacuate", body | {"adminPass": "secret"}, old).status_code == 400
    answer = cloud.act(server, "evacuate", body, old)
    assert answer.status_code == 200
    assert (answer.json()["adminPass"] is None) == kept
    cloud.box.runner.run(cloud.open_operation(server))
    assert cloud.box.last.shared_storage == kept
    assert cloud.act(server, "evacuate", body, cloud.admin).status_code == 400


def test_an_evacuation_does_not_heed_a_lock_and_takes_an_operation_over(cloud: Cloud) -> None:
    server = cloud.boot()
    assert cloud.act(server, "shelve").status_code == 202
    cloud.box.die(cloud.show(server)["OS-EXT-SRV-ATTR:host"])
    assert cloud.act(server, "evacuate", {}, cloud.admin).status_code == 200
    cloud.box.runner.run(cloud.open_operation(server))
    assert cloud.box.last.kind == "evacuate"


def test_before_2_14_an_evacuation_answers_a_password(cloud: Cloud) -> None:
    server = cloud.boot()
    cloud.box.die(cloud.show(server)["OS-EXT-SRV-ATTR:host"])
    old = cloud.client(ADMIN, "2.13")
    assert cloud.act(server, "evacuate", {}, old).status_code == 400
    answer = cloud.act(server, "evacuate", {"onSharedStorage": False}, old)
    assert answer.status_code == 200
    assert answer.json()["adminPass"]


@pytest.mark.parametrize(("version", "runs"), [("2.94", True), ("2.95", False)])
def test_from_2_95_on_an_evacuated_server_is_shut_down(cloud: Cloud, version: str, runs: bool) -> None:
    server = cloud.boot()
    cloud.box.die(cloud.show(server)["OS-EXT-SRV-ATTR:host"])
    assert cloud.act(server, "evacuate", {}, cloud.client(ADMIN, version)).status_code == 200
    cloud.box.runner.run(cloud.open_operation(server))
    assert cloud.box.last.runs is runs
    cloud.box.claim(cloud.box.last)
    assert cloud.box.finish(cloud.box.last).done
    assert cloud.show(server)["status"] == ("ACTIVE" if runs else "SHUTOFF")


def test_a_live_migration_is_shown_aborted_and_forced_while_it_is_under_way(cloud: Cloud) -> None:
    server = cloud.boot()
    home = cloud.show(server)["OS-EXT-SRV-ATTR:host"]
    body = {"host": None, "block_migration": "auto"}
    assert cloud.act(server, "os-migrateLive", body).status_code == 403
    assert cloud.act(server, "os-migrateLive", body | {"host": home}, cloud.admin).status_code == 400
    assert cloud.act(server, "os-migrateLive", {"host": None}, cloud.admin).status_code == 400
    assert cloud.act(server, "os-migrateLive", body, cloud.admin).status_code == 202
    shown = cloud.show(server)
    assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("MIGRATING", "migrating")
    url = f"/v2.1/servers/{server}/migrations"
    (move,) = cloud.admin.get(url).json()["migrations"]
    assert move["status"] == "pre-migrating"
    one = f"{url}/{move['id']}"
    assert cloud.admin.get(one).json()["migration"]["uuid"] == move["uuid"]
    assert cloud.admin.post(f"{one}/action", json={"force_complete": None}).status_code == 409
    assert cloud.admin.delete(f"{url}/4711").status_code == 404
    assert cloud.admin.delete(one).status_code == 202
    box = cloud.box
    box.runner.run(cloud.open_operation(server))
    box.claim(box.last)
    assert box.finish(box.last).done
    assert box.last.leg == "withdraw"
    assert box.begin(box.last, "withdraw").accepted
    assert box.finish(box.last).done
    shown = cloud.show(server)
    assert (shown["status"], shown["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", home)
    assert cloud.admin.get(one).status_code == 404
    assert cloud.admin.delete(one).status_code == 409
    assert cloud.admin.post(f"{one}/action", json={"force_complete": None}).status_code == 409
