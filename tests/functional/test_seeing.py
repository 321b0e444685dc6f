"""What an operator sees of one request: the same id in every log, its waits and steps, and numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx

from devstack.client import until
from tests.functional.harness import Cloud

SOON = 20.0


def asked(cloud: Cloud) -> tuple[str, str, str]:
    """A server that runs: (request, server, operation) ids."""
    body = {"server": {"name": "seen", "flavorRef": "p2", "imageRef": cloud.image, "networks": "none"}}
    answer = cloud.client.request("POST", "/v2.1/servers", body)
    request, server = answer.headers["x-openstack-request-id"], answer.json()["server"]["id"]
    cloud.client.wait(server, "ACTIVE")
    (operation,) = cloud.client.get(f"/pinfold/v1/operations?server={server}")["operations"]
    return request, server, operation["id"]


def lines(cloud: Cloud, request: str) -> dict[str, list[str]]:
    """The lines that name a request, by the package that wrote them."""
    found: dict[str, list[str]] = {}
    for path in Path(cloud.layout.log).glob("*.log"):
        for line in path.read_text(errors="replace").splitlines():
            if request in line:
                logger = re.search(r"(?:INFO|WARNING|DEBUG) (pinfold\.\w+)", line)
                found.setdefault(logger[1] if logger else "?", []).append(line)
    return found


def test_one_request_id_leads_through_the_logs_of_all_services(cloud: Cloud) -> None:
    request, _server, operation = asked(cloud)
    until(
        lambda: {"pinfold.api", "pinfold.conductor", "pinfold.compute"} <= set(lines(cloud, request)),
        lambda: f"{lines(cloud, request)}",
        SOON,
    )
    found = lines(cloud, request)
    for package in ("pinfold.conductor", "pinfold.compute"):
        assert all(f"[{request} {operation} " in line for line in found[package]), found[package]
    assert f"[{request} {operation} admin admin]" in found["pinfold.api"][-1]


def test_no_line_of_an_operation_names_another_request(cloud: Cloud) -> None:
    request, server, operation = asked(cloud)
    for path in Path(cloud.layout.log).glob("*.log"):
        for line in path.read_text(errors="replace").splitlines():
            if f"{operation} (" in line or f" {operation} " in line:
                assert request in line, line
    cloud.client.delete(server)


def test_the_operation_shows_each_wait_and_step(cloud: Cloud) -> None:
    _request, _server, operation = asked(cloud)
    shown = cloud.client.get(f"/pinfold/v1/operations/{operation}")
    names = [(span["what"], span["name"]) for span in shown["timeline"]]
    assert names[0] == ("wait", "conductor")
    for span in (
        ("step", "schedule"),
        ("wait", "queue"),
        ("wait", "lock"),
        ("step", "claim"),
        ("step", "spawn"),
    ):
        assert span in names
    assert all(span["seconds"] >= 0 and not span["open"] for span in shown["timeline"])
    assert (
        sum(span["seconds"] for span in shown["timeline"] if span["what"] == "step")
        <= shown["seconds"] + 0.01
    )


def test_the_operator_s_command_tells_it_in_lines(cloud: Cloud) -> None:
    request, server, operation = asked(cloud)
    done = cloud.manage("operation", "show", operation)
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first == f"Operation {operation}: create of server {server}"
    assert request in done.stdout
    assert any(re.search(r"\+ +\d+\.\d{3} s  step  spawn +\d+\.\d{3} s", line) for line in rest), rest
    assert any("wait  until somebody took it up" in line for line in rest)
    raw = json.loads(cloud.manage("operation", "show", "--json", operation).stdout)
    assert raw["request_id"] == request


def test_metrics_count_what_happens(cloud: Cloud) -> None:
    asked(cloud)
    wanted = [
        'pinfold_operations{kind="create",result="succeeded"}',
        'pinfold_operation_seconds_bucket{kind="create",le="0.5",result="succeeded"}',
        'pinfold_cpus_free{cell="0",node="host-1"}',
        "pinfold_claims{node=",
        'pinfold_request_seconds_count{method="POST",route="/v2.1/servers",status="202"}',
    ]
    if not cloud.multi:
        wanted += [
            'pinfold_queue_wait_seconds_count{host="host-',
            'pinfold_lock_wait_seconds_count{host="host-',
            'pinfold_step_seconds_bucket{host="host-',
            'pinfold_sweeps_total{result="done",sweep="operations"}',
            'pinfold_claims_asked_total{outcome="accepted"}',
            "# TYPE pinfold_lease_losses_total counter",
        ]
    text = ""

    def shown() -> bool:
        nonlocal text
        text = httpx.get(f"{cloud.url}/metrics", timeout=10).text
        return all(name in text for name in wanted)

    until(shown, lambda: f"{[name for name in wanted if name not in text]}", SOON, poll=0.5)
