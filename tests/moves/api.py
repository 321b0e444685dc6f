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
from tests.moves.town import P1, P2, P4, S2, Town

FLAVORS = (P1, P2, P4, S2)


class _Conductor:
    """Whom the API rings."""

    def __init__(self, town: Town) -> None:
        self._town = town

    def with_context(self, context: Context) -> _Conductor:
        return self

    def run(self, operation: str) -> None:
        self._town.box.runner.run(operation)


class Api:
    """An admin before a town, and a member of the admin's project."""

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
            times=town.box.times,
        )
        app = Wsgi(make_app(deps, conf))
        self.client, self.member = (
            httpx.Client(
                transport=app,
                base_url="http://town:8774",
                headers={"X-Auth-Token": token, "OpenStack-API-Version": "compute 2.94"},
            )
            for token in ("admin:admin", "ann:admin:member")
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

    def act(self, server: str, action: str, value: Any = None, *, member: bool = False) -> int:
        """The status code of an action; ``said`` is what else was answered."""
        client = self.member if member else self.client
        answer = client.post(f"/v2.1/servers/{server}/action", json={action: value})
        self.said = answer.text
        return answer.status_code

    def delete(self, server: str) -> int:
        return self.client.delete(f"/v2.1/servers/{server}").status_code

    def abort(self, server: str) -> int | None:
        """The status code of the end of its live migration, if there is one under way."""
        url = f"/v2.1/servers/{server}/migrations"
        moves = self._ok(self.client.get(url)).json()["migrations"]
        return self.client.delete(f"{url}/{moves[0]['id']}").status_code if moves else None

    def show(self, server: str) -> dict[str, Any] | None:
        answer = self.client.get(f"/v2.1/servers/{server}")
        return answer.json()["server"] if answer.status_code == 200 else None

    def servers(self) -> dict[str, dict[str, Any]]:
        """All that a list shows: soft-deleted ones are not in it."""
        found = self._ok(self.client.get("/v2.1/servers/detail")).json()["servers"]
        return {server["id"]: server for server in found}
