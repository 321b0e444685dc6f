"""Lists of servers: paging, sorting, filters, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from pinfold.db.models import Instance
from tests.http.cloud import MISSING, Cloud


def names(cloud: Cloud, query: str, client: Any = None) -> list[str]:
    """The names that a list has."""
    answer = (client or cloud.admin).get(f"/v2.1/servers?{query}")
    assert answer.status_code == 200, answer.text
    return [server["name"] for server in answer.json()["servers"]]


def set_values(cloud: Cloud, server: str, **values: Any) -> None:
    """Write into a server's row."""
    query = sa.update(Instance).where(Instance.id == server).values(**values)
    cloud.book.write(lambda session: session.execute(query))


@pytest.fixture
def five(any_cloud: Cloud) -> Cloud:
    """Five servers of project demo: web-1, web-2, db-1, db-2 and one of another project."""
    for name in ("web-1", "web-2", "db-1", "db-2"):
        any_cloud.ask(name=name)
    any_cloud.ask(any_cloud.other, name="theirs")
    return any_cloud


def test_one_statement_for_a_server_and_one_for_a_list_however_long(any_cloud: Cloud) -> None:
    first = any_cloud.boot()
    assert len(any_cloud.statements(any_cloud.admin, f"/v2.1/servers/{first}")) == 1
    for _ in range(5):
        any_cloud.ask()
    for url in (
        "/v2.1/servers",
        "/v2.1/servers/detail",
        "/v2.1/servers/detail?all_tenants=1&name=^a&status=BUILD",
    ):
        assert len(any_cloud.statements(any_cloud.admin, url)) == 1
    assert len(any_cloud.statements(any_cloud.demo, f"/v2.1/servers/detail?marker={first}")) == 2


def test_each_project_lists_its_own(five: Cloud) -> None:
    assert names(five, "", five.demo) == ["db-2", "db-1", "web-2", "web-1"]
    assert names(five, "", five.other) == ["theirs"]
    assert names(five, "") == []


def test_all_tenants_is_for_admins(five: Cloud) -> None:
    assert len(names(five, "all_tenants=True")) == 5
    assert len(names(five, "all_tenants=")) == 5
    assert names(five, "all_tenants=0") == []
    assert five.demo.get("/v2.1/servers?all_tenants=1").status_code == 403
    assert five.admin.get("/v2.1/servers?all_tenants=perhaps").status_code == 400
    assert names(five, "all_tenants=1&project_id=other") == ["theirs"]
    assert names(five, "project_id=other", five.demo)[0] == "db-2"


def test_pages_are_followed_by_their_links_to_the_end(five: Cloud) -> None:
    url: str | None = "/v2.1/servers?limit=3&sort_key=display_name&sort_dir=asc"
    seen: list[str] = []
    while url:
        document = five.demo.get(url).json()
        seen += [server["name"] for server in document["servers"]]
        url = next((link["href"] for link in document.get("servers_links", [])), None)
    assert seen == ["db-1", "db-2", "web-1", "web-2"]


@pytest.mark.parametrize("key", ["host", "task_state", "created_at", "launched_at", "vm_state", "locked_by"])
@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_pages_by_any_key_show_each_server_once(five: Cloud, key: str, direction: str) -> None:
    seen: list[str] = []
    url: str | None = f"/v2.1/servers?limit=1&sort_key={key}&sort_dir={direction}"
    while url and len(seen) < 10:
        document = five.demo.get(url).json()
        seen += [server["name"] for server in document["servers"]]
        url = next((link["href"] for link in document.get("servers_links", [])), None)
    assert sorted(seen) == ["db-1", "db-2", "web-1", "web-2"]


def test_a_limit_above_the_most_is_cut(make_cloud: Any) -> None:
    cloud = make_cloud(max_limit=2)
    for _ in range(3):
        cloud.ask()
    document = cloud.demo.get("/v2.1/servers?limit=100").json()
    assert (len(document["servers"]), document["servers_links"][0]["rel"]) == (2, "next")
    assert cloud.demo.get("/v2.1/servers?limit=0").json() == {"servers": []}


@pytest.mark.parametrize(
    "query",
    [
        "limit=x",
        "limit=-1",
        "limit=1.5",
        f"marker={MISSING}",
        "marker=web-1",
        "marker=%00",
        "sort_key=secret",
        "sort_dir=up",
        "changes-since=yesterday",
        "changes-since=99999-01-01",
        "changes-before=x",
        "changes-since=2021-01-01&changes-before=2020-01-01",
        "name=[[:alpha:]]",
        "name=[a[b]",
        "name=[a--b]",
        "name=x{,3}",
        "status=SOMETIMES",
        "name=(",
        "name=(a%2B)%2B",
        "name=(?i)a",
        "name=%5C",
        "name=a{999}",
        "name=%00",
        "locked=maybe",
        "unknown=1",
        "power_state=x",
        "metadata=x",
        "ip=(",
        "launched_at=x",
    ],
)
def test_a_bad_parameter_is_400_that_names_it(cloud: Cloud, query: str) -> None:
    for path in ("servers", "servers/detail"):
        answer = cloud.admin.get(f"/v2.1/{path}?{query}")
        assert answer.status_code == 400, answer.text
        assert query.partition("=")[0] in answer.text


def test_unknown_parameters_are_dropped_below_2_75(cloud: Cloud) -> None:
    assert cloud.client("ann:demo", "2.74").get("/v2.1/servers?unknown=1").status_code == 200


def test_names_are_regular_expressions(five: Cloud) -> None:
    assert names(five, "name=web", five.demo) == ["web-2", "web-1"]
    assert names(five, "name=^db-[12]$", five.demo) == ["db-2", "db-1"]
    assert names(five, "name=b-1", five.demo) == ["db-1", "web-1"]
    assert names(five, "name=^(web|db)-1", five.demo) == ["db-1", "web-1"]
    assert names(five, "name=WEB", five.demo) == []
    assert names(five, "name=%5Cd$&limit=1", five.demo) == ["db-2"]
    assert names(five, "name=[b][-]{1}[]1]", five.demo) == ["db-1", "web-1"]


def test_status_filters(five: Cloud) -> None:
    assert len(names(five, "status=BUILD", five.demo)) == 4
    assert len(names(five, "status=build&status=ACTIVE", five.demo)) == 4
    assert names(five, "status=ACTIVE", five.demo) == []
    assert five.demo.get("/v2.1/servers?status=DELETED").status_code == 403
    assert names(five, "status=SOMETIMES", five.client("ann:demo", "2.37")) == []


def test_deleted_servers_are_seen_when_they_are_asked_for(five: Cloud) -> None:
    gone = five.demo.get("/v2.1/servers?name=web-1").json()["servers"][0]["id"]
    assert five.demo.delete(f"/v2.1/servers/{gone}").status_code == 204
    assert "web-1" not in names(five, "", five.demo)
    assert names(five, "all_tenants=1&deleted=True") == ["web-1"]
    assert names(five, "all_tenants=1&status=DELETED") == ["web-1"]
    assert "web-1" in names(five, "changes-since=2020-01-01T00:00:00Z", five.demo)
    assert "web-1" not in names(five, "all_tenants=1&deleted=False&changes-since=2020-01-01T00:00:00")
    assert names(five, "changes-since=2100-01-01T00:00:00%2B02:00", five.demo) == []
    shown = five.admin.get("/v2.1/servers/detail?all_tenants=1&deleted=True").json()["servers"][0]
    assert (shown["status"], shown["OS-SRV-USG:terminated_at"] is None) == ("DELETED", False)


def test_an_ordinary_user_filters_by_few_fields_and_others_are_dropped(five: Cloud) -> None:
    assert len(names(five, "host=nowhere", five.demo)) == 4
    assert names(five, "all_tenants=1&host=nowhere") == []
    assert len(names(five, "key_name=k", five.client("ann:demo", "2.82"))) == 4
    assert names(five, "key_name=k", five.client("ann:demo", "2.83")) == []


def test_filters_by_host_flavor_and_image(any_cloud: Cloud) -> None:
    cloud = any_cloud
    cloud.flavor("p2x", 1)
    cloud.boot(cloud.admin, name="on-n1", availability_zone="nova:n1")
    cloud.ask(cloud.admin, name="small", flavorRef="p2x")
    assert names(cloud, "all_tenants=1&host=n1") == ["on-n1"]
    assert names(cloud, "node=n1") == ["on-n1"]
    assert names(cloud, "flavor=p2") == ["on-n1"]
    assert names(cloud, "flavor=p2x") == ["small"]
    assert sorted(names(cloud, f"image={cloud.tiny}")) == ["on-n1", "small"]
    assert names(cloud, f"image={MISSING}") == []
    assert names(cloud, "vm_state=active&task_state=") == []
    assert names(cloud, "power_state=1") == ["on-n1"]


def test_filters_by_tags_and_metadata(any_cloud: Cloud) -> None:
    cloud = any_cloud
    cloud.ask(name="ab", tags=["a", "b"], metadata={"k": "v", "l": "w"})
    cloud.ask(name="b", tags=['x"a', "b"], metadata={"k": 'v","l":"w'})
    cloud.ask(name="none")
    assert names(cloud, "tags=a", cloud.demo) == ["ab"]
    assert names(cloud, "tags=A", cloud.demo) == []
    assert names(cloud, "tags=a,b", cloud.demo) == ["ab"]
    assert sorted(names(cloud, "tags-any=a,b", cloud.demo)) == ["ab", "b"]
    assert sorted(names(cloud, "not-tags=a,b", cloud.demo)) == ["b", "none"]
    assert names(cloud, "not-tags-any=a,b", cloud.demo) == ["none"]
    assert names(cloud, 'all_tenants=1&metadata={"l":"w"}') == ["ab"]


def test_there_are_no_addresses_to_find(five: Cloud) -> None:
    assert names(five, "ip=10.0.0.1", five.demo) == []


def test_locked_servers_can_be_told_from_others(five: Cloud) -> None:
    server = five.demo.get("/v2.1/servers?name=web-1").json()["servers"][0]["id"]
    set_values(five, server, locked_by="owner")
    assert names(five, "locked=true", five.demo) == ["web-1"]
    assert len(names(five, "locked=false", five.demo)) == 3


def test_one_odd_row_does_not_hide_the_others(cloud: Cloud) -> None:
    """F119: a row whose side rows are gone, or that names a state nobody knows."""
    good, odd = cloud.boot(name="good"), cloud.boot(name="odd")
    set_values(cloud, odd, vm_state="melted", fault={"code": 500, "message": "m", "created": 1.0})

    def orphan(session: Any) -> None:
        for table in ("claims", "operations"):
            session.execute(sa.text(f"DELETE FROM {table} WHERE instance_id = :id"), {"id": odd})

    cloud.book.write(orphan)
    listed = cloud.demo.get("/v2.1/servers/detail").json()["servers"]
    assert {server["id"]: server["status"] for server in listed} == {good: "ACTIVE", odd: "UNKNOWN"}
