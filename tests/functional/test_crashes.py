"""kill -9 of each process in the middle of each operation: nothing is stuck, leaked or doubled."""

from __future__ import annotations

import os
import signal

import pytest

from devstack import processes, rabbit
from devstack.client import until
from devstack.story import write_faults
from tests.functional.harness import Cloud, check_books, only_all_in_one, only_multi
from tests.servers import forget_consumers

#: F022: within this time of the restart no task is left.
SETTLED = 30.0


def kill_in(cloud: Cloud, service: str) -> None:
    """Kill a process while a hypervisor call of it hangs, let go of the call, and wait for its successor."""
    old = cloud.kill(service)
    write_faults(cloud.layout.faults)
    cloud.await_replaced(service, old)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_killed_in_a_snapshot(cloud: Cloud, when: str) -> None:
    """F022: the shelve ends, one way or the other, and the next action is accepted."""
    server = cloud.boot("server", "p4")
    with cloud.fault("snapshot", "hang", when=when):
        cloud.client.act(server, "shelve")
        cloud.await_task(server, "shelving_image_uploading")
        kill_in(cloud, "compute-host-1")
    shown = cloud.client.settled(server, SETTLED)
    assert shown["status"] in ("ACTIVE", "SHELVED_OFFLOADED")
    check_books(cloud)
    if shown["status"] == "ACTIVE":
        cloud.offload(server)
    cloud.unshelve(server)
    check_books(cloud)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_killed_in_the_spawn_of_an_unshelve(cloud: Cloud, when: str) -> None:
    """F022: it runs, or it is offloaded without a claim."""
    server = cloud.boot("server", "p4")
    cloud.offload(server)
    with cloud.fault("spawn", "hang", when=when):
        cloud.client.act(server, "unshelve", {"host": "host-1"})
        cloud.await_pins(server)
        cloud.await_task(server, "spawning")
        kill_in(cloud, "compute-host-1")
    shown = cloud.client.settled(server, SETTLED)
    assert shown["status"] in ("ACTIVE", "SHELVED_OFFLOADED")
    check_books(cloud)
    if shown["status"] == "SHELVED_OFFLOADED":
        cloud.unshelve(server)
    cloud.offload(server)
    check_books(cloud)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_killed_in_the_spawn_of_a_create(cloud: Cloud, when: str) -> None:
    with cloud.fault("spawn", "hang", when=when):
        server = cloud.ask("server", "p4")
        cloud.await_pins(server)
        cloud.await_task(server, "spawning")
        kill_in(cloud, "compute-host-1")
    shown = cloud.client.settled(server, SETTLED)
    assert shown["status"] in ("ACTIVE", "ERROR")
    check_books(cloud)
    cloud.delete(server)
    check_books(cloud)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_killed_in_a_delete(cloud: Cloud, when: str) -> None:
    server = cloud.boot("server", "p8")
    with cloud.fault("destroy", "hang", when=when):
        cloud.client.delete(server)
        cloud.await_task(server, "deleting")
        kill_in(cloud, "compute-host-1")
    cloud.client.wait_gone(server, SETTLED)
    cloud.await_unused()
    check_books(cloud)
    assert len(cloud.pins(cloud.boot("next", "p8"))["host-1"]) == 8


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_killed_in_an_offload(cloud: Cloud, when: str) -> None:
    server = cloud.boot("server", "p4")
    with cloud.fault("destroy", "hang", when=when):
        cloud.client.act(server, "shelve")
        cloud.await_task(server, "shelving_offloading")
        kill_in(cloud, "compute-host-1")
    assert cloud.client.settled(server, SETTLED)["status"] == "SHELVED_OFFLOADED"
    cloud.await_unused()
    check_books(cloud)
    cloud.unshelve(server)


@only_multi
def test_both_conductors_killed_in_an_unshelve(cloud: Cloud) -> None:
    """The worker goes on by itself, and finishes with whichever conductor comes back first."""
    server = cloud.boot("server", "p4")
    cloud.offload(server)
    with cloud.fault("spawn", "hang", server=server):
        cloud.client.act(server, "unshelve", {"host": "host-1"})
        cloud.await_pins(server)
        old = [cloud.kill("conductor-1"), cloud.kill("conductor-2")]
    cloud.await_replaced("conductor-1", old[0])
    cloud.await_replaced("conductor-2", old[1])
    assert cloud.client.settled(server, SETTLED)["status"] in ("ACTIVE", "SHELVED_OFFLOADED")
    check_books(cloud)


@only_multi
def test_the_api_killed_right_after_it_accepted(cloud: Cloud) -> None:
    """The operation is in the book: somebody carries it on."""
    server = cloud.boot("server", "p4")
    cloud.client.act(server, "shelve")
    old = cloud.kill("api")
    cloud.await_replaced("api", old)
    assert cloud.client.settled(server, SETTLED)["status"] == "SHELVED_OFFLOADED"
    check_books(cloud)


@only_multi
def test_one_of_two_conductors_is_enough(cloud: Cloud) -> None:
    cloud.stop("conductor-2")
    try:
        server = cloud.boot("server", "p4")
        cloud.offload(server)
        cloud.unshelve(server)
        cloud.delete(server)
    finally:
        cloud.resume()
    check_books(cloud)


@only_multi
def test_two_conductors_side_by_side_share_the_work(cloud: Cloud) -> None:
    """Twelve servers at once: nothing is done twice, and each operation was cast once."""
    servers = [cloud.ask(f"server-{number}", "p2", host=None) for number in range(12)]
    for server in servers:
        cloud.client.wait(server, "ACTIVE")
    check_books(cloud)
    for server in servers:
        cloud.client.act(server, "shelve")
    for server in servers:
        cloud.client.wait(server, "SHELVED_OFFLOADED")
    assert len(cloud.shelved_images()) == 12
    check_books(cloud)


@only_multi
def test_an_action_for_a_worker_that_is_down_is_refused_or_carried_out_once(cloud: Cloud) -> None:
    """F021: and after its return the server takes actions as before."""
    server = cloud.boot("server", "p4")
    cloud.stop("compute-host-1")
    try:
        answer = cloud.client.action(server, "shelve")
        assert answer.status_code in (202, 409)
    finally:
        cloud.resume()
    cloud.await_healthy()
    shown = cloud.client.settled(server, SETTLED)
    if answer.status_code == 409:
        assert shown["status"] == "ACTIVE"
        cloud.offload(server)
    assert cloud.client.wait(server, "SHELVED_OFFLOADED")
    assert len(cloud.shelved_images()) == 1
    cloud.unshelve(server)
    check_books(cloud)


@only_multi
def test_a_server_on_a_dead_host_is_deleted_and_its_pins_stay_until_the_host_is_back(cloud: Cloud) -> None:
    server = cloud.boot("server", "p4")
    held = cloud.used()
    cloud.stop("compute-host-1")
    try:
        until(lambda: cloud.client.node("host-1")["state"] == "down", lambda: "host-1 is not down", 30)
        cloud.delete(server)
        assert cloud.used() == held
        assert cloud.where(server) == ["host-1"]
    finally:
        cloud.resume()
    cloud.await_unused()
    check_books(cloud)


@only_multi
def test_a_worker_that_hears_nothing_is_replaced_and_then_does_what_was_asked_of_it(cloud: Cloud) -> None:
    """F048: its connection is well, and the broker has forgotten that it takes from its queue."""
    server = cloud.boot("server", "p4")
    old = cloud.pid("compute-host-1")
    broker = cloud.state.servers[rabbit.NAME]
    rabbit.control(cloud.layout, broker, *forget_consumers("compute.host-1"))
    cloud.client.act(server, "shelve")
    cloud.await_replaced("compute-host-1", old, 60)
    assert cloud.client.settled(server, SETTLED)["status"] == "SHELVED_OFFLOADED"
    check_books(cloud)


@only_all_in_one
def test_everything_killed_at_once_comes_back_with_every_server(cloud: Cloud) -> None:
    kept, shelved = cloud.boot("kept", "p4"), cloud.boot("shelved", "p2")
    cloud.offload(shelved)
    held = cloud.pins(kept)
    old = cloud.kill("all-in-one")
    cloud.await_replaced("all-in-one", old)
    assert cloud.pins(kept) == held
    cloud.unshelve(shelved)
    check_books(cloud)


@only_multi
@pytest.mark.parametrize("which", ["broker", "database"])
def test_the_broker_or_the_database_killed_and_started_again(cloud: Cloud, which: str) -> None:
    """Nobody is restarted for it; what is asked for afterwards is done."""
    server = rabbit.NAME if which == "broker" else cloud.database
    if server is None:
        pytest.skip("SQLite is a file: there is no server to kill")
    kept = cloud.boot("kept", "p4")
    pids = {name: cloud.pid(name) for name in cloud.options.services}
    process = cloud.state.processes[server]
    for pid in processes.members(process):
        os.kill(pid, signal.SIGKILL)
    assert f"started {server}" in cloud.resume().stdout
    cloud.await_healthy(60)
    cloud.offload(kept)
    cloud.unshelve(kept)
    check_books(cloud)
    assert pids == {name: cloud.pid(name) for name in cloud.options.services}
