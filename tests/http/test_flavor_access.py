"""Who may use flavors that are not public."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.cloud import ADMIN, Cloud

URL = "/v2.1/flavors/secret"


@pytest.fixture
def secret(any_cloud: Cloud) -> Cloud:
    """A cloud with a flavor that only project admin has."""
    any_cloud.flavor("secret", **{"os-flavor-access:is_public": False})  # type: ignore[arg-type]
    return any_cloud


def act(cloud: Cloud, action: str, tenant: str, flavor: str = "secret", version: str = "2.61") -> Any:
    return cloud.client(ADMIN, version).post(
        f"/v2.1/flavors/{flavor}/action", json={f"{action}TenantAccess": {"tenant": tenant}}
    )


def test_a_project_that_is_given_access_sees_and_uses_it(secret: Cloud) -> None:
    cloud = secret
    assert cloud.demo.get(URL).status_code == 404
    assert cloud.demo.post("/v2.1/servers", json=cloud.body(flavorRef="secret")).status_code == 400
    given = [{"flavor_id": "secret", "tenant_id": name} for name in ("admin", "demo")]
    assert act(cloud, "add", "demo").json() == {"flavor_access": given}
    assert cloud.admin.get(f"{URL}/os-flavor-access").json() == {"flavor_access": given}
    assert cloud.demo.get(URL).status_code == 200
    listed = [flavor["id"] for flavor in cloud.demo.get("/v2.1/flavors").json()["flavors"]]
    assert listed == ["p2", "secret"]
    assert cloud.other.get(URL).status_code == 404
    cloud.ask(flavorRef="secret")
    assert act(cloud, "remove", "demo").json() == {"flavor_access": given[:1]}
    assert cloud.demo.get(URL).status_code == 404


def test_what_is_given_twice_or_not_there_to_take(secret: Cloud) -> None:
    act(secret, "add", "demo")
    assert act(secret, "add", "demo").status_code == 409
    assert act(secret, "remove", "other").status_code == 404
    assert act(secret, "add", "demo", "none").status_code == 404


def test_a_public_flavor_has_no_list(secret: Cloud) -> None:
    assert secret.admin.get("/v2.1/flavors/p2/os-flavor-access").status_code == 404
    assert act(secret, "add", "demo", "p2").status_code == 409
    assert act(secret, "add", "demo", "p2", "2.6").status_code == 200


def test_access_goes_with_the_flavor(secret: Cloud) -> None:
    act(secret, "add", "demo")
    assert secret.admin.delete(URL).status_code == 202
    assert secret.everything()["flavor_access"] == []


def test_it_is_for_admins(secret: Cloud) -> None:
    act(secret, "add", "demo")
    assert secret.demo.get(f"{URL}/os-flavor-access").status_code == 403
    body = {"addTenantAccess": {"tenant": "other"}}
    assert secret.demo.post(f"{URL}/action", json=body).status_code == 403


@pytest.mark.parametrize(
    "body", [{}, {"explode": {}}, {"addTenantAccess": {}}, {"addTenantAccess": {"tenant": ""}}]
)
def test_a_bad_body_is_400(cloud: Cloud, body: object) -> None:
    assert cloud.admin.post("/v2.1/flavors/p2/action", json=body).status_code == 400
