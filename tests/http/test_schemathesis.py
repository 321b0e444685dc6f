"""F119: what schemathesis makes of the document, thousands of requests and the same ones each time.

No answer is 5xx (but a documented 501 or 503), every status and body is documented, and a refused request has changed
nothing in the book. To send more: ``python -m tests.http.probe``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from schemathesis.core.failures import FailureGroup

from pinfold.api import absent
from pinfold.api.app import ROUTES
from pinfold.api.route import Route
from tests.http import probe
from tests.http.probe import Probe, Template

MANY, FEW = 20, 4


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return Template(tmp_path_factory.mktemp("template"))


@pytest.fixture
def probed(tmp_path: Path, template: Template) -> Iterator[Probe]:
    made = template.probe(tmp_path / "cloud")
    yield made
    made.close()


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_answer_is_documented_and_a_refusal_changes_nothing(probed: Probe, route: Route) -> None:
    """F119."""
    probe.run(probed, route, FEW if route in absent.ROUTES else MANY)
    assert probed.answers.total() >= 1


def test_what_is_known_of_the_cloud_is_there(probed: Probe) -> None:
    """The requests are about things that exist, or else all of them would be 404."""
    admin = probed.cloud.admin
    for noun, name in [
        ("servers", "server"),
        ("flavors", "flavor"),
        ("os-keypairs", "keypair"),
        ("os-aggregates", "aggregate"),
    ]:
        assert admin.get(f"/v2.1/{noun}/{probed.known[name][0]}").status_code == 200, noun
    assert probed.cloud.demo.get(f"/v2.1/os-server-groups/{probed.known['group'][0]}").status_code == 200


def test_an_answer_that_is_not_documented_is_found(probed: Probe) -> None:
    route = next(route for route in ROUTES if route.path == "/healthz")
    document = probed.cloud.admin.get("/openapi.json").json()
    document["paths"]["/healthz"]["get"]["responses"] = {"418": {"description": "tea"}}
    probed.schema = schemathesis.openapi.from_dict(document)
    probed.schema.app = probed.cloud.app
    with pytest.raises(FailureGroup):
        probe.run(probed, route, 1)
