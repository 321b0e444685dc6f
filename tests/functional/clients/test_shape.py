"""How answers are compared."""

from __future__ import annotations

from typing import Any

import pytest

from tests.functional.clients import shape


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/v2.1/servers/11111111-1111-4111-8111-111111111111", "/v2.1/servers/{id}"),
        ("/v2.1/os-aggregates/36/action", "/v2.1/os-aggregates/{n}/action"),
        ("/v2.1/servers/detail?name=a&deleted=False", "/v2.1/servers/detail?deleted=False&name=a"),
        ("/v2/images?id=in%3A11111111-1111-4111-8111-111111111111", "/v2/images?id=in:{id}"),
        (
            "/v2.1/u/aabf9ac3c7a74e6db973399820fd2ae2?start=2026-11-02T16%3A36%3A21.8",
            "/v2.1/u/{id}?start={time}",
        ),
        (
            "/v2.1/servers/{id}/os-instance-actions/req-{id}",
            "/v2.1/servers/{id}/os-instance-actions/req-{id}",
        ),
    ],
)
def test_what_differs_each_time_is_left_out(path: str, shown: str) -> None:
    assert shape.where("GET", path, "2.1") == f"GET {shown} [2.1]"


@pytest.mark.parametrize(
    ("nova", "ours", "found"),
    [
        ({"a": 1}, {"a": 2}, []),
        ({"a": 1}, {"a": "1"}, ["a is a text, Nova's a number"]),
        ({"a": True}, {"a": 1}, ["a is a number, Nova's a boolean"]),
        ({"a": None}, {"a": {"b": 1}}, []),
        ({"a": 1}, {}, ["a is absent"]),
        ({}, {"a": 1}, ["a is there, and not in Nova's"]),
        ({"l": []}, {"l": [1]}, []),
        ({"l": [{"a": 1}, {"b": 1}]}, {"l": [{"b": 1}]}, ["l[].a is absent"]),
        ({"s": {"metadata": {"k": "v"}}}, {"s": {"metadata": {}}}, []),
        ({"server": {"progress": 0}}, {"server": {}}, []),
        ({}, {"servers_links": []}, []),
        ("", {"id": "x"}, ["the answer is an object, Nova's a text"]),
    ],
)
def test_fields_and_types_are_compared(nova: Any, ours: Any, found: list[str]) -> None:
    assert list(shape.differences(nova, ours)) == found
