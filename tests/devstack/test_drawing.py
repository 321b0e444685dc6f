"""A node's CPUs as a line of text."""

from __future__ import annotations

from typing import Any

from devstack.drawing import draw


def cell(cpus: list[int], shared: list[int], **pins: str) -> dict[str, Any]:
    dedicated = [cpu for cpu in cpus if cpu not in shared]
    return {"cpus": cpus, "dedicated": dedicated, "pins": {cpu[1:]: owner for cpu, owner in pins.items()}}


def test_each_cpu_shows_whose_it_is() -> None:
    node = {"cells": [cell([0, 1, 2, 3], [0], _1="id-a", _3="other"), cell([4, 5], [])]}
    assert draw(node, {"id-a": "a"}) == "[~a·#|··]"


def test_a_large_node_is_drawn_as_counts() -> None:
    node = {"cells": [cell(list(range(64)), [0, 1], _5="id-a"), cell(list(range(64, 128)), [])]}
    assert draw(node, {"id-a": "a"}) == "[1 of 62|0 of 64]"
