"""What the compute API has and this cloud has not: a clear answer to each, and never a 500."""

from __future__ import annotations

import re

import pytest

from pinfold.api import absent
from pinfold.api.route import Route
from tests.http.cloud import ADMIN, MISSING, Cloud

NOVA = "http://docs.openstack.org/compute/ext/fake_xml"


def name(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.mark.parametrize("route", absent.ROUTES, ids=name)
def test_each_has_the_answer_that_the_table_says(cloud: Cloud, route: Route) -> None:
    server = cloud.ask(cloud.admin)
    path = re.sub(r"{(\w+)}", lambda match: server if match[1] == "server" else MISSING, route.path)
    before = cloud.everything()
    body = {"remote_console": {"protocol": "vnc", "type": "novnc"}}
    client = cloud.client(ADMIN, f"2.{min(max(route.since, 20), route.until)}")
    answer = client.request(route.method, path, json=body if route.method in ("POST", "PUT") else None)
    words = route.handler.__doc__ or ""
    expected = re.search(r"\b(\d{3})\.$", words)
    assert answer.status_code == (int(expected[1]) if expected else 200), answer.text
    assert cloud.everything() == before
    if answer.status_code >= 400:
        assert answer.headers["X-Pinfold-Error"]
        assert next(iter(answer.json().values()))["message"]
    if route.until < 104:
        assert cloud.client(ADMIN, f"2.{route.until + 1}").request(route.method, path).status_code == 404


def test_what_clients_ask_of_a_server_is_an_empty_list(cloud: Cloud) -> None:
    url = f"/v2.1/servers/{cloud.ask()}"
    assert cloud.demo.get(f"{url}/ips").json() == {"addresses": {}}
    assert cloud.demo.get(f"{url}/os-interface").json() == {"interfaceAttachments": []}
    assert cloud.demo.get(f"{url}/os-volume_attachments").json() == {"volumeAttachments": []}
    assert cloud.demo.get(f"{url}/os-security-groups").json() == {"security_groups": []}
    assert cloud.demo.get(f"{url}/os-server-password").json() == {"password": ""}


def test_it_is_told_only_of_servers_that_the_caller_may_see(cloud: Cloud) -> None:
    server = cloud.ask()
    assert cloud.other.get(f"/v2.1/servers/{server}/ips").status_code == 404
    assert cloud.demo.get(f"/v2.1/servers/{MISSING}/ips").status_code == 404
    assert cloud.demo.get(f"/v2.1/servers/{server}/diagnostics").status_code == 403


def test_a_console_is_refused_as_the_client_expects(cloud: Cloud) -> None:
    url = f"/v2.1/servers/{cloud.ask()}/remote-consoles"
    answer = cloud.demo.post(url, json={"remote_console": {"protocol": "vnc", "type": "novnc"}})
    assert answer.json() == {"badRequest": {"code": 400, "message": "Unavailable console type novnc."}}


def test_what_is_gone_says_so(cloud: Cloud) -> None:
    answer = cloud.demo.get("/v2.1/os-cells")
    assert answer.status_code == 410
    assert answer.json()["computeFault"]["code"] == 410


def test_extensions_are_listed_for_old_clients(cloud: Cloud) -> None:
    listed = cloud.demo.get("/v2.1/extensions").json()["extensions"]
    assert len(listed) == 99
    one = {
        "alias": "os-shelve",
        "name": "Shelve",
        "description": "Instance shelve mode.",
        "namespace": NOVA,
        "updated": "2014-12-03T00:00:00Z",
        "links": [],
    }
    assert one in listed
    assert cloud.demo.get("/v2.1/extensions/os-shelve").json() == {"extension": one}
    assert cloud.demo.get("/v2.1/extensions/none").status_code == 404
