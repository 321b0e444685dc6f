"""The part of the Image API that clients need."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.http.cloud import MISSING, Cloud

PATCH = {"Content-Type": "application/openstack-images-v2.1-json-patch"}
BYTES = {"Content-Type": "application/octet-stream"}
IMAGES = "/image/v2/images"


def patch(client: httpx.Client, image: str, *operations: dict[str, Any]) -> httpx.Response:
    """Change an image's record."""
    return client.patch(f"{IMAGES}/{image}", json=list(operations), headers=PATCH)


def own(cloud: Cloud, **fields: Any) -> str:
    """An image of project demo, without data."""
    body = {"name": "mine", "disk_format": "raw", "container_format": "bare", **fields}
    answer = cloud.demo.post(IMAGES, json=body)
    assert answer.status_code == 201, answer.text
    image: str = answer.json()["id"]
    return image


def test_version_documents_are_300_without_a_token(cloud: Cloud) -> None:
    for path in ("/image/", "/image", "/image/v2/"):
        answer = cloud.client(None).get(path)
        assert answer.status_code == 300
        assert answer.json()["versions"][0]["status"] == "CURRENT"
        assert answer.json()["versions"][0]["links"][0]["href"] == "http://cloud:8774/image/v2/"


def test_an_image_is_queued_until_its_data_is_there(cloud: Cloud) -> None:
    image = own(cloud)
    assert cloud.demo.get(f"{IMAGES}/{image}").json()["status"] == "queued"
    assert cloud.demo.get(f"{IMAGES}/{image}/file").status_code == 204
    assert cloud.demo.put(f"{IMAGES}/{image}/file", content=b"abc", headers=BYTES).status_code == 204
    shown = cloud.demo.get(f"{IMAGES}/{image}").json()
    assert (shown["status"], shown["size"], shown["checksum"]) == (
        "active",
        3,
        "900150983cd24fb0d6963f7d28e17f72",
    )
    answer = cloud.demo.get(f"{IMAGES}/{image}/file")
    assert (answer.content, answer.headers["Content-Length"]) == (b"abc", "3")
    assert answer.headers["Content-Type"] == "application/octet-stream"


def test_the_record_has_the_fields_that_clients_read(cloud: Cloud) -> None:
    shown = cloud.demo.get(f"{IMAGES}/{cloud.tiny}").json()
    fields = {"id", "name", "status", "owner", "visibility", "protected", "size", "checksum", "disk_format"}
    fields |= {
        "container_format",
        "min_ram",
        "min_disk",
        "tags",
        "created_at",
        "updated_at",
        "self",
        "file",
        "schema",
    }
    assert fields <= set(shown)
    assert shown["file"] == f"/v2/images/{cloud.tiny}/file"


def test_free_properties_stand_beside_the_fields(cloud: Cloud) -> None:
    image = own(cloud, hw_cpu_policy="dedicated", tags=["a"])
    shown = cloud.demo.get(f"{IMAGES}/{image}").json()
    assert (shown["hw_cpu_policy"], shown["tags"], shown["visibility"]) == ("dedicated", ["a"], "shared")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"name": 5}, 400),
        ({"name": "a" * 256}, 400),
        ({"name": "a\0"}, 400),
        ({"disk_format": "floppy"}, 400),
        ({"container_format": "box"}, 400),
        ({"visibility": "all"}, 400),
        ({"visibility": "public"}, 403),
        ({"min_ram": -1}, 400),
        ({"min_disk": 2**31}, 400),
        ({"min_disk": "1"}, 400),
        ({"protected": "yes"}, 400),
        ({"tags": ["t" * 256]}, 400),
        ({"tags": "t"}, 400),
        ({"id": "x"}, 400),
        ({"owner": "other"}, 403),
        ({"status": "active"}, 403),
        ({"size": "5"}, 403),
        ({"property": 5}, 400),
        ({"property": None}, 400),
        ({"p" * 256: "x"}, 400),
        ([], 400),
        ("x", 400),
    ],
)
def test_a_bad_record_is_refused(cloud: Cloud, body: object, code: int) -> None:
    before = len(cloud.images.list())
    answer = cloud.demo.post(IMAGES, json=body)
    assert answer.status_code == code, answer.text
    assert len(cloud.images.list()) == before


def test_an_id_that_is_taken_is_409(cloud: Cloud) -> None:
    assert cloud.demo.post(IMAGES, json={"id": cloud.tiny}).status_code == 409
    assert cloud.demo.post(IMAGES, json={"id": MISSING}).json()["id"] == MISSING


def test_who_sees_which_image(cloud: Cloud) -> None:
    private = own(cloud, visibility="private", name="private")
    community = own(cloud, visibility="community", name="community")

    def names(client: httpx.Client, query: str = "") -> list[str]:
        return sorted(image["name"] for image in client.get(f"{IMAGES}{query}").json()["images"])

    assert names(cloud.demo) == ["community", "private", "tiny"]
    assert names(cloud.other) == ["tiny"]
    assert names(cloud.other, "?visibility=community") == ["community"]
    assert names(cloud.admin) == ["private", "tiny"]
    assert cloud.other.get(f"{IMAGES}/{private}").status_code == 404
    assert cloud.other.get(f"{IMAGES}/{private}/file").status_code == 404
    assert cloud.other.get(f"{IMAGES}/{community}").status_code == 200


def test_others_do_not_change_an_image_that_they_see(cloud: Cloud) -> None:
    community = own(cloud, visibility="community")
    assert cloud.other.delete(f"{IMAGES}/{community}").status_code == 403
    assert patch(cloud.other, community, {"op": "replace", "path": "/name", "value": "x"}).status_code == 403
    assert cloud.other.put(f"{IMAGES}/{community}/file", content=b"x", headers=BYTES).status_code == 403
    assert cloud.demo.delete(f"{IMAGES}/{cloud.tiny}").status_code == 403


def test_lists_are_filtered_sorted_and_paged(cloud: Cloud) -> None:
    for name in ("c", "a", "b"):
        own(cloud, name=name, os_type="linux" if name == "a" else "other")

    def names(query: str) -> list[str]:
        return [image["name"] for image in cloud.demo.get(f"{IMAGES}?{query}").json()["images"]]

    assert names("name=a") == ["a"]
    assert names("name=in:a,b&sort=name:asc") == ["a", "b"]
    assert names(f"id=in:{cloud.tiny},{MISSING}") == ["tiny"]
    assert names("status=queued&sort_key=name&sort_dir=asc") == ["a", "b", "c"]
    assert names("visibility=public") == ["tiny"]
    assert names("owner=demo&sort=name:desc") == ["c", "b", "a"]
    assert names("os_type=linux") == ["a"]
    assert names("size_min=1") == ["tiny"]
    assert len(names("created_at=gte:2020-01-01T00:00:00Z")) == 4
    document = cloud.demo.get(f"{IMAGES}?limit=3&sort=name:asc").json()
    assert [image["name"] for image in document["images"]] == ["a", "b", "c"]
    following = cloud.demo.get(f"/image{document['next']}").json()
    assert [image["name"] for image in following["images"]] == ["tiny"]
    assert "next" not in following


@pytest.mark.parametrize(
    "query",
    [
        "limit=x",
        "marker=x",
        "sort=secret",
        "sort=name:up",
        "protected=x",
        "size_min=x",
        "created_at=x",
        "x=%00",
    ],
)
def test_a_bad_parameter_is_400(cloud: Cloud, query: str) -> None:
    assert cloud.demo.get(f"{IMAGES}?{query}").status_code == 400


def test_a_record_is_changed_by_json_patch(cloud: Cloud) -> None:
    image = own(cloud, old="x")
    answer = patch(
        cloud.demo,
        image,
        {"op": "replace", "path": "/name", "value": "new"},
        {"op": "add", "path": "/a~1b", "value": "c"},
        {"op": "remove", "path": "/old"},
        {"op": "replace", "path": "/min_ram", "value": 5},
        {"op": "replace", "path": "/tags", "value": ["t"]},
    )
    assert answer.status_code == 200, answer.text
    shown = cloud.demo.get(f"{IMAGES}/{image}").json()
    assert (shown["name"], shown["a/b"], shown["min_ram"], shown["tags"]) == ("new", "c", 5, ["t"])
    assert "old" not in shown


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "replace", "path": "/status", "value": "active"}, 403),
        ({"op": "replace", "path": "/id", "value": MISSING}, 403),
        ({"op": "remove", "path": "/name"}, 403),
        ({"op": "replace", "path": "/owner", "value": "other"}, 403),
        ({"op": "replace", "path": "/visibility", "value": "public"}, 403),
        ({"op": "replace", "path": "/visibility", "value": "x"}, 400),
        ({"op": "replace", "path": "/nope", "value": "x"}, 409),
        ({"op": "remove", "path": "/nope"}, 409),
        ({"op": "move", "path": "/name", "value": "x"}, 400),
        ({"op": "add", "path": "name", "value": "x"}, 400),
        ({"op": "add", "path": "/a/b", "value": "x"}, 400),
        ({"op": "add", "path": "/a"}, 400),
        ({"op": "add", "path": "/a", "value": 5}, 400),
        ({"op": "add", "path": "/min_ram", "value": "x"}, 400),
        ({"op": "add", "path": "/tags", "value": {}}, 400),
        ({}, 400),
        ("x", 400),
    ],
)
def test_a_bad_patch_changes_nothing(cloud: Cloud, operation: Any, code: int) -> None:
    image = own(cloud)
    before = cloud.images.get(image)
    assert patch(cloud.demo, image, operation).status_code == code
    assert cloud.images.get(image) == before


def test_a_patch_must_say_that_it_is_one(cloud: Cloud) -> None:
    assert cloud.demo.patch(f"{IMAGES}/{own(cloud)}", json=[]).status_code == 415


def test_data_is_uploaded_once_and_as_bytes(cloud: Cloud) -> None:
    image = own(cloud)
    assert cloud.demo.put(f"{IMAGES}/{image}/file", json={}).status_code == 415
    assert cloud.demo.put(f"{IMAGES}/{image}/file", content=b"a", headers=BYTES).status_code == 204
    assert cloud.demo.put(f"{IMAGES}/{image}/file", content=b"b", headers=BYTES).status_code == 409
    assert cloud.demo.get(f"{IMAGES}/{image}/file").content == b"a"


def test_formats_must_be_set_before_an_upload(cloud: Cloud) -> None:
    image = cloud.demo.post(IMAGES, json={"name": "x"}).json()["id"]
    assert cloud.demo.put(f"{IMAGES}/{image}/file", content=b"a", headers=BYTES).status_code == 400


def test_data_that_is_too_large_is_413(make_cloud: Any) -> None:
    cloud = make_cloud(max_image_size=20)
    image = own(cloud)
    assert cloud.demo.put(f"{IMAGES}/{image}/file", content=b"a" * 21, headers=BYTES).status_code == 413
    assert cloud.demo.get(f"{IMAGES}/{image}").json()["status"] == "queued"


def test_protected_images_stay(cloud: Cloud) -> None:
    image = own(cloud, protected=True)
    assert cloud.demo.delete(f"{IMAGES}/{image}").status_code == 403
    assert (
        patch(cloud.demo, image, {"op": "replace", "path": "/protected", "value": False}).status_code == 200
    )
    assert cloud.demo.delete(f"{IMAGES}/{image}").status_code == 204
    assert cloud.demo.get(f"{IMAGES}/{image}").status_code == 404


def test_tags_come_and_go(cloud: Cloud) -> None:
    image = own(cloud)
    assert cloud.demo.put(f"{IMAGES}/{image}/tags/t1").status_code == 204
    assert cloud.demo.get(f"{IMAGES}/{image}").json()["tags"] == ["t1"]
    assert cloud.demo.delete(f"{IMAGES}/{image}/tags/t1").status_code == 204
    assert cloud.demo.delete(f"{IMAGES}/{image}/tags/t1").status_code == 404


@pytest.mark.parametrize("name", ["img1", MISSING, "..%2f..%2fetc", "%00", "a" * 300])
def test_what_is_no_image_is_404(cloud: Cloud, name: str) -> None:
    assert cloud.admin.get(f"{IMAGES}/{name}").status_code == 404
    assert cloud.admin.delete(f"{IMAGES}/{name}").status_code == 404


def test_schemas_are_there_for_clients_that_ask(cloud: Cloud) -> None:
    assert cloud.demo.get("/image/v2/schemas/image").json()["name"] == "image"
    assert cloud.demo.get("/image/v2/schemas/images").json()["name"] == "images"
