"""Aggregates and availability zones over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.cloud import ADMIN, Cloud

URL = "/v2.1/os-aggregates"
ZONES = "/v2.1/os-availability-zone"


def make(cloud: Cloud, name: str = "agg1", zone: str | None = None) -> int:
    body = {"aggregate": {"name": name} | ({"availability_zone": zone} if zone else {})}
    answer = cloud.admin.post(URL, json=body)
    assert answer.status_code == 200, answer.text
    number: int = answer.json()["aggregate"]["id"]
    return number


def act(cloud: Cloud, aggregate: int, **action: Any) -> Any:
    return cloud.admin.post(f"{URL}/{aggregate}/action", json=action)


def zoned(cloud: Cloud, zone: str, host: str) -> int:
    """A host in a zone."""
    aggregate = make(cloud, zone, zone)
    assert act(cloud, aggregate, add_host={"host": host}).status_code == 200
    return aggregate


# --- aggregates -------------------------------------------------------------------------------------


def test_what_the_command_line_client_sends_and_gets(any_cloud: Cloud) -> None:
    cloud = any_cloud
    client = cloud.client(ADMIN, "2.81")
    answer = client.post(URL, json={"aggregate": {"name": "agg1", "availability_zone": "az1"}})
    made = answer.json()["aggregate"]
    assert answer.status_code == 200
    assert made == {
        "id": made["id"],
        "uuid": made["uuid"],
        "name": "agg1",
        "created_at": made["created_at"],
        "updated_at": None,
        "deleted_at": None,
        "deleted": False,
        "availability_zone": "az1",
    }
    url = f"{URL}/{made['id']}"
    changed = cloud.client(ADMIN, "2.1").post(
        f"{url}/action", json={"set_metadata": {"metadata": {"p": "q"}}}
    )
    shown = changed.json()["aggregate"]
    assert shown["updated_at"] is not None
    assert {name: shown[name] for name in ("hosts", "metadata", "availability_zone")} == {
        "hosts": [],
        "metadata": {"availability_zone": "az1", "p": "q"},
        "availability_zone": "az1",
    }
    assert "uuid" not in shown
    assert client.get(f"{URL}/agg1").json()["badRequest"]["message"] == (
        "Invalid input received: id must be an integer"
    )
    assert act(cloud, made["id"], add_host={"host": "n2"}).json()["aggregate"]["hosts"] == ["n2"]
    assert client.get(URL).json()["aggregates"] == [client.get(url).json()["aggregate"]]
    assert act(cloud, made["id"], remove_host={"host": "n2"}).json()["aggregate"]["hosts"] == []
    assert (client.delete(url).status_code, client.delete(url).status_code) == (200, 404)


def test_names_are_unique_and_can_be_changed(any_cloud: Cloud) -> None:
    one, other = make(any_cloud), make(any_cloud, "agg2")
    assert any_cloud.admin.post(URL, json={"aggregate": {"name": "agg1"}}).status_code == 409
    put = any_cloud.admin.put
    assert put(f"{URL}/{other}", json={"aggregate": {"name": "agg1"}}).status_code == 409
    answer = put(f"{URL}/{one}", json={"aggregate": {"name": "new", "availability_zone": "az1"}})
    assert (answer.json()["aggregate"]["name"], answer.json()["aggregate"]["availability_zone"]) == (
        "new",
        "az1",
    )
    assert put(f"{URL}/99", json={"aggregate": {"name": "x"}}).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"aggregate": {}},
        {"aggregate": {"name": ""}},
        {"aggregate": {"name": " a"}},
        {"aggregate": {"name": "a", "availability_zone": "a:b"}},
        {"aggregate": {"name": "a", "other": 1}},
    ],
)
def test_a_bad_body_is_400(cloud: Cloud, body: object) -> None:
    before = cloud.everything()
    assert cloud.admin.post(URL, json=body).status_code == 400
    assert cloud.everything() == before


def test_metadata_is_added_changed_and_with_null_removed(cloud: Cloud) -> None:
    aggregate = make(cloud)
    act(cloud, aggregate, set_metadata={"metadata": {"a": "1", "b": "2"}})
    answer = act(cloud, aggregate, set_metadata={"metadata": {"a": None, "b": "3"}})
    assert answer.json()["aggregate"]["metadata"] == {"b": "3"}
    zone = act(cloud, aggregate, set_metadata={"metadata": {"availability_zone": "az1"}}).json()["aggregate"]
    assert (zone["availability_zone"], zone["metadata"]) == ("az1", {"b": "3", "availability_zone": "az1"})
    assert act(cloud, aggregate, set_metadata={"metadata": {"availability_zone": None}}).status_code == 400


def test_hosts_that_are_not_there_or_are_there_already(cloud: Cloud) -> None:
    aggregate = make(cloud)
    assert act(cloud, aggregate, add_host={"host": "none"}).status_code == 404
    assert act(cloud, aggregate, remove_host={"host": "n1"}).status_code == 404
    assert act(cloud, aggregate, add_host={"host": "n1"}).status_code == 200
    assert act(cloud, aggregate, add_host={"host": "n1"}).status_code == 409
    assert act(cloud, 99, add_host={"host": "n1"}).status_code == 404
    assert act(cloud, aggregate, explode={"host": "n1"}).status_code == 400
    assert cloud.admin.delete(f"{URL}/{aggregate}").status_code == 400


def test_a_host_is_in_one_zone_at_most(any_cloud: Cloud) -> None:
    cloud = any_cloud
    zoned(cloud, "az1", "n1")
    other, same, plain = make(cloud, "b", "az2"), make(cloud, "c", "az1"), make(cloud, "d")
    before = cloud.everything()
    assert act(cloud, other, add_host={"host": "n1"}).status_code == 409
    assert cloud.everything() == before
    assert act(cloud, same, add_host={"host": "n1"}).status_code == 200
    assert act(cloud, plain, add_host={"host": "n1"}).status_code == 200
    answer = cloud.admin.put(f"{URL}/{plain}", json={"aggregate": {"availability_zone": "az2"}})
    assert (answer.status_code, answer.headers["X-Pinfold-Error"]) == (400, "zone-conflict")
    assert cloud.show(cloud.boot(availability_zone="az1"))["OS-EXT-AZ:availability_zone"] == "az1"


def test_a_host_with_servers_stays_in_its_zone(any_cloud: Cloud) -> None:
    cloud = any_cloud
    cloud.boot(cloud.admin, availability_zone="nova:n1")
    aggregate = make(cloud, "a", "az1")
    answer = act(cloud, aggregate, add_host={"host": "n1"})
    assert answer.status_code == 409
    assert "would change from 'None' to 'az1' but the host already has 1 instance(s)" in answer.text
    act(cloud, aggregate, add_host={"host": "n2"})
    cloud.boot(availability_zone="az1")
    assert act(cloud, aggregate, remove_host={"host": "n2"}).status_code == 409
    renamed = cloud.admin.put(f"{URL}/{aggregate}", json={"aggregate": {"availability_zone": "az2"}})
    assert (renamed.status_code, renamed.headers["X-Pinfold-Error"]) == (400, "zone-in-use")


def test_a_second_aggregate_of_the_same_zone_lets_a_host_with_servers_leave_the_first(cloud: Cloud) -> None:
    first = zoned(cloud, "az1", "n1")
    cloud.boot(availability_zone="az1")
    second = make(cloud, "b", "az1")
    assert act(cloud, second, add_host={"host": "n1"}).status_code == 200
    assert act(cloud, first, remove_host={"host": "n1"}).status_code == 200


def test_lists_cost_one_statement(cloud: Cloud) -> None:
    for number in range(5):
        act(cloud, make(cloud, str(number)), add_host={"host": "n1"})
    assert len(cloud.statements(cloud.admin, URL)) == 1


def test_images_are_not_cached(cloud: Cloud) -> None:
    url = f"{URL}/{make(cloud)}/images"
    assert cloud.admin.post(url, json={"cache": [{"id": cloud.tiny}]}).status_code == 501
    assert cloud.client(ADMIN, "2.80").post(url, json={"cache": []}).status_code == 404


def test_aggregates_are_for_admins(cloud: Cloud) -> None:
    aggregate = make(cloud)
    before = cloud.everything()
    url = f"{URL}/{aggregate}"
    actions: list[dict[str, Any]] = [
        {"add_host": {"host": "n1"}},
        {"remove_host": {"host": "n1"}},
        {"set_metadata": {"metadata": {}}},
    ]
    answers = [
        cloud.demo.get(URL),
        cloud.demo.get(url),
        cloud.demo.post(URL, json={"aggregate": {"name": "x"}}),
        cloud.demo.put(url, json={"aggregate": {"name": "x"}}),
        cloud.demo.delete(url),
        *(cloud.demo.post(f"{url}/action", json=action) for action in actions),
    ]
    assert {answer.status_code for answer in answers} == {403}
    assert cloud.everything() == before


# --- zones ------------------------------------------------------------------------------------------


def test_zones_are_those_of_aggregates_and_the_default_one(any_cloud: Cloud) -> None:
    cloud = any_cloud
    zoned(cloud, "az1", "n2")
    listed = [{"zoneName": name, "zoneState": {"available": True}, "hosts": None} for name in ("az1", "nova")]
    assert cloud.demo.get(ZONES).json() == {"availabilityZoneInfo": listed}
    (one, other) = cloud.admin.get(f"{ZONES}/detail").json()["availabilityZoneInfo"]
    (service,) = one["hosts"]["n2"].items()
    assert service == (
        "nova-compute",
        {"available": True, "active": True, "updated_at": service[1]["updated_at"]},
    )
    assert (other["zoneName"], set(other["hosts"])) == ("nova", {"n1"})
    assert cloud.demo.get(f"{ZONES}/detail").status_code == 403


def test_a_zone_whose_hosts_are_all_disabled_is_not_available(cloud: Cloud) -> None:
    zoned(cloud, "az1", "n2")
    cloud.client(ADMIN, "2.1").put("/v2.1/os-services/disable", json={"host": "n2", "binary": "nova-compute"})
    last = cloud.demo.get(ZONES).json()["availabilityZoneInfo"][-1]
    assert last == {"zoneName": "az1", "zoneState": {"available": False}, "hosts": None}
    answer = cloud.demo.post("/v2.1/servers", json=cloud.body(availability_zone="az1"))
    assert (answer.status_code, answer.headers["X-Pinfold-Error"]) == (400, "unknown-zone")


def test_a_server_shows_the_zone_of_its_host_and_can_be_found_by_it(any_cloud: Cloud) -> None:
    cloud = any_cloud
    zoned(cloud, "az1", "n2")
    pinned, free = cloud.boot(availability_zone="az1"), cloud.boot(cloud.admin, availability_zone=":n1")
    waiting = cloud.ask(availability_zone="az1")
    zones = {server: cloud.show(server)["OS-EXT-AZ:availability_zone"] for server in (pinned, free, waiting)}
    assert zones == {pinned: "az1", free: "nova", waiting: "az1"}
    assert cloud.show(free)["pinned_availability_zone"] is None
    cloud.shelve(pinned)
    assert cloud.show(pinned)["OS-EXT-AZ:availability_zone"] == ""
    assert cloud.show(pinned)["pinned_availability_zone"] == "az1"

    def found(zone: str) -> list[str]:
        rows = cloud.admin.get(f"/v2.1/servers?all_tenants=1&availability_zone={zone}").json()["servers"]
        return [row["id"] for row in rows]

    assert (found("nova"), found("az1"), found("none")) == ([free], [], [])


def test_a_server_is_unshelved_in_its_zone_and_can_be_given_another(any_cloud: Cloud) -> None:
    cloud = any_cloud
    zoned(cloud, "az1", "n2")
    server = cloud.boot(availability_zone="az1")
    for value, zone, host in (
        (None, "az1", "n2"),
        ({"availability_zone": "nova"}, "nova", "n1"),
        (None, "nova", "n1"),
        ({"availability_zone": "az1"}, "az1", "n2"),
    ):
        cloud.shelve(server)
        assert cloud.act(server, "unshelve", value).status_code == 202
        cloud.build(server)
        shown = cloud.show(server)
        assert (shown["pinned_availability_zone"], shown["OS-EXT-SRV-ATTR:host"]) == (zone, host)


def test_with_a_null_zone_it_may_be_anywhere_again(cloud: Cloud) -> None:
    zoned(cloud, "az1", "n2")
    server = cloud.boot(availability_zone="az1")
    cloud.shelve(server)
    cloud.client(ADMIN, "2.1").put("/v2.1/os-services/disable", json={"host": "n2", "binary": "nova-compute"})
    assert cloud.act(server, "unshelve", {"availability_zone": None}).status_code == 202
    cloud.build(server)
    shown = cloud.show(server)
    assert (shown["pinned_availability_zone"], shown["OS-EXT-SRV-ATTR:host"]) == (None, "n1")


def test_unshelve_to_a_host_in_another_zone_is_409(any_cloud: Cloud) -> None:
    cloud = any_cloud
    zoned(cloud, "az1", "n2")
    server = cloud.boot(availability_zone="az1")
    cloud.shelve(server)
    before = cloud.everything()
    answer = cloud.act(server, "unshelve", {"host": "n1"}, cloud.admin)
    assert (answer.status_code, answer.headers["X-Pinfold-Error"]) == (409, "host-not-in-zone")
    wrong = {"host": "n1", "availability_zone": "az1"}
    assert cloud.act(server, "unshelve", wrong, cloud.admin).status_code == 409
    assert cloud.everything() == before
    right = {"host": "n1", "availability_zone": "nova"}
    assert cloud.act(server, "unshelve", right, cloud.admin).status_code == 202
    cloud.build(server)
    assert cloud.show(server)["OS-EXT-SRV-ATTR:host"] == "n1"


@pytest.mark.parametrize("value", [{"availability_zone": "none"}, {"host": "none"}])
def test_a_zone_or_host_that_is_not_there_is_400(cloud: Cloud, value: dict[str, str]) -> None:
    server = cloud.boot()
    cloud.shelve(server)
    assert cloud.act(server, "unshelve", value, cloud.admin).status_code == 400


def test_f063_a_host_that_was_asked_for_once_is_not_stored(cloud: Cloud) -> None:
    server = cloud.boot(cloud.admin, host="n1")
    cloud.shelve(server)
    cloud.act(server, "unshelve", {"host": "n2"}, cloud.admin)
    cloud.build(server)
    assert cloud.show(server)["OS-EXT-SRV-ATTR:host"] == "n2"
    row = cloud.box.server(server)
    assert (row.availability_zone, row.hints) == (None, {})
    cloud.shelve(server)
    cloud.act(server, "unshelve", None, cloud.admin)
    cloud.box.runner.run(cloud.open_operation(server))
    assert set(cloud.box.operation(server).targets) == {"n1", "n2"}
