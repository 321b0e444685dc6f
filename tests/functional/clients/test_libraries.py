"""openstacksdk and python-novaclient, as programs use them: also what commands cannot ask without Keystone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openstack
import pytest
from keystoneauth1 import noauth, session
from novaclient import client as novaclient
from novaclient import exceptions as nova_exceptions
from openstack import exceptions as sdk_exceptions

from devstack.client import until
from tests.functional.harness import Cloud, check_books, only_all_in_one

SOON = 60.0
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDdowKIPC6IoIHnOuWPj5LWgZUSRO+qLrej0+Dlw5abS ann@here"


@pytest.fixture
def sdk(cloud: Cloud) -> Iterator[Any]:
    made = openstack.connect(
        load_yaml_config=False,
        load_envvars=False,
        auth_type="none",
        compute_endpoint_override=f"{cloud.url}/v2.1",
        image_endpoint_override=f"{cloud.url}/image",
        identity_endpoint_override=f"{cloud.url}/identity/v3",
    )
    yield made
    made.close()


@pytest.fixture
def nova(cloud: Cloud) -> Any:
    """As ``nova --os-compute-api-version 2.96``."""
    return novaclient.Client(
        "2.96",
        session=session.Session(auth=noauth.NoAuth(endpoint=f"{cloud.url}/v2.1")),
        endpoint_override=f"{cloud.url}/v2.1",
    )


# --- openstacksdk -----------------------------------------------------------------------------------


@only_all_in_one
def test_sdk_a_server_s_life(cloud: Cloud, sdk: Any) -> None:
    compute = sdk.compute
    flavor, image = compute.find_flavor("p2"), sdk.image.find_image("tiny")
    made = compute.create_server(name="sdk", flavor_id=flavor.id, image_id=image.id, networks="none")
    server = compute.wait_for_server(made, interval=0.2, wait=SOON)
    assert (server.status, server.vm_state, server.flavor.vcpus) == ("ACTIVE", "active", 2)
    assert compute.find_server("sdk").id == server.id
    assert [one.name for one in compute.servers(details=True, status="ACTIVE")] == ["sdk"]
    compute.set_server_metadata(server, colour="red")
    assert compute.get_server_metadata(server).metadata == {"colour": "red"}
    for act, status in (
        (compute.stop_server, "SHUTOFF"),
        (compute.start_server, "ACTIVE"),
        (compute.suspend_server, "SUSPENDED"),
        (compute.resume_server, "ACTIVE"),
        (compute.shelve_server, "SHELVED_OFFLOADED"),
        (compute.unshelve_server, "ACTIVE"),
    ):
        act(server)
        compute.wait_for_server(server, status=status, interval=0.1, wait=SOON)
    actions = [action.action for action in compute.server_actions(server)]
    assert actions[::-1][:3] == ["create", "stop", "start"]
    compute.resize_server(server, compute.find_flavor("p4").id)
    compute.wait_for_server(server, status="VERIFY_RESIZE", interval=0.1, wait=SOON)
    compute.confirm_server_resize(server)
    compute.wait_for_server(server, interval=0.1, wait=SOON)
    compute.delete_server(server)
    compute.wait_for_delete(server, interval=0.1, wait=SOON)
    check_books(cloud)


@only_all_in_one
def test_sdk_what_stands_around_servers(cloud: Cloud, sdk: Any) -> None:
    compute = sdk.compute
    hypervisors = list(compute.hypervisors(details=True))
    assert sorted(one.name for one in hypervisors) == ["host-1", "host-2", "host-3"]
    assert {one.state for one in compute.services() if one.binary == "nova-compute"} == {"up"}
    assert [zone.name for zone in compute.availability_zones()] == ["nova"]
    keypair = compute.create_keypair(name="sdk", public_key=KEY)
    assert compute.get_keypair("sdk").fingerprint == keypair.fingerprint
    compute.delete_keypair(keypair)
    group = compute.create_server_group(name="sdk", policy="anti-affinity", rules={"max_server_per_host": 1})
    assert compute.get_server_group(group).rules == {"max_server_per_host": 1}
    compute.delete_server_group(group)
    aggregate = compute.create_aggregate(name="sdk", availability_zone="z")
    aggregate = compute.add_host_to_aggregate(aggregate, "host-3")
    assert aggregate.hosts == ["host-3"]
    compute.remove_host_from_aggregate(aggregate, "host-3")
    compute.delete_aggregate(aggregate)


@only_all_in_one
def test_sdk_quotas_limits_and_usage(cloud: Cloud, sdk: Any) -> None:
    compute = sdk.compute
    before = compute.get_quota_set("sdk-project")
    changed = compute.update_quota_set("sdk-project", instances=7)
    assert (changed.instances, changed.cores) == (7, before.cores)
    assert compute.get_quota_set("sdk-project", usage=True).usage["instances"] == 0
    compute.revert_quota_set("sdk-project")
    assert compute.get_quota_set("sdk-project").instances == before.instances
    limits = compute.get_limits().absolute
    assert limits.instances >= 1
    assert limits.total_cores_used == 0
    assert list(compute.usages()) == []


@only_all_in_one
def test_sdk_errors_have_their_types(cloud: Cloud, sdk: Any) -> None:
    with pytest.raises(sdk_exceptions.NotFoundException):
        sdk.compute.get_server("11111111-1111-4111-8111-111111111111")
    with pytest.raises(sdk_exceptions.BadRequestException):
        sdk.compute.create_server(name="x", flavor_id="nope", image_id=cloud.image, networks="none")
    server = cloud.boot("errors", "p1")
    with pytest.raises(sdk_exceptions.ConflictException):
        sdk.compute.unshelve_server(server)


# --- python-novaclient ------------------------------------------------------------------------------


@only_all_in_one
def test_novaclient_a_server_s_life(cloud: Cloud, nova: Any) -> None:
    flavor = nova.flavors.find(name="p2")
    server = nova.servers.create("nova", cloud.image, flavor, nics="none", meta={"a": "b"})

    def shows(status: str) -> bool:
        return bool(nova.servers.get(server.id).status == status)

    def becomes(status: str) -> None:
        until(lambda: shows(status), lambda: f"not {status}: {nova.servers.get(server.id)}", SOON)

    becomes("ACTIVE")
    assert [one.name for one in nova.servers.list(search_opts={"all_tenants": 1})] == ["nova"]
    for act, status in (
        (nova.servers.pause, "PAUSED"),
        (nova.servers.unpause, "ACTIVE"),
        (nova.servers.stop, "SHUTOFF"),
        (nova.servers.start, "ACTIVE"),
        (nova.servers.shelve, "SHELVED_OFFLOADED"),
        (nova.servers.unshelve, "ACTIVE"),
    ):
        act(server.id)
        becomes(status)
    nova.servers.lock(server.id, reason="mine")
    assert nova.servers.get(server.id).locked_reason == "mine"
    nova.servers.unlock(server.id)
    nova.servers.set_tags(server.id, ["t1", "t2"])
    assert sorted(nova.servers.tag_list(server.id)) == ["t1", "t2"]
    assert nova.servers.topology(server.id)["nodes"]
    assert [action.action for action in nova.instance_action.list(server.id)][-1] == "create"
    nova.servers.delete(server.id)
    until(lambda: not nova.servers.list(search_opts={"all_tenants": 1}), lambda: "still there", SOON)
    check_books(cloud)


@only_all_in_one
def test_novaclient_what_stands_around_servers(cloud: Cloud, nova: Any) -> None:
    assert len(nova.hypervisors.list(detailed=True)) == 3
    assert {service.state for service in nova.services.list(binary="nova-compute")} == {"up"}
    assert nova.keypairs.create("nova", public_key=KEY).fingerprint
    nova.keypairs.delete("nova")
    group = nova.server_groups.create("nova", "soft-affinity")
    nova.server_groups.delete(group.id)
    aggregate = nova.aggregates.create("nova", "z")
    nova.aggregates.add_host(aggregate.id, "host-2")
    nova.aggregates.set_metadata(aggregate.id, {"k": "v"})
    assert nova.aggregates.get(aggregate.id).metadata["k"] == "v"
    nova.aggregates.remove_host(aggregate.id, "host-2")
    nova.aggregates.delete(aggregate.id)
    nova.quotas.update("nova-project", cores=9)
    assert nova.quotas.get("nova-project").cores == 9
    assert nova.quotas.get("nova-project", detail=True).cores["limit"] == 9
    nova.quotas.delete("nova-project")
    assert nova.limits.get().to_dict()["absolute"]["maxTotalCores"] >= 1
    assert {version.version for version in nova.versions.list()} == {"", "2.104"}


@only_all_in_one
def test_novaclient_errors_have_their_types(cloud: Cloud, nova: Any) -> None:
    with pytest.raises(nova_exceptions.NotFound):
        nova.servers.get("11111111-1111-4111-8111-111111111111")
    with pytest.raises(nova_exceptions.BadRequest):
        nova.servers.create("x", cloud.image, "nope", nics="none")
    server = cloud.boot("errors", "p1")
    with pytest.raises(nova_exceptions.Conflict):
        nova.servers.unshelve(server)
