"""Servers over HTTP."""

from __future__ import annotations

from tests.http.cloud import MISSING, Cloud


def test_a_new_server_is_shown_as_building_and_scheduling(cloud: Cloud) -> None:
    shown = cloud.show(cloud.ask())
    assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("BUILD", "scheduling")
    assert (shown["OS-EXT-SRV-ATTR:host"], shown["hostId"], shown["addresses"]) == (None, "", {})


def test_a_server_that_runs_is_shown_with_its_host(any_cloud: Cloud) -> None:
    shown = any_cloud.show(any_cloud.boot())
    assert (
        shown["status"],
        shown["OS-EXT-STS:power_state"],
        shown["fault"] if "fault" in shown else None,
    ) == ("ACTIVE", 1, None)
    assert shown["OS-EXT-SRV-ATTR:host"] in ("n1", "n2")
    assert shown["host_status"] == "UP"


def test_a_missing_server_is_404(cloud: Cloud) -> None:
    answer = cloud.demo.get(f"/v2.1/servers/{MISSING}")
    assert answer.status_code == 404
    assert answer.json() == {
        "itemNotFound": {"code": 404, "message": f"Instance {MISSING} could not be found."}
    }


def test_shelve_unshelve_and_delete(any_cloud: Cloud) -> None:
    cloud = any_cloud
    server = cloud.boot()
    assert cloud.act(server, "shelve").status_code == 202
    assert cloud.show(server)["OS-EXT-STS:task_state"] == "shelving"
    assert cloud.demo.delete(f"/v2.1/servers/{server}").status_code == 204
