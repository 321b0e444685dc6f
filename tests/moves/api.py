"""The real API before a town: WSGI in, and what it rings is carried out in the same thread."""

from __future__ import annotations

from typing import Any

import httpx
from oslo_config import cfg

from pinfold.api.app import make_app
from pinfold.api.deps import Deps, Settings
from pinfold.model import quotas
from pinfold.rpcapi.context import Context
from tests.http.cloud import ROOMY, Wsgi
from tests.moves.town import P1, P2, P4, Town

FLAVORS = (P1, P2, P4)


class _Conductor:
    """Whom the API rings."""

    def __init__(self, town: Town) -> None:
        self._town = town

    def with_context(self, context: Context) -> _Conductor:
        return self

    def run(self, operation: str) -> None:
        self._town.box.runner.run(operation)


class Api:
    """An admin before a town."""

    def __init__(self, town: Town) -> None:
        self.town = town
        conf = cfg.ConfigOpts()
        conf([], project="pinfold", default_config_files=[], default_config_dirs=[])
        deps = Deps(
            book=town.book,
            conductor=_Conductor(town),  # type: ignore[arg-type]
            compute=town.box.compute,  # type: ignore[arg-type]
            images=town.images,
            runtime=town.runtime,
            broker_answers=lambda: True,
            settings=Settings(quotas={**quotas.DEFAULTS, **ROOMY}),
        )
        self.client = httpx.Client(
            transport=Wsgi(make_app(deps, conf)),
            base_url="http://town:8774",
            headers={"X-Auth-Token": "admin:admin", "OpenStack-API-Version": "compute 2.94"},
        )
        for flavor in FLAVORS:
            body = {
                "id": flavor["name"],
                "name": flavor["name"],
                "vcpus": flavor["vcpus"],
                "ram": 512,
                "disk": 1,
            }
            self._ok(self.client.post("/v2.1/flavors", json={"flavor": body}))
            self._ok(
                self.client.post(
                    f"/v2.1/flavors/{flavor['name']}/os-extra_specs",
                    json={"extra_specs": flavor["extra_specs"]},
                )
            )

    @staticmethod
    def _ok(answer: httpx.Response) -> httpx.Response:
        assert answer.status_code < 300, answer.text
        return answer

    def boot(self, flavor: str) -> str:
        server = {"name": "a", "flavorRef": flavor, "imageRef": self.town.image, "networks": "none"}
        made: str = self._ok(self.client.post("/v2.1/servers", json={"server": server})).json()["server"][
            "id"
        ]
        return made

    def act(self, server: str, action: str, value: Any = None) -> int:
        """The status code of an action."""
        return self.client.post(f"/v2.1/servers/{server}/action", json={action: value}).status_code

    def delete(self, server: str) -> int:
        return self.client.delete(f"/v2.1/servers/{server}").status_code

    def show(self, server: str) -> dict[str, Any] | None:
        answer = self.client.get(f"/v2.1/servers/{server}")
        return answer.json()["server"] if answer.status_code == 200 else None
