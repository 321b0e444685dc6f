"""Quotas, limits and usage over HTTP."""

from __future__ import annotations

import random
from typing import Any

import pytest
import sqlalchemy as sa

from pinfold.db.models import Instance
from pinfold.model.quotas import DEFAULTS
from pinfold.model.work import Times
from tests.http.cloud import ADMIN, Cloud
from tests.http.conftest import MakeCloud

URL = "/v2.1/os-quota-sets"
CLASSES = "/v2.1/os-quota-class-sets"
USAGE = "/v2.1/os-simple-tenant-usage"
OLD = {"fixed_ips", "floating_ips", "security_groups", "security_group_rules"}
FILES = {"injected_files", "injected_file_content_bytes", "injected_file_path_bytes"}


def limit(cloud: Cloud, project: str = "demo", user: str | None = None, **limits: Any) -> Any:
    query = f"?user_id={user}" if user else ""
    return cloud.admin.put(f"{URL}/{project}{query}", json={"quota_set": limits})


def used(cloud: Cloud) -> dict[str, int]:
    absolute = cloud.demo.get("/v2.1/limits").json()["limits"]["absolute"]
    return {
        name: absolute[f"total{title}Used"]
        for name, title in (("instances", "Instances"), ("cores", "Cores"), ("ram", "RAM"))
    }


def live(cloud: Cloud) -> int:
    query = (
        sa.select(sa.func.count())
        .select_from(Instance)
        .where(Instance.deleted_at.is_(None), Instance.project_id == "demo")
    )
    return cloud.book.read(lambda session: session.scalar(query)) or 0


def post(cloud: Cloud, client: Any = None, **fields: Any) -> int:
    code: int = (client or cloud.demo).post("/v2.1/servers", json=cloud.body(**fields)).status_code
    return code


# --- what is enforced -------------------------------------------------------------------------------


def test_f097_parallel_posts_against_room_for_k_leave_exactly_k(any_cloud: Cloud) -> None:
    cloud = any_cloud
    limit(cloud, instances=5)
    codes: list[int] = []
    tasks = [cloud.runtime.spawn(lambda: codes.append(post(cloud)), name=str(n)) for n in range(20)]
    assert all(task.join(120) for task in tasks)
    assert sorted(codes) == [202] * 5 + [403] * 15
    assert live(cloud) == 5


def test_f097_a_request_for_k_passes_if_there_is_room_for_k_and_else_makes_nothing(any_cloud: Cloud) -> None:
    cloud = any_cloud
    limit(cloud, instances=5)
    assert post(cloud, min_count=3, max_count=3) == 202
    before = cloud.everything()
    answer = cloud.demo.post("/v2.1/servers", json=cloud.body(min_count=3, max_count=3))
    assert answer.status_code == 403
    assert answer.json()["forbidden"]["message"] == (
        "Quota exceeded for instances of the project: Requested 3, but already used 3 of 5 instances"
    )
    assert cloud.everything() == before
    assert post(cloud, min_count=1, max_count=9) == 202
    assert live(cloud) == 5


def test_f097_users_limits_are_compared_with_their_own_servers(cloud: Cloud) -> None:
    limit(cloud, instances=10)
    for user in ("ann", "ben"):
        assert limit(cloud, user=user, instances=1).status_code == 200
    ben = cloud.client("ben:demo:member")
    assert (post(cloud), post(cloud, ben)) == (202, 202)
    answer = cloud.demo.post("/v2.1/servers", json=cloud.body())
    assert answer.status_code == 403
    assert "instances of the user" in answer.text
    assert post(cloud, cloud.client("cat:demo:member")) == 202


@pytest.mark.parametrize(("name", "amount"), [("cores", 3), ("ram", 1000)])
def test_cores_and_memory_are_limited_too(cloud: Cloud, name: str, amount: int) -> None:
    cloud.admin.put(f"{URL}/demo", json={"quota_set": {name: amount}})
    assert (post(cloud), post(cloud)) == (202, 403)


def test_metadata_is_limited_per_server(any_cloud: Cloud) -> None:
    cloud = any_cloud
    limit(cloud, metadata_items=2)
    before = cloud.everything()
    assert post(cloud, metadata={"a": "1", "b": "2", "c": "3"}) == 403
    assert cloud.everything()["instances"] == before["instances"]
    server = cloud.boot(metadata={"a": "1"})
    url = f"/v2.1/servers/{server}/metadata"
    assert cloud.demo.post(url, json={"metadata": {"b": "2"}}).status_code == 200
    assert cloud.demo.post(url, json={"metadata": {"c": "3"}}).status_code == 403
    limit(cloud, metadata_items=-1)
    many = {str(number): "x" for number in range(300)}
    assert cloud.demo.post(url, json={"metadata": many}).status_code == 200


def test_f096_failed_and_deleted_servers_give_back_what_they_used(any_cloud: Cloud) -> None:
    cloud = any_cloud
    limit(cloud, instances=2)
    cloud.flavor("huge", 64)
    for _ in range(10):
        server = cloud.ask(flavorRef="huge")
        cloud.box.runner.run(cloud.open_operation(server))
        assert cloud.show(server)["status"] == "ERROR"
        assert used(cloud)["instances"] == 1
        cloud.demo.delete(f"/v2.1/servers/{server}")
    assert used(cloud) == {"instances": 0, "cores": 0, "ram": 0}
    assert post(cloud) == 202


def test_f096_after_each_of_many_actions_what_is_used_is_what_is_live(cloud: Cloud) -> None:
    limit(cloud, instances=6, cores=9)
    rng = random.Random(3)
    servers: list[str] = []
    for _ in range(60):
        action = rng.choice(["boot", "boot", "fail", "delete", "shelve", "double"])
        if action in ("boot", "fail", "double"):
            count = 2 if action == "double" else 1
            answer = cloud.demo.post("/v2.1/servers", json=cloud.body(min_count=count, max_count=count))
            if answer.status_code == 202:
                servers.append(answer.json()["server"]["id"])
                if action == "boot":
                    cloud.build(servers[-1])
        elif servers:
            server = servers.pop(rng.randrange(len(servers)))
            if action == "shelve":
                servers.append(server)
                cloud.act(server, "shelve")
            else:
                cloud.demo.delete(f"/v2.1/servers/{server}")
        counted = used(cloud)
        rows = cloud.demo.get("/v2.1/servers").json()["servers"]
        assert counted == {"instances": len(rows), "cores": 2 * len(rows), "ram": 512 * len(rows)}
        assert counted["cores"] <= 9


def test_offloaded_servers_count_and_come_back_only_within_the_limits(any_cloud: Cloud) -> None:
    cloud = any_cloud
    servers = [cloud.boot() for _ in range(2)]
    cloud.shelve(servers[0])
    assert used(cloud)["instances"] == 2
    limit(cloud, instances=1, force=True)
    before = cloud.everything()
    answer = cloud.act(servers[0], "unshelve")
    assert (answer.status_code, answer.headers["X-Pinfold-Error"]) == (403, "quota")
    assert cloud.everything() == before
    limit(cloud, instances=2)
    assert cloud.act(servers[0], "unshelve").status_code == 202


def kept(cloud: Cloud) -> str:
    """A server that is soft-deleted."""
    server = cloud.boot()
    assert cloud.demo.delete(f"/v2.1/servers/{server}").status_code == 204
    cloud.carry(server)
    return server


@pytest.mark.parametrize("limits", [{"instances": 1}, {"cores": 3}, {"ram": 600}])
def test_a_soft_deleted_server_is_restored_only_within_the_limits(
    make_cloud: MakeCloud, limits: dict[str, Any]
) -> None:
    """F096: it gives back what it used once, and takes it again from the request on."""
    cloud = make_cloud(times=Times(keep_deleted=1000.0))
    server = kept(cloud)
    assert used(cloud) == {"instances": 0, "cores": 0, "ram": 0}
    limit(cloud, **limits)
    other = cloud.boot()
    before = cloud.everything()
    answer = cloud.act(server, "restore")
    assert (answer.status_code, answer.headers["X-Pinfold-Error"]) == (403, "quota")
    assert cloud.everything() == before
    assert cloud.act(other, "forceDelete").status_code == 202
    cloud.carry(other)
    assert cloud.act(server, "restore").status_code == 202
    assert used(cloud) == {"instances": 1, "cores": 2, "ram": 512}
    assert post(cloud) == 403
    cloud.carry(server)
    assert used(cloud) == {"instances": 1, "cores": 2, "ram": 512}


def test_of_restores_at_once_as_many_are_accepted_as_there_is_room_for(make_cloud: MakeCloud) -> None:
    """F097."""
    cloud = make_cloud(times=Times(keep_deleted=1000.0))
    servers = [kept(cloud) for _ in range(5)]
    limit(cloud, instances=2)
    codes: list[int] = []
    tasks = [
        cloud.runtime.spawn(
            lambda server=server: codes.append(cloud.act(server, "restore").status_code), name=server
        )
        for server in servers
    ]
    assert all(task.join(120) for task in tasks)
    assert sorted(codes) == [202] * 2 + [403] * 3
    assert used(cloud)["instances"] == 2


def test_f096_a_server_that_is_reclaimed_gives_nothing_back_twice(make_cloud: MakeCloud) -> None:
    cloud = make_cloud(times=Times(keep_deleted=1000.0))
    server = kept(cloud)
    assert used(cloud)["cores"] == 0
    cloud.act(server, "forceDelete")
    cloud.carry(server)
    assert used(cloud) == {"instances": 0, "cores": 0, "ram": 0}
    assert cloud.show(cloud.boot())["status"] == "ACTIVE"
    assert used(cloud)["cores"] == 2


def test_limits_of_the_options_count_where_there_are_no_others(make_cloud: MakeCloud) -> None:
    cloud = make_cloud(quotas=DEFAULTS | {"instances": 1})
    assert (post(cloud), post(cloud)) == (202, 403)
    cloud.admin.put(f"{CLASSES}/default", json={"quota_class_set": {"instances": 2}})
    assert (post(cloud), post(cloud)) == (202, 403)
    assert post(cloud, cloud.other) == 202


# --- quota sets -------------------------------------------------------------------------------------


def test_what_the_command_line_client_sends_and_gets(make_cloud: MakeCloud) -> None:
    cloud = make_cloud(quotas=DEFAULTS)
    client = cloud.client(ADMIN, "2.56")
    shown = {name: value for name, value in DEFAULTS.items() if name not in OLD}
    assert client.get(f"{URL}/demo").json() == {"quota_set": {"id": "demo", **shown}}
    assert client.get(f"{URL}/demo/defaults").json() == {"quota_set": {"id": "demo", **shown}}
    answer = client.put(f"{URL}/demo", json={"quota_set": {"cores": 1000, "instances": 500}})
    assert answer.json() == {"quota_set": shown | {"cores": 1000, "instances": 500}}
    cloud.boot()
    detail = client.get(f"{URL}/demo/detail").json()["quota_set"]
    assert detail["cores"] == {"limit": 1000, "in_use": 2, "reserved": 0}
    assert detail["key_pairs"] == {"limit": 100, "in_use": 0, "reserved": 0}
    assert client.delete(f"{URL}/demo").status_code == 202
    assert client.get(f"{URL}/demo").json() == {"quota_set": {"id": "demo", **shown}}


def test_names_by_microversion(cloud: Cloud) -> None:
    for version, gone in (("2.35", set()), ("2.36", OLD), ("2.57", OLD | FILES)):
        client = cloud.client(ADMIN, version)
        assert set(client.get(f"{URL}/demo").json()["quota_set"]) == {"id", *DEFAULTS} - gone
        for name in gone:
            assert client.put(f"{URL}/demo", json={"quota_set": {name: 1}}).status_code == 400


def test_a_limit_is_not_set_below_what_is_used_unless_forced(any_cloud: Cloud) -> None:
    cloud = any_cloud
    cloud.boot()
    cloud.boot()
    answer = limit(cloud, instances=1)
    assert (answer.status_code, answer.headers["X-Pinfold-Error"]) == (400, "quota-in-use")
    assert limit(cloud, instances=1, force="true").status_code == 200
    assert limit(cloud, instances=-1).json()["quota_set"]["instances"] == -1


def test_a_user_has_no_more_than_the_project_leaves(any_cloud: Cloud) -> None:
    cloud = any_cloud
    limit(cloud, instances=10)
    assert limit(cloud, user="ann", instances=11).status_code == 400
    assert limit(cloud, user="ann", instances=-1).status_code == 400
    assert limit(cloud, user="ann", instances=6).status_code == 200
    assert limit(cloud, user="ben", instances=5).status_code == 400
    assert limit(cloud, user="ben", instances=4).status_code == 200
    assert limit(cloud, instances=9).status_code == 400
    assert cloud.admin.get(f"{URL}/demo?user_id=ann").json()["quota_set"]["instances"] == 6
    assert cloud.admin.get(f"{URL}/demo?user_id=cat").json()["quota_set"]["instances"] == 10
    assert cloud.admin.delete(f"{URL}/demo?user_id=ann").status_code == 202
    assert cloud.admin.get(f"{URL}/demo?user_id=ann").json()["quota_set"]["instances"] == 10


@pytest.mark.parametrize("value", [-2, 2**31, "x", "1.5", None, "", [], 1.5, True])
def test_what_is_no_limit_is_400(cloud: Cloud, value: object) -> None:
    before = cloud.everything()
    assert limit(cloud, instances=value).status_code == 400
    assert cloud.everything() == before


def test_who_may_see_and_change_limits(cloud: Cloud) -> None:
    assert cloud.demo.get(f"{URL}/demo").status_code == 200
    assert cloud.demo.get(f"{URL}/demo/detail").status_code == 200
    assert cloud.demo.get(f"{URL}/other").status_code == 403
    assert cloud.demo.get(f"{URL}/other/defaults").status_code == 200
    assert cloud.demo.put(f"{URL}/demo", json={"quota_set": {"cores": 1}}).status_code == 403
    assert cloud.demo.delete(f"{URL}/demo").status_code == 403
    assert cloud.demo.get(f"{CLASSES}/default").status_code == 403
    assert cloud.demo.put(f"{CLASSES}/default", json={"quota_class_set": {}}).status_code == 403


def test_quota_classes(any_cloud: Cloud) -> None:
    cloud = any_cloud
    answer = cloud.admin.put(f"{CLASSES}/default", json={"quota_class_set": {"cores": 7}})
    assert answer.json()["quota_class_set"]["cores"] == 7
    assert cloud.admin.get(f"{CLASSES}/default").json()["quota_class_set"]["id"] == "default"
    assert cloud.demo.get(f"{URL}/demo/defaults").json()["quota_set"]["cores"] == 7
    assert cloud.admin.get(f"{CLASSES}/other").json()["quota_class_set"]["cores"] == 4000
    groups = {"server_groups", "server_group_members"}
    for version, gone in (("2.49", groups), ("2.50", OLD), ("2.57", OLD | FILES)):
        shown = cloud.client(ADMIN, version).get(f"{CLASSES}/x").json()["quota_class_set"]
        assert set(shown) == {"id", *DEFAULTS} - gone


# --- limits -----------------------------------------------------------------------------------------


def test_limits_by_microversion(cloud: Cloud) -> None:
    def names(version: str) -> set[str]:
        limits = cloud.client("ann:demo:member", version).get("/v2.1/limits?reserved=False").json()["limits"]
        assert limits["rate"] == []
        return set(limits["absolute"])

    newest = {
        *("maxTotalInstances", "maxTotalCores", "maxTotalRAMSize", "maxTotalKeypairs", "maxServerMeta"),
        *("maxServerGroups", "maxServerGroupMembers", "totalInstancesUsed", "totalCoresUsed", "totalRAMUsed"),
        "totalServerGroupsUsed",
    }
    networks = {
        *("maxTotalFloatingIps", "maxSecurityGroups", "maxSecurityGroupRules", "totalFloatingIpsUsed"),
        "totalSecurityGroupsUsed",
    }
    files = {"maxPersonality", "maxPersonalitySize"}
    assert names("2.57") == newest
    assert names("2.39") == newest | files
    assert names("2.36") == newest | files | {"maxImageMeta"}
    assert names("2.1") == newest | files | {"maxImageMeta"} | networks


def test_limits_of_another_project_are_for_admins(cloud: Cloud) -> None:
    limit(cloud, cores=77)
    assert cloud.demo.get("/v2.1/limits?tenant_id=demo").status_code == 403
    answer = cloud.admin.get("/v2.1/limits?tenant_id=demo")
    assert answer.json()["limits"]["absolute"]["maxTotalCores"] == 77


def test_limits_cost_three_statements_however_many_servers(cloud: Cloud) -> None:
    for _ in range(5):
        cloud.ask()
    assert len(cloud.statements(cloud.demo, "/v2.1/limits")) == 3


# --- usage ------------------------------------------------------------------------------------------


def test_usage_is_what_ran_and_for_how_long(any_cloud: Cloud) -> None:
    cloud = any_cloud
    running, gone = cloud.boot(), cloud.boot()
    cloud.ask()
    now = cloud.runtime.now().timestamp()

    def set_times(session: Any) -> None:
        update = sa.update(Instance)
        session.execute(update.where(Instance.id == running).values(launched_at=now - 3600))
        session.execute(
            update.where(Instance.id == gone).values(
                launched_at=now - 7200, terminated_at=now - 3600, deleted_at=now - 3600, vm_state="deleted"
            )
        )

    cloud.book.write(set_times)
    client = cloud.client("ann:demo:member", "2.75")
    usage = client.get(f"{USAGE}/demo?start=2020-01-01T00:00:00").json()["tenant_usage"]
    assert usage["tenant_id"] == "demo"
    assert usage["total_hours"] == pytest.approx(2, abs=0.02)
    assert usage["total_vcpus_usage"] == pytest.approx(4, abs=0.04)
    assert usage["total_memory_mb_usage"] == pytest.approx(1024, abs=10)
    by_id = {server["instance_id"]: server for server in usage["server_usages"]}
    assert set(by_id) == {running, gone}
    assert (by_id[gone]["state"], by_id[gone]["uptime"], by_id[running]["state"]) == (
        "terminated",
        3600,
        "active",
    )
    assert (by_id[running]["ended_at"], by_id[running]["flavor"]) == (None, "p2")
    assert usage["start"] == "2020-01-01T00:00:00.000000"
    assert client.get(f"{USAGE}/demo?start=2020-01-01T00:00:00&end=2020-02-01T00:00:00").json() == {
        "tenant_usage": {}
    }


def test_usage_of_all_projects_has_servers_only_with_detailed_1(cloud: Cloud) -> None:
    cloud.boot()
    cloud.boot(cloud.other)
    client = cloud.client(ADMIN, "2.75")
    brief = client.get(f"{USAGE}?detailed=True&start=2020-01-01T00:00:00").json()["tenant_usages"]
    assert [row["tenant_id"] for row in brief] == ["demo", "other"]
    assert set(brief[0]) == {
        *("tenant_id", "total_local_gb_usage", "total_vcpus_usage", "total_memory_mb_usage", "total_hours"),
        *("start", "stop"),
    }
    full = client.get(f"{USAGE}?detailed=1&start=2020-01-01T00:00:00").json()["tenant_usages"]
    assert [len(row["server_usages"]) for row in full] == [1, 1]
    assert cloud.demo.get(USAGE).status_code == 403
    assert cloud.demo.get(f"{USAGE}/other").status_code == 403


def test_usage_without_a_start_is_that_of_no_time_at_all(cloud: Cloud) -> None:
    """openstacksdk asks so, and Nova answers it."""
    cloud.boot()
    answer = cloud.admin.get("/v2.1/os-simple-tenant-usage")
    assert answer.status_code == 200, answer.text


def test_from_2_40_on_usage_is_paged(any_cloud: Cloud) -> None:
    cloud = any_cloud
    servers = sorted(cloud.boot() for _ in range(3))
    document = cloud.demo.get(f"{USAGE}/demo?start=2020-01-01T00:00:00&limit=2").json()
    following = cloud.demo.get(document["tenant_usage_links"][0]["href"]).json()
    ids = [
        server["instance_id"]
        for page in (document, following)
        for server in page["tenant_usage"]["server_usages"]
    ]
    assert ids == servers
    assert cloud.demo.get(f"{USAGE}/demo?start=2020-01-01T00:00:00&marker=x").status_code == 400


@pytest.mark.parametrize(
    "query", ["start=x", "end=2020-01-01", "start=2030-01-01T00:00:00&end=2020-01-01T00:00:00"]
)
def test_a_bad_period_is_400(cloud: Cloud, query: str) -> None:
    assert cloud.demo.get(f"{USAGE}/demo?{query}").status_code == 400
