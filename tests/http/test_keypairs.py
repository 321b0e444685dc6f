"""Keypairs over HTTP."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import serialization

from tests.http.cloud import ADMIN, PUBLIC_KEY, Cloud

URL = "/v2.1/os-keypairs"
FINGERPRINT = "4b:99:ea:3a:0c:49:00:25:b0:ed:7f:d4:7a:40:7f:24"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"


def names(cloud: Cloud, token: str = "ann:demo:member", version: str = "2.100", query: str = "") -> list[str]:
    answer = cloud.client(token, version).get(f"{URL}{query}")
    assert answer.status_code == 200, answer.text
    return [item["keypair"]["name"] for item in answer.json()["keypairs"]]


def test_what_the_command_line_client_sends_and_gets(any_cloud: Cloud) -> None:
    cloud = any_cloud
    client = cloud.client("ann:demo:member", "2.10")
    answer = client.post(URL, json={"keypair": {"name": "kp1", "public_key": PUBLIC_KEY}})
    brief = {"name": "kp1", "public_key": PUBLIC_KEY, "fingerprint": FINGERPRINT, "type": "ssh"}
    assert (answer.status_code, answer.json()) == (201, {"keypair": brief | {"user_id": "ann"}})
    assert client.get(URL).json() == {"keypairs": [{"keypair": brief}]}
    shown = client.get(f"{URL}/kp1").json()["keypair"]
    assert isinstance(shown.pop("id"), int)
    assert len(shown.pop("created_at")) == len("2026-11-30T16:22:44.000000")
    assert shown == brief | {"user_id": "ann", "deleted": False, "deleted_at": None, "updated_at": None}
    assert client.delete(f"{URL}/kp1").status_code == 204
    assert client.get(f"{URL}/kp1").json()["itemNotFound"]["message"] == "Keypair kp1 not found for user ann"


def test_a_key_may_stand_between_more_than_one_space(cloud: Cloud) -> None:
    body = {"keypair": {"name": "wide", "public_key": PUBLIC_KEY.replace(" ", "  ")}}
    assert cloud.demo.post(URL, json=body).json()["keypair"]["fingerprint"] == FINGERPRINT


def test_below_2_2_there_are_no_types_and_other_codes(cloud: Cloud) -> None:
    client = cloud.client("ann:demo:member", "2.1")
    answer = client.post(URL, json={"keypair": {"name": "kp1", "public_key": PUBLIC_KEY}})
    assert answer.status_code == 200
    assert "type" not in answer.json()["keypair"]
    assert client.delete(f"{URL}/kp1").status_code == 202


def test_without_a_public_key_a_pair_is_made_until_2_91(cloud: Cloud) -> None:
    body = {"keypair": {"name": "kp1"}}
    assert cloud.client("ann:demo:member", "2.92").post(URL, json=body).status_code == 400
    made = cloud.client("ann:demo:member", "2.91").post(URL, json=body).json()["keypair"]
    private = serialization.load_pem_private_key(made["private_key"].encode(), None)
    public = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    assert made["public_key"].startswith(public.decode())
    assert "private_key" not in cloud.demo.get(f"{URL}/kp1").json()["keypair"]


def test_keypairs_are_a_users_own(cloud: Cloud) -> None:
    cloud.keypair("mine")
    assert names(cloud, "bob:demo:member") == []
    assert cloud.client("bob:demo:member").get(f"{URL}/mine").status_code == 404
    assert cloud.client("bob:demo:member").get(f"{URL}/mine?user_id=ann").status_code == 403
    assert cloud.client("bob:demo:member").delete(f"{URL}/mine?user_id=ann").status_code == 403
    assert names(cloud, ADMIN, query="?user_id=ann") == ["mine"]
    body = {"keypair": {"name": "given", "public_key": PUBLIC_KEY, "user_id": "ann"}}
    assert cloud.admin.post(URL, json=body).json()["keypair"]["user_id"] == "ann"
    assert cloud.client("bob:demo:member").post(URL, json=body).status_code == 403


def test_a_name_that_is_taken_is_409(any_cloud: Cloud) -> None:
    any_cloud.keypair("kp1")
    answer = any_cloud.demo.post(URL, json={"keypair": {"name": "kp1", "public_key": PUBLIC_KEY}})
    assert (answer.status_code, answer.headers["X-Pinfold-Error"]) == (409, "keypair-exists")


@pytest.mark.parametrize(
    "fields",
    [
        {"public_key": "ssh-rsa nonsense"},
        {"public_key": ""},
        {"public_key": CERTIFICATE},
        {"public_key": CERTIFICATE, "type": "x509"},
        {"type": "x509"},
        {"public_key": PUBLIC_KEY, "type": "gpg"},
        {"public_key": PUBLIC_KEY, "name": "a/b"},
        {"public_key": PUBLIC_KEY, "name": " a"},
        {"public_key": PUBLIC_KEY, "name": "a@b"},
        {"public_key": PUBLIC_KEY, "other": 1},
    ],
)
def test_what_is_no_key_is_400(cloud: Cloud, fields: dict[str, object]) -> None:
    before = cloud.everything()
    answer = cloud.client("ann:demo:member", "2.91").post(URL, json={"keypair": {"name": "kp1", **fields}})
    assert answer.status_code == 400, answer.text
    assert cloud.everything() == before


def test_from_2_92_on_names_may_have_dots_and_ats(cloud: Cloud) -> None:
    body = {"keypair": {"name": "a.b@c", "public_key": PUBLIC_KEY}}
    assert cloud.client("ann:demo:member", "2.92").post(URL, json=body).status_code == 201


def test_from_2_35_on_lists_are_paged(any_cloud: Cloud) -> None:
    for name in "cab":
        any_cloud.keypair(name)
    assert names(any_cloud) == ["a", "b", "c"]
    document = any_cloud.demo.get(f"{URL}?limit=2").json()
    href = document["keypairs_links"][0]["href"]
    assert [item["keypair"]["name"] for item in any_cloud.demo.get(href).json()["keypairs"]] == ["c"]
    assert any_cloud.demo.get(f"{URL}?marker=nope").status_code == 400
    assert names(any_cloud, version="2.34", query="?limit=1") == ["a", "b", "c"]
    assert any_cloud.client("ann:demo", "2.75").get(f"{URL}?other=1").status_code == 400


def test_a_user_has_no_more_than_the_quota(any_cloud: Cloud) -> None:
    for name in "ab":
        any_cloud.keypair(name)
    any_cloud.admin.put("/v2.1/os-quota-sets/demo", json={"quota_set": {"key_pairs": 2}})
    answer = any_cloud.demo.post(URL, json={"keypair": {"name": "c", "public_key": PUBLIC_KEY}})
    assert answer.status_code == 403
    assert "key_pairs of the user" in answer.json()["forbidden"]["message"]


def test_parallel_imports_against_room_for_one_leave_one(cloud: Cloud) -> None:
    cloud.admin.put("/v2.1/os-quota-sets/demo", json={"quota_set": {"key_pairs": 1}})
    codes: list[int] = []

    def post(name: str) -> None:
        body = {"keypair": {"name": name, "public_key": PUBLIC_KEY}}
        codes.append(cloud.client("ann:demo:member").post(URL, json=body).status_code)

    tasks = [cloud.runtime.spawn(post, f"k{n}", name=str(n)) for n in range(8)]
    assert all(task.join(60) for task in tasks)
    assert sorted(codes) == [201] + [403] * 7


def test_a_server_is_made_with_a_key_that_the_user_has(cloud: Cloud) -> None:
    answer = cloud.demo.post("/v2.1/servers", json=cloud.body(key_name="none"))
    assert answer.status_code == 400
    assert "key_name" in answer.text
    cloud.keypair("kp1")
    server = cloud.ask(key_name="kp1")
    cloud.demo.delete(f"{URL}/kp1")
    assert cloud.show(server)["key_name"] == "kp1"
