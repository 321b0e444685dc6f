"""What a new user sees first."""

from __future__ import annotations

import pytest

from devstack import story
from tests.functional.harness import Cloud, check_books


def test_the_story_is_told_to_its_end(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    story.tell(cloud.client, cloud.layout.faults)
    told = capsys.readouterr().out
    assert "in the API alone, no message sent" in told
    assert "all totals are as at the start" in told
    check_books(cloud)


def test_the_story_is_told_again_beside_the_servers_of_others(cloud: Cloud) -> None:
    others = [cloud.boot("other", "p2"), cloud.boot("shared", "s2", "host-2")]
    before = cloud.client.nodes()
    story.tell(cloud.client, cloud.layout.faults)
    now = cloud.client.nodes()
    assert {name: story.totals(node) for name, node in now.items()} == {
        name: story.totals(node) for name, node in before.items()
    }
    for server in others:
        assert cloud.client.server(server)["status"] == "ACTIVE"
