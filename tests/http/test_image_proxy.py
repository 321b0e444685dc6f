"""Images as the compute API used to show them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.http.cloud import ADMIN, MISSING, Cloud

URL = "/v2.1/images"


@pytest.fixture
def old(cloud: Cloud) -> httpx.Client:
    """The demo user, who speaks as clients did long ago."""
    return cloud.client("ann:demo:member", "2.1")


def ids(client: httpx.Client, query: str = "") -> list[str]:
    answer = client.get(f"{URL}/detail{query}")
    assert answer.status_code == 200, answer.text
    return [image["id"] for image in answer.json()["images"]]


def mine(cloud: Cloud, **properties: str) -> str:
    body: dict[str, Any] = {"name": "mine", "disk_format": "raw", "container_format": "bare", "min_ram": 64}
    image: str = cloud.demo.post("/image/v2/images", json=body | properties).json()["id"]
    return image


def test_an_image_is_shown(cloud: Cloud, old: httpx.Client) -> None:
    shown = old.get(f"{URL}/{cloud.tiny}").json()["image"]
    assert set(shown) == {
        *("id", "name", "minRam", "minDisk", "metadata", "created", "updated", "status", "progress", "links"),
        "OS-EXT-IMG-SIZE:size",
    }
    assert (shown["status"], shown["progress"], shown["OS-EXT-IMG-SIZE:size"]) == ("ACTIVE", 100, 15)
    assert [link["rel"] for link in shown["links"]] == ["self", "bookmark", "alternate"]
    assert set(old.get(URL).json()["images"][0]) == {"id", "name", "links"}
    assert old.get(f"{URL}/{MISSING}").json()["itemNotFound"]["message"] == "Image not found."


def test_the_image_of_a_server_names_it(cloud: Cloud, old: httpx.Client) -> None:
    image = mine(cloud, instance_uuid=MISSING)
    shown = old.get(f"{URL}/{image}").json()["image"]
    assert (shown["server"]["id"], shown["status"]) == (MISSING, "SAVING")
    assert ids(old, f"?server={MISSING}") == ids(old, f"?server=http://x/servers/{MISSING}") == [image]


def test_lists_are_filtered_and_paged(cloud: Cloud, old: httpx.Client) -> None:
    image = mine(cloud, kind="x")
    assert ids(old) == [image, cloud.tiny]
    for query in ("name=mine", "status=saving", "minRam=64", "property-kind=x"):
        assert ids(old, f"?{query}") == [image], query
    for query in ("status=active", "changes-since=2100-01-01T00:00:00Z", "minDisk=9", "type=snapshot"):
        assert image not in ids(old, f"?{query}")
    document = old.get(f"{URL}?limit=1").json()
    following = old.get(document["images_links"][0]["href"]).json()["images"]
    assert [row["id"] for row in following] == [cloud.tiny]
    for query in ("limit=x", "marker=x", "changes-since=x"):
        assert old.get(f"{URL}?{query}").status_code == 400


def test_metadata_is_read_and_changed_by_the_owner(cloud: Cloud, old: httpx.Client) -> None:
    url = f"{URL}/{mine(cloud, kind='x')}/metadata"
    assert old.get(url).json() == {"metadata": {"kind": "x"}}
    assert old.post(url, json={"metadata": {"a": "b"}}).json() == {"metadata": {"kind": "x", "a": "b"}}
    assert old.put(f"{url}/a", json={"meta": {"a": "c"}}).json() == {"meta": {"a": "c"}}
    assert old.put(f"{url}/a", json={"meta": {"b": "c"}}).status_code == 400
    assert old.get(f"{url}/a").json() == {"meta": {"a": "c"}}
    assert (old.delete(f"{url}/a").status_code, old.delete(f"{url}/a").status_code) == (204, 404)
    assert old.put(url, json={"metadata": {"z": "1"}}).json() == {"metadata": {"z": "1"}}
    many = {"metadata": {str(number): "x" for number in range(200)}}
    assert old.put(url, json=many).status_code == 403
    assert cloud.client("bob:other:member", "2.1").get(url).status_code == 404
    assert old.post(f"{URL}/{cloud.tiny}/metadata", json={"metadata": {"a": "b"}}).status_code == 403


def test_an_image_is_deleted_by_its_owner(cloud: Cloud, old: httpx.Client) -> None:
    image = mine(cloud)
    assert old.delete(f"{URL}/{cloud.tiny}").status_code == 403
    assert (old.delete(f"{URL}/{image}").status_code, old.delete(f"{URL}/{image}").status_code) == (204, 404)


def test_it_ended_with_2_36_and_its_metadata_with_2_39(cloud: Cloud) -> None:
    for version, images, metadata in (("2.35", 200, 200), ("2.36", 404, 200), ("2.39", 404, 404)):
        client = cloud.client(ADMIN, version)
        assert client.get(URL).status_code == images
        assert client.get(f"{URL}/detail").status_code == images
        assert client.get(f"{URL}/{cloud.tiny}").status_code == images
        assert client.get(f"{URL}/{cloud.tiny}/metadata").status_code == metadata
