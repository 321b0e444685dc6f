"""A commit that succeeds and is not answered: the request is answered as if it had been, and done once."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from pinfold.api import absent
from pinfold.api.app import ROUTES
from pinfold.db.models import Instance
from pinfold.db.session import Book, make_engine
from pinfold.runtime import RealRuntime
from tests.books import new_book, sqlite_url
from tests.http.cloud import PUBLIC_KEY, Cloud

KEYPAIR = {"keypair": {"name": "k", "public_key": PUBLIC_KEY}}
GROUP = {"server_group": {"name": "g", "policy": "anti-affinity"}}
ZONE = {"aggregate": {"name": "a", "availability_zone": "z"}}
HIDDEN = {"name": "f", "vcpus": 1, "ram": 1, "disk": 1, "os-flavor-access:is_public": False}
ONE = {"k": "v"}


class Forgetful(Book):
    """A book whose commits succeed and are not answered, once ``forgets`` is set: each write is run twice."""

    forgets = False

    def _again(self, once: Callable[[], Any]) -> Any:
        if self.forgets:
            once()
        return once()


Stock = tuple[pathlib.Path, str]
MakeOne = Callable[[str], Cloud]


def book_in(folder: pathlib.Path) -> Forgetful:
    return Forgetful(make_engine(sqlite_url(folder)), RealRuntime())


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Stock:
    """A folder with a cloud that has flavors and an image, and the image."""
    folder = tmp_path_factory.mktemp("stock")
    new_book(sqlite_url(folder)).engine.dispose()
    cloud = Cloud(sqlite_url(folder), book_in(folder), folder).stock()
    cloud.flavor("p4", 4)
    cloud.close()
    return folder, cloud.tiny


@pytest.fixture
def make_one(tmp_path: pathlib.Path, stock: Stock) -> Iterator[MakeOne]:
    made = []

    def make(name: str) -> Cloud:
        folder = shutil.copytree(stock[0], tmp_path / name)
        made.append(Cloud(sqlite_url(folder), book_in(folder), folder))
        made[-1].tiny = stock[1]
        for host in ("n1", "n2"):
            made[-1].box.register(host)
        return made[-1]

    yield make
    for cloud in made:
        cloud.close()


# --- what is asked for, at 2.90 by an admin: made ready, then the method, the URL and the body -------------------

Ask = tuple[str, str, Any]
Ready = Callable[[Cloud], Ask]
ROUTE_OF: dict[Ready, str] = {}


def asks(route: str) -> Callable[[Ready], Ready]:
    def note(ready: Ready) -> Ready:
        ROUTE_OF[ready] = route
        return ready

    return note


def posted(cloud: Cloud, url: str, body: Any) -> Any:
    answer = cloud.client("admin:admin", "2.90").post(url, json=body)
    assert answer.status_code < 300, answer.text
    (made,) = answer.json().values()
    return made


@asks("POST /v2.1/servers")
def one_server(cloud: Cloud) -> Ask:
    return "POST", "/v2.1/servers", cloud.body()


@asks("POST /v2.1/servers")
def as_many_servers_as_there_is_room_for(cloud: Cloud) -> Ask:
    cloud.admin.put("/v2.1/os-quota-sets/admin", json={"quota_set": {"instances": 2}})
    return "POST", "/v2.1/servers", cloud.body(min_count=1, max_count=5)


@asks("POST /v2.1/servers")
def a_server_of_a_group(cloud: Cloud) -> Ask:
    group = posted(cloud, "/v2.1/os-server-groups", GROUP)["id"]
    return "POST", "/v2.1/servers", cloud.body() | {"os:scheduler_hints": {"group": group}}


@asks("PUT /v2.1/servers/{server}")
def a_name(cloud: Cloud) -> Ask:
    return "PUT", f"/v2.1/servers/{cloud.boot()}", {"server": {"name": "b"}}


@asks("DELETE /v2.1/servers/{server}")
def no_server_by_its_worker(cloud: Cloud) -> Ask:
    return "DELETE", f"/v2.1/servers/{cloud.boot()}", None


@asks("DELETE /v2.1/servers/{server}")
def no_server_here_and_now(cloud: Cloud) -> Ask:
    server = cloud.boot()
    cloud.shelve(server)
    return "DELETE", f"/v2.1/servers/{server}", None


def action(name: str, value: Any = None, vm_state: str | None = None) -> Ready:
    """An action on a server that runs, or is said to be in another state."""

    def ready(cloud: Cloud) -> Ask:
        server = cloud.boot()
        if vm_state is not None:
            put = sa.update(Instance).values(vm_state=vm_state)
            cloud.book.write(lambda session: session.execute(put))
        told = {"imageRef": cloud.tiny} if name == "rebuild" else value
        return "POST", f"/v2.1/servers/{server}/action", {name: told}

    ready.__name__ = name if value is None else f"{name} {value}"
    return asks("POST /v2.1/servers/{server}/action")(ready)


ACTIONS = [
    action("os-stop"),
    action("os-start", None, "stopped"),
    action("reboot", {"type": "SOFT"}),
    action("reboot", {"type": "HARD"}),
    action("pause"),
    action("unpause", None, "paused"),
    action("suspend"),
    action("resume", None, "suspended"),
    action("lock"),
    action("unlock"),
    action("createImage", {"name": "i"}),
    action("rebuild"),
    action("restore", None, "soft-delete"),
    action("os-resetState", {"state": "error"}),
    action("shelve"),
    action("shelveOffload", None, "shelved"),
    action("unshelve", None, "shelved"),
    action("resize", {"flavorRef": "p4"}),
    action("migrate"),
    action("forceDelete"),
]


@asks("POST /v2.1/servers/{server}/action")
def unshelve_of_an_offloaded_one(cloud: Cloud) -> Ask:
    server = cloud.boot()
    cloud.shelve(server)
    return "POST", f"/v2.1/servers/{server}/action", {"unshelve": {"availability_zone": "nova"}}


@asks("POST /v2.1/servers/{server}/action")
def force_delete_of_an_offloaded_one(cloud: Cloud) -> Ask:
    server = cloud.boot()
    cloud.shelve(server)
    return "POST", f"/v2.1/servers/{server}/action", {"forceDelete": None}


def of_server(method: str, path: str, body: Any = None) -> Ready:
    """A change of what is written of a server with an item and a tag."""

    def ready(cloud: Cloud) -> Ask:
        server = cloud.boot(metadata={"k": "old"})
        cloud.demo.put(f"/v2.1/servers/{server}/tags/t")
        return method, f"/v2.1/servers/{server}/{path}", body

    ready.__name__ = f"{method} {path}"
    named = path.replace("/k", "/{key}").replace("tags/t", "tags/{tag}").replace("tags/new", "tags/{tag}")
    return asks(f"{method} /v2.1/servers/{{server}}/{named}")(ready)


OF_SERVER = [
    of_server("POST", "metadata", {"metadata": ONE}),
    of_server("PUT", "metadata", {"metadata": ONE}),
    of_server("PUT", "metadata/k", {"meta": ONE}),
    of_server("DELETE", "metadata/k"),
    of_server("PUT", "tags", {"tags": ["a"]}),
    of_server("PUT", "tags/new"),
    of_server("PUT", "tags/t"),
    of_server("DELETE", "tags/t"),
    of_server("DELETE", "tags"),
]


@asks("POST /v2.1/flavors")
def a_flavor_for_some(cloud: Cloud) -> Ask:
    return "POST", "/v2.1/flavors", {"flavor": HIDDEN}


@asks("PUT /v2.1/flavors/{flavor}")
def a_description(cloud: Cloud) -> Ask:
    return "PUT", "/v2.1/flavors/p2", {"flavor": {"description": "two"}}


@asks("DELETE /v2.1/flavors/{flavor}")
def no_flavor(cloud: Cloud) -> Ask:
    return "DELETE", "/v2.1/flavors/p2", None


@asks("POST /v2.1/flavors/{flavor}/os-extra_specs")
def extra_specs(cloud: Cloud) -> Ask:
    return "POST", "/v2.1/flavors/p2/os-extra_specs", {"extra_specs": {"hw:mem_page_size": "any"}}


@asks("PUT /v2.1/flavors/{flavor}/os-extra_specs/{key}")
def an_extra_spec(cloud: Cloud) -> Ask:
    return "PUT", "/v2.1/flavors/p2/os-extra_specs/hw:mem_page_size", {"hw:mem_page_size": "any"}


@asks("DELETE /v2.1/flavors/{flavor}/os-extra_specs/{key}")
def no_extra_spec(cloud: Cloud) -> Ask:
    return "DELETE", "/v2.1/flavors/p2/os-extra_specs/hw:cpu_policy", None


@asks("POST /v2.1/flavors/{flavor}/action")
def access(cloud: Cloud) -> Ask:
    flavor = posted(cloud, "/v2.1/flavors", {"flavor": HIDDEN})["id"]
    return "POST", f"/v2.1/flavors/{flavor}/action", {"addTenantAccess": {"tenant": "demo"}}


@asks("POST /v2.1/flavors/{flavor}/action")
def no_access(cloud: Cloud) -> Ask:
    flavor = posted(cloud, "/v2.1/flavors", {"flavor": HIDDEN})["id"]
    posted(cloud, f"/v2.1/flavors/{flavor}/action", {"addTenantAccess": {"tenant": "demo"}})
    return "POST", f"/v2.1/flavors/{flavor}/action", {"removeTenantAccess": {"tenant": "demo"}}


@asks("POST /v2.1/os-keypairs")
def a_keypair(cloud: Cloud) -> Ask:
    return "POST", "/v2.1/os-keypairs", KEYPAIR


@asks("POST /v2.1/os-keypairs")
def the_last_keypair_that_there_is_room_for(cloud: Cloud) -> Ask:
    cloud.admin.put("/v2.1/os-quota-sets/admin", json={"quota_set": {"key_pairs": 1}})
    return "POST", "/v2.1/os-keypairs", {"keypair": {"name": "made here"}}


@asks("DELETE /v2.1/os-keypairs/{keypair}")
def no_keypair(cloud: Cloud) -> Ask:
    posted(cloud, "/v2.1/os-keypairs", KEYPAIR)
    return "DELETE", "/v2.1/os-keypairs/k", None


@asks("POST /v2.1/os-server-groups")
def the_last_group_that_there_is_room_for(cloud: Cloud) -> Ask:
    cloud.admin.put("/v2.1/os-quota-sets/admin", json={"quota_set": {"server_groups": 1}})
    return "POST", "/v2.1/os-server-groups", GROUP


@asks("DELETE /v2.1/os-server-groups/{group}")
def no_group(cloud: Cloud) -> Ask:
    group = posted(cloud, "/v2.1/os-server-groups", GROUP)["id"]
    return "DELETE", f"/v2.1/os-server-groups/{group}", None


@asks("PUT /v2.1/os-services/{service}")
def a_service_disabled(cloud: Cloud) -> Ask:
    return "PUT", f"/v2.1/os-services/{_worker(cloud)}", {"status": "disabled"}


@asks("DELETE /v2.1/os-services/{service}")
def no_service(cloud: Cloud) -> Ask:
    return "DELETE", f"/v2.1/os-services/{_worker(cloud)}", None


def _worker(cloud: Cloud) -> str:
    rows = cloud.admin.get("/v2.1/os-services?binary=nova-compute").json()["services"]
    found: str = rows[0]["id"]
    return found


@asks("POST /v2.1/os-aggregates")
def an_aggregate(cloud: Cloud) -> Ask:
    return "POST", "/v2.1/os-aggregates", ZONE


def of_aggregate(method: str, path: str = "", body: Any = None, host: bool = False) -> Ready:
    """A change of an aggregate, with a host in it or without."""

    def ready(cloud: Cloud) -> Ask:
        number = posted(cloud, "/v2.1/os-aggregates", ZONE)["id"]
        if host:
            posted(cloud, f"/v2.1/os-aggregates/{number}/action", {"add_host": {"host": "n1"}})
        return method, f"/v2.1/os-aggregates/{number}{path}", body

    ready.__name__ = f"{method} aggregate {body}"
    return asks(f"{method} /v2.1/os-aggregates/{{aggregate}}{path}")(ready)


OF_AGGREGATE = [
    of_aggregate("PUT", "", {"aggregate": {"name": "b"}}),
    of_aggregate("DELETE"),
    of_aggregate("POST", "/action", {"add_host": {"host": "n1"}}),
    of_aggregate("POST", "/action", {"remove_host": {"host": "n1"}}, host=True),
    of_aggregate("POST", "/action", {"set_metadata": {"metadata": ONE}}),
]


@asks("PUT /v2.1/os-quota-sets/{project}")
def a_limit(cloud: Cloud) -> Ask:
    return "PUT", "/v2.1/os-quota-sets/demo", {"quota_set": {"instances": 5}}


@asks("DELETE /v2.1/os-quota-sets/{project}")
def no_limit(cloud: Cloud) -> Ask:
    cloud.admin.put("/v2.1/os-quota-sets/demo", json={"quota_set": {"instances": 5}})
    return "DELETE", "/v2.1/os-quota-sets/demo", None


@asks("PUT /v2.1/os-quota-class-sets/{quota_class}")
def a_limit_of_all(cloud: Cloud) -> Ask:
    return "PUT", "/v2.1/os-quota-class-sets/default", {"quota_class_set": {"instances": 5}}


# --- the rule ---------------------------------------------------------------------------------------


def sizes(cloud: Cloud) -> dict[str, int]:
    return {table: len(rows) for table, rows in cloud.everything().items()}


@pytest.mark.parametrize("ready", ROUTE_OF, ids=lambda ready: ready.__name__)
def test_a_request_whose_commit_was_not_answered_is_answered_and_done_once(
    make_one: MakeOne, ready: Ready
) -> None:
    done = []
    for forgets in (False, True):
        cloud = make_one(f"forgets-{forgets}")
        method, url, body = ready(cloud)
        assert isinstance(cloud.book, Forgetful)
        cloud.book.forgets = forgets
        answer = cloud.client("admin:admin", "2.90").request(method, url, json=body)
        assert answer.status_code < 300, answer.text
        done.append((answer.status_code, sizes(cloud)))
    assert done[0] == done[1]


# Nothing is written in the book, or only the same question again.
NOT_OURS = (
    "POST /v2.1/os-aggregates/{aggregate}/images",
    "PUT /v2.1/os-hosts/{host}",
    "DELETE /v2.1/servers/{server}/migrations/{migration}",
    "POST /v2.1/servers/{server}/migrations/{migration}/action",
)


def test_every_route_that_changes_something_is_here() -> None:
    routes = {
        f"{route.method} {route.path}"
        for route in ROUTES
        if route.method != "GET" and route.path.startswith("/v2.1/") and route not in absent.ROUTES
    }
    images = {route for route in routes if " /v2.1/images" in route}
    assert {*ROUTE_OF.values(), *NOT_OURS} == routes - images
