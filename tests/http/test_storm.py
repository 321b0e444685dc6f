"""F119 in kind: whatever many ask at once about the same few things, each answer is one that is meant."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.http.cloud import PUBLIC_KEY, Cloud
from tests.http.conftest import MakeCloud

THREADS, EACH = 8, 60
Ask = tuple[str, str, Any]


def asks(rng: random.Random, cloud: Cloud, servers: list[str], workers: list[str]) -> list[Ask]:
    """Requests of every kind that change something, about things of which there are few."""
    name, zone, host = rng.choice("abc"), rng.choice(["z1", "z2"]), rng.choice(["n1", "n2"])
    aggregate = f"/v2.1/os-aggregates/{rng.randint(1, 6)}"
    flavor = f"/v2.1/flavors/{name}"
    server = f"/v2.1/servers/{rng.choice(servers)}"
    worker = f"/v2.1/os-services/{rng.choice(workers)}"
    size = {"name": name, "id": name, "ram": 1, "vcpus": 1, "disk": 0, "os-flavor-access:is_public": False}
    quota = f"/v2.1/os-quota-sets/{name}"
    action = rng.choice(["lock", "unlock", "os-stop", "shelve", "pause", "restore", "forceDelete"])
    return [
        ("POST", "/v2.1/os-keypairs", {"keypair": {"name": name, "public_key": PUBLIC_KEY}}),
        ("DELETE", f"/v2.1/os-keypairs/{name}", None),
        ("POST", "/v2.1/os-aggregates", {"aggregate": {"name": name, "availability_zone": zone}}),
        ("PUT", aggregate, {"aggregate": {"name": rng.choice("abc")}}),
        ("DELETE", aggregate, None),
        ("POST", f"{aggregate}/action", {rng.choice(["add_host", "remove_host"]): {"host": host}}),
        ("POST", f"{aggregate}/action", {"set_metadata": {"metadata": {"availability_zone": zone}}}),
        ("POST", "/v2.1/flavors", {"flavor": size}),
        ("DELETE", flavor, None),
        (
            "POST",
            f"{flavor}/action",
            {rng.choice(["addTenantAccess", "removeTenantAccess"]): {"tenant": "x"}},
        ),
        ("POST", f"{flavor}/os-extra_specs", {"extra_specs": {name: name}}),
        ("PUT", f"{server}/tags/{name}", None),
        ("DELETE", f"{server}/tags/{name}", None),
        ("POST", f"{server}/metadata", {"metadata": {name: name}}),
        ("DELETE", f"{server}/metadata/{name}", None),
        ("PUT", quota, {"quota_set": {"instances": rng.randint(1, 9)}}),
        ("PUT", f"{quota}?user_id=u", {"quota_set": {"instances": 1}}),
        ("DELETE", quota, None),
        ("PUT", "/v2.1/os-quota-class-sets/default", {"quota_class_set": {"instances": 999}}),
        ("POST", "/v2.1/os-server-groups", {"server_group": {"name": name, "policy": "affinity"}}),
        ("POST", f"{server}/action", {action: None}),
        ("POST", f"{server}/action", {"os-resetState": {"state": "active"}}),
        ("POST", f"{server}/action", {"resize": {"flavorRef": "p4"}}),
        ("PUT", server, {"server": {"name": name}}),
        ("POST", "/v2.1/servers", cloud.body(max_count=rng.randint(1, 2))),
        ("PUT", worker, {"status": rng.choice(["enabled", "disabled"])}),
        ("PUT", worker, {"forced_down": rng.choice([True, False])}),
        ("GET", "/v2.1/servers/detail", None),
        ("GET", "/v2.1/os-hypervisors/detail", None),
        *([("DELETE", server, None), ("DELETE", worker, None)] if rng.random() < 0.1 else []),
    ]


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def crowded(request: pytest.FixtureRequest, make_cloud: MakeCloud) -> Cloud:
    """A cloud on each database: each has errors of its own."""
    if request.param == "sqlite":
        return make_cloud()
    return make_cloud(request.getfixturevalue(request.param).create())


def test_nobody_is_told_500_however_many_ask_at_once(crowded: Cloud) -> None:
    cloud = crowded
    cloud.flavor("p4", 4)
    servers = [cloud.boot(cloud.admin) for _ in range(3)]
    rows = cloud.admin.get("/v2.1/os-services?binary=nova-compute").json()["services"]
    workers = [row["id"] for row in rows]
    codes: Counter[int] = Counter()
    wrong: list[object] = []

    def ask(seed: int) -> None:
        rng = random.Random(seed)
        client = cloud.client("admin:admin", "2.90")
        for _ in range(EACH):
            method, url, body = rng.choice(asks(rng, cloud, servers, workers))
            answer = client.request(method, url, json=body)
            codes[answer.status_code] += 1
            if answer.status_code >= 500:
                wrong.append((method, url, body, answer.text))

    tasks = [cloud.runtime.spawn(lambda seed=seed: ask(seed), name=str(seed)) for seed in range(THREADS)]
    assert all(task.join(120) for task in tasks)
    assert wrong == []
    assert {200, 202, 204, 404, 409} <= set(codes)
    cloud.box.check()
