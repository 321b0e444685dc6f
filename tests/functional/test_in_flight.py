"""Every kind of operation in flight at once when its worker dies: all are settled in time, and the audit is clean.

Each hangs in a call of the hypervisor, so that nothing but the death of its worker can end it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from devstack.client import pins, until
from devstack.story import write_faults
from tests.functional.harness import Cloud, check_books, only_multi

HOST, OTHER = "host-1", "host-2"
#: Within this time of the kill, with the worker supervised and back.
SUPERVISED = 30.0
#: With its host staying dead, beyond the lease of 15 s.
STAYS_DEAD = 15.0 + 30.0


class Flight(msgspec.Struct, frozen=True):
    """``ready`` makes a server on HOST what it must be; ``ask`` starts the operation, which hangs in ``call``."""

    call: str
    ask: Callable[[Cloud, str], None]
    ready: Callable[[Cloud, str], None] = lambda cloud, server: None


def _acts(action: str, argument: Any = None) -> Callable[[Cloud, str], None]:
    return lambda cloud, server: cloud.client.act(server, action, argument)


def _stop(cloud: Cloud, server: str) -> None:
    cloud.client.act(server, "os-stop")
    cloud.client.wait(server, "SHUTOFF")


def _move_away(cloud: Cloud, server: str) -> None:
    cloud.client.act(server, "migrate", {"host": OTHER})
    cloud.client.wait(server, "VERIFY_RESIZE")


FLIGHTS = {
    "stop": Flight("power_off", _acts("os-stop")),
    "start": Flight("power_on", _acts("os-start"), _stop),
    "reboot": Flight("reboot", _acts("reboot", {"type": "SOFT"})),
    "pause": Flight("pause", _acts("pause")),
    "suspend": Flight("suspend", _acts("suspend")),
    "image": Flight("snapshot", _acts("createImage", {"name": "in-flight"})),
    "shelve": Flight("snapshot", _acts("shelve")),
    "unshelve": Flight("spawn", _acts("unshelve", {"host": HOST}), Cloud.offload),
    "rebuild": Flight(
        "rebuild", lambda cloud, server: cloud.client.act(server, "rebuild", {"imageRef": cloud.image})
    ),
    "resize": Flight("migrate_disk", _acts("resize", {"flavorRef": "p2"})),
    "confirm": Flight("confirm_migration", _acts("confirmResize"), _move_away),
    "revert": Flight("revert_migration", _acts("revertResize"), _move_away),
    "delete": Flight("destroy", lambda cloud, server: cloud.client.delete(server)),
}


def take_off(cloud: Cloud) -> dict[str, str]:
    """Start them all, and wait until each hangs; the servers, by what is in flight."""
    servers = {name: cloud.ask(name, "p1") for name in FLIGHTS}
    for server in servers.values():
        cloud.client.wait(server, "ACTIVE", seconds=60)
    for name, flight in FLIGHTS.items():
        flight.ready(cloud, servers[name])
    hangs = [
        {"call": flight.call, "effect": "hang", "host": HOST, "server": servers[name], "times": None}
        for name, flight in FLIGHTS.items()
    ]
    write_faults(
        cloud.layout.faults, *hangs, {"call": "spawn", "effect": "hang", "host": HOST, "times": None}
    )
    for name, flight in FLIGHTS.items():
        flight.ask(cloud, servers[name])
    servers["create"] = cloud.ask("create", "p1")
    calls = {name: flight.call for name, flight in FLIGHTS.items()} | {"create": "spawn"}

    def hanging() -> bool:
        return all(_step(cloud, servers[name]) == call for name, call in calls.items())

    until(
        hanging,
        lambda: f"not in flight: { {name: _step(cloud, server) for name, server in servers.items()} }",
        60,
    )
    return servers


def _step(cloud: Cloud, server: str) -> str | None:
    """The step of the operation that is open."""
    return next(
        (work["step"] for work in cloud.client.operations(server) if work["state"] == "running"), None
    )


def await_settled(cloud: Cloud, servers: dict[str, str], seconds: float) -> None:
    """No operation of theirs is open, and none is in a task state."""

    def open_ones() -> list[str]:
        return [name for name, server in servers.items() if _step(cloud, server) is not None]

    until(lambda: not open_ones(), lambda: f"still open: {open_ones()}", seconds)
    shown = {server["id"]: server for server in cloud.client.servers()}
    for name, server in servers.items():
        if server in shown:
            assert shown[server]["OS-EXT-STS:task_state"] is None, name
    assert servers["delete"] not in shown


def land(cloud: Cloud) -> None:
    """What went on to its end is ended by its user, too; then all is as the book says."""
    for server in cloud.client.servers():
        if server["status"] == "VERIFY_RESIZE":
            cloud.client.act(server["id"], "confirmResize")
            cloud.client.wait(server["id"], "ACTIVE", "SHUTOFF")
    for image in cloud.shelved_images():
        if image["name"] == "in-flight":
            cloud.client.request("DELETE", f"/image/v2/images/{image['id']}")
    check_books(cloud, 60)
    cloud.audit()


@only_multi
def test_every_operation_in_flight_is_settled_when_its_worker_was_killed_and_is_back(cloud: Cloud) -> None:
    """F022: kill -9; the supervisor starts another."""
    servers = take_off(cloud)
    cloud.kill("compute-host-1")
    write_faults(cloud.layout.faults)
    await_settled(cloud, servers, SUPERVISED)
    land(cloud)


@only_multi
def test_every_operation_in_flight_is_settled_when_its_host_stays_dead(cloud: Cloud) -> None:
    """F022, R1: what it held stays taken until it has looked; then everything is as the book says."""
    servers = take_off(cloud)
    held = pins(cloud.client.node(HOST))
    cloud.stop_at_once("compute-host-1")
    try:
        await_settled(cloud, servers, STAYS_DEAD)
        assert pins(cloud.client.node(HOST)) == held
    finally:
        write_faults(cloud.layout.faults)
        cloud.resume()
    cloud.await_healthy()
    land(cloud)
