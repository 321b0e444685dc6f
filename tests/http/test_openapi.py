"""The document says what the table of routes says."""

from __future__ import annotations

import jsonschema
import pytest

from pinfold.api import openapi, schemas, server_actions
from pinfold.api.app import ROUTES
from pinfold.api.route import Route
from tests.http.cloud import Cloud


def test_every_route_is_in_the_document_and_nothing_else(cloud: Cloud) -> None:
    document = cloud.client(None).get("/openapi.json").json()
    written = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert written == {(route.method, route.path) for route in ROUTES}
    assert document["servers"] == [{"url": "http://cloud:8774"}]


def test_no_two_operations_have_one_id(cloud: Cloud) -> None:
    paths = cloud.client(None).get("/openapi.json").json()["paths"].values()
    ids = [operation["operationId"] for item in paths for operation in item.values()]
    assert sorted(ids) == sorted(set(ids))


@pytest.mark.parametrize("route", [route for route in ROUTES if route.body], ids=lambda route: route.path)
def test_bodies_have_the_schemas_that_requests_are_checked_with(cloud: Cloud, route: Route) -> None:
    item = cloud.client(None).get("/openapi.json").json()["paths"][route.path][route.method.lower()]
    assert route.body is not None
    schema = item["requestBody"]["content"][route.media[0]]["schema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    versions = route.body.versions()
    if route.body is schemas.ACTION:
        named = {name for action in schema["anyOf"] for name in action["properties"]}
        assert named == set(server_actions.ACTIONS)
    else:
        found = [openapi.published(version[2]) for version in versions]
        assert schema in (found[0], {"anyOf": found})
    assert versions[0][0] == 1
    assert versions[-1][1] == 104


def test_every_route_says_what_it_does_and_which_codes_it_gives(cloud: Cloud) -> None:
    for item in cloud.client(None).get("/openapi.json").json()["paths"].values():
        for operation in item.values():
            assert operation["summary"].endswith((".", ":", ";")), operation["operationId"]
            assert operation["responses"]


def test_no_regular_expression_is_python_s_own(cloud: Cloud) -> None:
    assert r"\\Z" not in cloud.client(None).get("/openapi.json").text
