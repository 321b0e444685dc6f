"""The real ``openstack`` command, as stack.sh's last lines say to use it."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from devstack.__main__ import TRY
from tests.functional.harness import Cloud, check_books, only_all_in_one


def shell(cloud: Cloud, command: str) -> str:
    """Run a line in a new shell; its output."""
    line = f". {cloud.layout.openrc} && {command}"
    done = subprocess.run(["bash", "-c", line], cwd="/", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def openstack(cloud: Cloud, command: str) -> Any:
    return json.loads(shell(cloud, f"openstack {command} -f json"))


def test_the_commands_that_stack_prints_work_as_they_stand(cloud: Cloud) -> None:
    for command in TRY:
        shell(cloud, f"openstack {command}")
        check_books(cloud)
    (server,) = cloud.client.servers()
    assert (server["name"], server["status"]) == ("mine", "ACTIVE")


@only_all_in_one
def test_a_server_s_life_by_the_command_line(cloud: Cloud) -> None:
    made = openstack(cloud, "server create --flavor p4 --image tiny --nic none --wait cli")
    assert made["status"] == "ACTIVE"
    assert [(server["Name"], server["Status"]) for server in openstack(cloud, "server list")] == [
        ("cli", "ACTIVE")
    ]
    shell(cloud, "openstack server shelve --offload --wait cli")
    shown = openstack(cloud, "server show cli")
    assert shown["status"] == "SHELVED_OFFLOADED"
    assert cloud.pins(made["id"]) == {}
    shell(cloud, "openstack server unshelve --wait cli")
    assert openstack(cloud, "server show cli")["status"] == "ACTIVE"
    check_books(cloud)
    shell(cloud, "openstack server delete --wait cli")
    assert openstack(cloud, "server list") == []
    check_books(cloud)


def test_flavors_and_images_are_listed(cloud: Cloud) -> None:
    assert {flavor["Name"] for flavor in openstack(cloud, "flavor list")} == {
        "p1",
        "p2",
        "p4",
        "p8",
        "s1",
        "s2",
    }
    assert [(image["Name"], image["Status"]) for image in openstack(cloud, "image list")] == [
        ("tiny", "active")
    ]


@only_all_in_one
def test_an_ordinary_project_sees_its_own_servers_only(cloud: Cloud) -> None:
    cloud.boot("of-admin", "p1")
    made = openstack(
        cloud, "--os-cloud pinfold-demo server create --flavor p1 --image tiny --nic none --wait own"
    )
    assert made["status"] == "ACTIVE"
    listed = openstack(cloud, "--os-cloud pinfold-demo server list")
    assert [server["Name"] for server in listed] == ["own"]
    shell(cloud, "openstack --os-cloud pinfold-demo server delete --wait own")
