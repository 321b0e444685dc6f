"""What a user does with a server where it is: power, images, rebuild; and what fails, hangs or dies meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from devstack.client import ApiError
from tests.functional.harness import Cloud, check_books, only_all_in_one
from tests.functional.test_cli import openstack, shell

# action, its value, where it leads, the power state then
LIFE = (
    ("os-stop", None, "SHUTOFF", 4),
    ("os-start", None, "ACTIVE", 1),
    ("pause", None, "PAUSED", 3),
    ("unpause", None, "ACTIVE", 1),
    ("suspend", None, "SUSPENDED", 7),
    ("resume", None, "ACTIVE", 1),
    ("reboot", {"type": "SOFT"}, "ACTIVE", 1),
    ("pause", None, "PAUSED", 3),
    ("reboot", {"type": "HARD"}, "ACTIVE", 1),
)
# driver call: the action that makes it, and where it must start
CALLS = {
    "power_off": ("os-stop", None, ()),
    "power_on": ("os-start", None, ("os-stop",)),
    "reboot": ("reboot", {"type": "SOFT"}, ()),
    "pause": ("pause", None, ()),
    "unpause": ("unpause", None, ("pause",)),
    "suspend": ("suspend", None, ()),
    "resume": ("resume", None, ("suspend",)),
    "snapshot": ("createImage", {"name": "shot"}, ()),
}


@contextmanager
def images_removed(cloud: Cloud) -> Iterator[None]:
    """Images that users have made are theirs: they go with the test."""
    try:
        yield
    finally:
        for image in cloud.shelved_images():
            cloud.client.request("DELETE", f"/image/v2/images/{image['id']}")


def through(cloud: Cloud, server: str, *actions: str) -> None:
    for action in actions:
        cloud.client.act(server, action)
        cloud.client.settled(server)


def test_a_server_s_power_is_changed_on_one_and_the_same_claim(cloud: Cloud) -> None:
    server = cloud.boot("server")
    held = cloud.pins(server)
    for action, value, status, power in LIFE:
        cloud.client.act(server, action, value)
        shown = cloud.client.wait(server, status)
        assert shown["OS-EXT-STS:power_state"] == power, action
        assert "fault" not in shown
        assert cloud.pins(server) == held
    check_books(cloud)


def test_a_server_answers_on_the_host_that_it_was_unshelved_to(cloud: Cloud) -> None:
    """F062: every later action reaches the node where the guest is."""
    server = cloud.boot("server")
    cloud.offload(server)
    cloud.unshelve(server, "host-2")
    for action, status in (("os-stop", "SHUTOFF"), ("os-start", "ACTIVE")):
        cloud.client.act(server, action)
        assert cloud.client.wait(server, status)["OS-EXT-SRV-ATTR:host"] == "host-2"
        assert cloud.where(server) == ["host-2"]
    check_books(cloud)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_leaves_the_server_as_it_was_and_it_can_be_deleted(
    cloud: Cloud, call: str, when: str
) -> None:
    """F077."""
    action, value, before = CALLS[call]
    server = cloud.boot("server", "p2")
    with images_removed(cloud):
        through(cloud, server, *before)
        status, held = cloud.client.server(server)["status"], cloud.pins(server)
        with cloud.fault(call, when=when, times=1):
            cloud.client.act(server, action, value)
            shown = cloud.client.settled(server)
        assert (shown["status"], cloud.pins(server)) == (status, held)
        assert "fault" in shown
        cloud.client.act(server, action, value)
        assert "fault" not in cloud.client.settled(server)
        check_books(cloud)
        cloud.delete(server)
        cloud.await_unused()


def test_ten_rebuilds_of_which_some_are_refused_or_fail_change_no_claim(cloud: Cloud) -> None:
    """F033: and a p4 and a p2 still fit."""
    server = cloud.boot("server", "p2")
    with images_removed(cloud):
        cloud.client.act(server, "createImage", {"name": "other"})
        cloud.client.settled(server)
        other = next(image["id"] for image in cloud.shelved_images())
        held = cloud.pins(server)
        for number in range(10):
            image = (cloud.image, other)[number % 2]
            if number % 4 == 1:
                wrong = cloud.client.action(server, "rebuild", {"imageRef": server})
                assert wrong.status_code == 400
            with cloud.fault("rebuild", when="before", times=int(number % 4 == 2)):
                cloud.client.act(server, "rebuild", {"imageRef": image})
                cloud.client.settled(server)
            assert cloud.pins(server) == held
        assert cloud.client.wait(server, "ACTIVE")["image"]["id"] == other
        cloud.boot("p4", "p4")
        cloud.boot("p2", "p2")
        check_books(cloud)


def test_a_rebuild_into_two_cells_takes_the_cpus_it_needs_and_gives_back_the_others(cloud: Cloud) -> None:
    server = cloud.boot("server", "p4")
    old = cloud.pins(server)["host-1"]
    with images_removed(cloud):
        made = cloud.client.call(
            "POST",
            "/image/v2/images",
            {
                "name": "two-cells",
                "disk_format": "raw",
                "container_format": "bare",
                "visibility": "public",
                "hw_numa_nodes": "2",
            },
        )
        put = cloud.client.http.put(
            f"{cloud.url}/image/v2/images/{made['id']}/file",
            content=b"a system" * 1000,
            headers={"Content-Type": "application/octet-stream"},
        )
        assert put.status_code == 204, put.text
        cloud.client.act(server, "rebuild", {"imageRef": made["id"]})
        cloud.client.wait(server, "ACTIVE")
        (claim,) = [claim for claim in cloud.client.node("host-1")["claims"] if claim["server"] == server]
        assert {cell["id"] if "id" in cell else cell["cell"] for cell in claim["cells"]} == {0, 1}
        assert len(cloud.pins(server)["host-1"]) == len(old)
        check_books(cloud)
        cloud.audit()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_that_dies_in_a_rebuild_ends_it_when_it_is_back(cloud: Cloud, when: str) -> None:
    server = cloud.boot("server", "p4")
    held = cloud.pins(server)
    with cloud.fault("rebuild", "hang", when=when):
        cloud.client.act(server, "rebuild", {"imageRef": cloud.image})
        cloud.await_task(server, "rebuild_spawning")
        old = cloud.kill("compute-host-1")
    cloud.await_replaced("compute-host-1", old)
    cloud.client.wait(server, "ACTIVE")
    assert cloud.pins(server) == held
    check_books(cloud)


def test_an_image_of_a_server_that_is_deleted_meanwhile_goes(cloud: Cloud) -> None:
    """F092: the upload is held, the server deleted, the upload let go."""
    server = cloud.boot("server", "p2")
    with cloud.fault("snapshot", "hang"):
        image = cloud.client.call("POST", f"/v2.1/servers/{server}/action", {"createImage": {"name": "shot"}})
        cloud.await_task(server, "image_uploading")
        cloud.client.delete(server)
    cloud.client.wait_gone(server)
    cloud.await_no_images()
    assert image is None or image["image_id"]
    check_books(cloud)


def test_a_complete_image_stays_when_its_server_is_deleted(cloud: Cloud) -> None:
    """F092."""
    server = cloud.boot("server", "p2")
    with images_removed(cloud):
        cloud.client.act(server, "createImage", {"name": "shot"})
        cloud.client.settled(server)
        cloud.delete(server)
        time.sleep(2.0)
        assert [image["status"] for image in cloud.shelved_images()] == ["active"]


def test_two_hundred_deletes_of_one_server_keep_nobody_else_from_working(cloud: Cloud) -> None:
    """F089: all are 204, and another server on that host is served meanwhile."""
    hanging, other = cloud.boot("hanging", "p2"), cloud.boot("other", "p2")
    with cloud.fault("destroy", "hang", server=hanging):
        path = f"/v2.1/servers/{hanging}"
        with ThreadPoolExecutor(8) as pool:
            codes = set(pool.map(lambda _: cloud.client.request("DELETE", path).status_code, range(200)))
        assert codes == {204}
        assert [row["kind"] for row in cloud.client.operations(hanging)].count("delete") == 1
        cloud.client.act(other, "os-stop")
        cloud.client.wait(other, "SHUTOFF")
    cloud.client.wait_gone(hanging)
    check_books(cloud)


def test_a_delete_whose_first_try_fails_is_done_without_being_asked_for_again(cloud: Cloud) -> None:
    """F090: and a repeated one is 204."""
    server = cloud.boot("server", "p2")
    with cloud.fault("destroy", times=2):
        cloud.client.delete(server)
        assert cloud.client.request("DELETE", f"/v2.1/servers/{server}").status_code in (204, 404)
        cloud.client.wait_gone(server)
    cloud.await_unused()
    check_books(cloud)


def test_a_hard_reboot_takes_over_what_hangs(cloud: Cloud) -> None:
    server = cloud.boot("server", "p2")
    with cloud.fault("pause", "hang"):
        cloud.client.act(server, "pause")
        cloud.await_task(server, "pausing")
        assert cloud.client.action(server, "os-stop").status_code == 409
        cloud.client.act(server, "reboot", {"type": "HARD"})
    assert cloud.client.wait(server, "ACTIVE")["OS-EXT-STS:power_state"] == 1
    check_books(cloud)


def test_a_reset_ends_what_hangs_and_the_server_goes_on(cloud: Cloud) -> None:
    server = cloud.boot("server", "p2")
    held = cloud.pins(server)
    with cloud.fault("suspend", "hang", when="after"):
        cloud.client.act(server, "suspend")
        cloud.await_task(server, "suspending")
        cloud.client.act(server, "os-resetState", {"state": "error"})
        assert cloud.client.server(server)["status"] == "ERROR"
        cloud.client.act(server, "os-resetState", {"state": "active"})
        assert cloud.client.server(server)["status"] == "ACTIVE"
    cloud.client.act(server, "reboot", {"type": "HARD"})
    cloud.client.wait(server, "ACTIVE")
    assert cloud.pins(server) == held
    check_books(cloud)


def test_the_console_of_a_guest_is_read_and_one_that_hangs_is_504(cloud: Cloud) -> None:
    server = cloud.boot("server", "p2")
    told = cloud.client.call("POST", f"/v2.1/servers/{server}/action", {"os-getConsoleOutput": {"length": 1}})
    assert "boot" in told["output"]
    with cloud.fault("console_log", "hang"):
        answer = cloud.client.action(server, "os-getConsoleOutput", {})
        assert answer.status_code == 504
    with cloud.fault("console_log"):
        with pytest.raises(ApiError):
            cloud.client.act(server, "os-getConsoleOutput", {})
    check_books(cloud)


@only_all_in_one
def test_the_same_by_the_command_line(cloud: Cloud) -> None:
    with images_removed(cloud):
        made = openstack(cloud, "server create --flavor p2 --image tiny --nic none --wait cli")
        lines = (
            "server stop cli",
            "server start cli",
            "server pause cli",
            "server unpause cli",
            "server suspend cli",
            "server resume cli",
            "server lock --reason why cli",
            "server unlock cli",
            "server set --tag t9 --property a=b cli",
            "server unset --tag t9 --property a cli",
            "server set --state error --auto-approve cli",
            "server set --state active --auto-approve cli",
        )
        for line in lines:
            shell(cloud, f"openstack {line}")
            cloud.client.settled(made["id"])
        shell(cloud, "openstack server reboot --wait cli")
        shell(cloud, "openstack server reboot --hard --wait cli")
        assert openstack(cloud, "server image create --name shot --wait cli")["status"] == "active"
        assert shell(cloud, "openstack server rebuild --image shot --wait cli").startswith("Complete")
        assert openstack(cloud, "server show cli")["status"] == "ACTIVE"
        assert "boot" in shell(cloud, "openstack console log show --lines 5 cli")
        actions = {row["Action"] for row in openstack(cloud, "server event list cli")}
        assert {"stop", "start", "pause", "reboot", "lock", "rebuild", "createImage", "resetState"} <= actions
        check_books(cloud)
