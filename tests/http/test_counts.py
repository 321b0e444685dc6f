"""F114: what a request or a sweep costs does not grow with the number of servers, hosts, or old rows."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from pinfold.db import moves
from pinfold.db.models import Base
from tests.http.cloud import Cloud

LISTS = {
    "/v2.1/servers": "2.100",
    "/v2.1/servers/detail": "2.100",
    "/v2.1/servers/detail?all_tenants=1&limit=3": "2.100",
    "/v2.1/flavors/detail": "2.61",
    "/v2.1/os-keypairs": "2.10",
    "/v2.1/os-server-groups?all_projects=1": "2.64",
    "/v2.1/os-hypervisors/detail": "2.53",
    "/v2.1/os-hypervisors/detail?with_servers=1": "2.88",
    "/v2.1/os-hypervisors/statistics": "2.1",
    "/v2.1/os-services": "2.69",
    "/v2.1/os-hosts": "2.1",
    "/v2.1/os-aggregates": "2.81",
    "/v2.1/os-availability-zone/detail": "2.1",
    "/v2.1/os-migrations": "2.80",
    "/v2.1/os-simple-tenant-usage?detailed=1": "2.75",
    "/v2.1/limits": "2.1",
    "/v2.1/os-quota-sets/demo/detail": "2.56",
    "/image/v2/images": "2.1",
    "/pinfold/v1/nodes": "2.1",
}
MANY = 12
OLD = 100_000


def fill(cloud: Cloud, count: int, prefix: str) -> None:
    """So many more of everything that is listed."""
    for number in range(count):
        name = f"{prefix}{number}"
        cloud.box.register(f"host-{name}")
        cloud.flavor(f"flavor-{name}", 1)
        cloud.boot(name=name, metadata={"k": "v"})
        cloud.demo.post("/v2.1/os-server-groups", json={"server_group": {"name": name, "policy": "affinity"}})
        cloud.admin.post("/v2.1/os-aggregates", json={"aggregate": {"name": name}})


def costs(cloud: Cloud) -> dict[str, int]:
    found = {}
    for url, version in LISTS.items():
        client = cloud.client("admin:demo:admin", version)
        client.get(url)  # what is kept between requests is kept by now
        found[url] = len(cloud.statements(client, url))
    return found


def test_lists_cost_as_many_statements_for_many_servers_and_hosts_as_for_few(cloud: Cloud) -> None:
    """F114."""
    fill(cloud, 2, "a")
    few = costs(cloud)
    fill(cloud, MANY, "b")
    assert costs(cloud) == few


def counted(cloud: Cloud, work: Any) -> int:
    seen: list[str] = []

    def note(*arguments: Any) -> None:
        seen.append(arguments[2])

    event.listen(cloud.book.engine, "before_cursor_execute", note)
    try:
        work()
    finally:
        event.remove(cloud.book.engine, "before_cursor_execute", note)
    return len(seen)


def test_the_start_of_a_worker_costs_as_many_statements_for_many_servers(cloud: Cloud) -> None:
    """F114: it is told of all its servers at once."""
    zone = {"availability_zone": "nova:n1", "flavorRef": cloud.flavor("small", 1, specs={})}
    cloud.boot(cloud.admin, **zone)
    few = counted(cloud, lambda: cloud.box.register("n1"))
    for _ in range(5):
        cloud.boot(cloud.admin, **zone)
    assert counted(cloud, lambda: cloud.box.register("n1")) == few


def test_silent_workers_hold_up_nobody_who_looks_at_hypervisors(cloud: Cloud) -> None:
    """F114: fifty hosts that do not answer, and no question is put to any."""
    for number in range(50):
        cloud.box.register(f"silent-{number}")
    conductor, worker = cloud.listen()
    answer = cloud.admin.get("/v2.1/os-hypervisors/detail", headers={"OpenStack-API-Version": "compute 2.53"})
    assert len(answer.json()["hypervisors"]) == 52
    assert conductor.heard == worker.heard == []


@pytest.fixture
def old(cloud: Cloud) -> Cloud:
    """A cloud with very many operations that have ended."""
    server = cloud.boot()
    table = Base.metadata.tables["operations"]
    row = cloud.book.read(lambda session: session.execute(sa.select(table).limit(1)).mappings().one())
    rows = [{**row, "id": f"{number:036d}", "instance_id": server} for number in range(OLD)]
    with cloud.book.engine.begin() as connection:
        connection.execute(sa.insert(table), rows)
    return cloud


def test_sweeps_do_not_look_at_old_operations(old: Cloud) -> None:
    """F114: what a conductor asks every second is answered by an index."""
    assert old.box.sweeper.operations() == 0
    for text in _asked_by_sweeps(old):
        plan = _plan(old, text)
        assert not [line for line in plan if line.startswith("SCAN operations")], (text, plan)


def _asked_by_sweeps(cloud: Cloud) -> list[str]:
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_more: Any) -> None:
        for value in parameters:
            statement = statement.replace("?", repr(value), 1)
        seen.append(statement)

    event.listen(cloud.book.engine, "before_cursor_execute", note)
    try:
        cloud.box.sweeper.operations()
        cloud.book.read(lambda session: moves.to_confirm(session, 1.0, 100))
    finally:
        event.remove(cloud.book.engine, "before_cursor_execute", note)
    return [text for text in seen if text.lstrip().startswith("SELECT")]


def _plan(cloud: Cloud, text: str) -> list[str]:
    with sqlite3.connect(cloud.url.removeprefix("sqlite:///")) as connection:
        return [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + text)]
