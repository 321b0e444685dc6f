"""Sends what schemathesis makes of ``/openapi.json`` to a cloud, and looks at the answers and at the book.

``python -m tests.http.probe --examples 200 --seed 7 [--only TEXT]`` sends more than the test of the same rules does.
"""

from __future__ import annotations

import argparse
import base64
import json
import logging
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from pinfold.api import image_patch
from pinfold.api.app import ROUTES
from pinfold.api.microversions import HEADER, MAX_VERSION
from pinfold.api.route import Route
from pinfold.db.session import Book, make_engine
from pinfold.runtime import RealRuntime
from tests.books import new_book, sqlite_url
from tests.http.cloud import MISSING, Cloud

VERSIONS = ("2.1", "2.37", "2.53", "2.64", "2.77", "2.91", MAX_VERSION, "latest")
TOKENS = ("admin:admin", "admin:admin", "ann:demo:member", "bob:other:reader")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1RfHiS0FkQKQK4oJIDsVTd6Vd9wU9nUW9u7Pq6sCJ7 ann@here"
_CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]


@schemathesis.serializer(*image_patch.MEDIA_TYPES)
def _as_json(context: Any, value: Any) -> bytes:
    return json.dumps(value).encode()


_MOSTLY = st.sampled_from([True] * 7 + [False])

# The formats of ``api.schemas``: without these, most names would be refused before anything is looked at.
_LETTERS = st.characters(codec="utf-8", categories=("L", "N", "P"))
schemathesis.openapi.format("name", st.text(_LETTERS, min_size=1, max_size=20))
schemathesis.openapi.format("text", st.text(_LETTERS, max_size=20))
schemathesis.openapi.format("base64", st.binary(max_size=20).map(lambda raw: base64.b64encode(raw).decode()))


def fill(cloud: Cloud) -> dict[str, list[str]]:
    """Make something of everything; what there is, by the names that parameters of paths have."""
    admin = cloud.admin
    cloud.flavor("s1", 1, specs={})
    cloud.flavor("huge", 64)
    running, shelved = cloud.boot(), cloud.boot()
    cloud.shelve(shelved)
    failed = cloud.ask(flavorRef="huge")
    cloud.box.runner.run(cloud.open_operation(failed))
    asked = cloud.ask()
    cloud.demo.post(f"/v2.1/servers/{running}/metadata", json={"metadata": {"k": "v"}})
    for client in (admin, cloud.demo):
        body = {"keypair": {"name": "k", "public_key": KEY}}
        client.post("/v2.1/os-keypairs", json=body)
    group = cloud.demo.post(
        "/v2.1/os-server-groups", json={"server_group": {"name": "g", "policy": "affinity"}}
    )
    zone = admin.post("/v2.1/os-aggregates", json={"aggregate": {"name": "a", "availability_zone": "z"}})
    services = admin.get("/v2.1/os-services").json().get("services", [])
    nodes = admin.get("/v2.1/os-hypervisors").json().get("hypervisors", [])
    operations = admin.get(f"/pinfold/v1/operations?server={running}").json()["operations"]
    return {
        "server": [running, shelved, failed, asked, MISSING],
        "flavor": ["p2", "s1", "huge"],
        "image": [cloud.tiny, MISSING],
        "key": ["k", "hw:cpu_policy"],
        "keypair": ["k"],
        "tag": ["t"],
        "group": [group.json().get("server_group", {}).get("id", MISSING)],
        "aggregate": [str(zone.json().get("aggregate", {}).get("id", 1))],
        "service": [str(service["id"]) for service in services],
        "hypervisor": [str(node["id"]) for node in nodes] + ["n1"],
        "host": ["n1", "n2"],
        "node": ["n1", "n2"],
        "project": ["demo", "admin"],
        "quota_class": ["default"],
        "operation": [operation["id"] for operation in operations],
        "request": [operation["request_id"] for operation in operations],
        "migration": ["1"],
        "alias": ["os-keypairs"],
    }


class Probe:
    """A cloud that was filled, and what is known of it."""

    def __init__(self, cloud: Cloud, known: dict[str, list[str]]) -> None:
        self.cloud = cloud
        self.known = known
        self.answers: Counter[int] = Counter()
        self.schema = schemathesis.openapi.from_wsgi("/openapi.json", cloud.app)

    def close(self) -> None:
        """Let go of everything."""
        self.cloud.close()

    # --- what is sent ----------------------------------------------------------------------------

    def cases(self, route: Route) -> st.SearchStrategy[Case[Any]]:
        """Requests for a route: as its schema has them and as it has them not, often about what there is."""
        operation = self.schema[route.path][route.method]

        @st.composite
        def case(draw: st.DrawFn) -> Case[Any]:
            made: Case[Any] = draw(operation.as_strategy(GenerationMode.POSITIVE))
            for name, values in self.known.items():
                if name in (made.path_parameters or {}) and values and draw(_MOSTLY):
                    made.path_parameters[name] = draw(st.sampled_from(values))
            self._about_what_there_is(made, draw)
            made.headers["X-Auth-Token"] = draw(st.sampled_from(TOKENS))
            if draw(_MOSTLY):
                version = draw(st.sampled_from([f"2.{max(1, route.since)}", f"2.{route.until}", *VERSIONS]))
                made.headers[HEADER] = f"compute {version}"
            return made

        return case()

    def _about_what_there_is(self, made: Case[Any], draw: st.DrawFn) -> None:
        """Have a body name the key that the path names, and a new server a flavor and an image that exist: nothing
        else gets beyond that."""
        key = (made.path_parameters or {}).get("key")
        if key is not None and isinstance(made.body, dict) and draw(_MOSTLY):
            made.body = {"meta": {key: "v"}} if "meta" in made.body else {key: "v"}
        server = made.body.get("server") if isinstance(made.body, dict) else None
        if isinstance(server, dict) and "flavorRef" in server:
            server["flavorRef"] = draw(st.sampled_from(["p2", "s1", "huge", "none"]))
            server["imageRef"] = self.cloud.tiny
            if draw(st.booleans()):
                for name in (
                    "networks",
                    "block_device_mapping",
                    "block_device_mapping_v2",
                    "security_groups",
                ):
                    server.pop(name, None)
                server["networks"] = "none"

    # --- what is looked at -----------------------------------------------------------------------

    def send(self, case: Case[Any]) -> None:
        """Send it. The answer is documented, and who is refused has changed nothing."""
        before = self.cloud.everything()
        answer = case.call()
        status = answer.status_code
        self.answers[status] += 1
        assert status < 500 or status in (501, 503), f"{status}: {answer.text}"
        if status < 400:
            case.validate_response(answer, checks=_CHECKS[:1])
            return
        case.validate_response(answer, checks=_CHECKS)
        assert answer.headers.get("x-pinfold-error"), answer.headers
        assert self.cloud.everything() == before, f"refused with {status}, and yet the book has changed"


def run(probe: Probe, route: Route, examples: int, seed: int | None = None) -> None:
    """Send so many requests for a route: the same ones each time, unless a ``seed`` is given."""

    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=seed is None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @hypothesis.given(probe.cases(route))
    def sent(case: Case[Any]) -> None:
        probe.send(case)

    (sent if seed is None else hypothesis.seed(seed)(sent))()


class Template:
    """A folder with a cloud that was filled once; each probe has a copy of it."""

    def __init__(self, folder: Path) -> None:
        new_book(sqlite_url(folder)).engine.dispose()
        self._folder = folder
        cloud = self._cloud(folder).stock()
        self._known = fill(cloud)
        self._tiny = cloud.tiny
        # what is in the write-ahead log goes into the file with its last connection
        cloud.close()

    @staticmethod
    def _cloud(folder: Path) -> Cloud:
        url = sqlite_url(folder)
        return Cloud(url, Book(make_engine(url), RealRuntime()), folder)

    def probe(self, folder: Path) -> Probe:
        """A probe of a copy in ``folder``, which is not there yet."""
        shutil.copytree(self._folder, folder)
        cloud = self._cloud(folder)
        cloud.tiny = self._tiny
        return Probe(cloud, self._known)


def main() -> int:
    """As the text of this module says; 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--examples", type=int, default=100, help="requests for each route (100)")
    parser.add_argument("--seed", type=int, default=None, help="(from the clock)")
    parser.add_argument("--only", default="", help="routes with this in them, as in 'POST /v2.1/servers'")
    given = parser.parse_args()
    seed = int(time.time()) if given.seed is None else given.seed
    logging.disable(logging.CRITICAL)
    failed, answers = 0, Counter[int]()
    with tempfile.TemporaryDirectory() as folder:
        (full := Path(folder) / "template").mkdir()
        template = Template(full)
        for number, route in enumerate(ROUTES):
            name = f"{route.method} {route.path}"
            if given.only not in name:
                continue
            probe = template.probe(Path(folder) / str(number))
            try:
                run(probe, route, given.examples, seed)
            except (Exception, FailureGroup) as error:
                failed += 1
                print(f"{name}: {error}\n", file=sys.stderr)
            probe.close()
            answers += probe.answers
            print(f"{name}: {dict(sorted(probe.answers.items()))}")
    total = dict(sorted(answers.items()))
    print(
        f"{answers.total()} requests, seed {seed}: {failed} routes with wrong answers; all answers: {total}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
