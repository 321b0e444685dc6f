"""A small client of the HTTP API, for setting up, the story, the tests and the benchmark."""

from __future__ import annotations

import time
from typing import Any

import httpx

MICROVERSION = "2.100"
POLL = 0.02
Json = dict[str, Any]


class ApiError(Exception):
    """An answer that was not asked for."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.code = response.headers.get("X-Pinfold-Error")
        self.message = _message(response)
        request = response.request
        super().__init__(f"{request.method} {request.url.path}: {self.status} {self.code}: {self.message}")


class NotReached(Exception):
    """A server did not come into the state that was waited for."""


def _message(response: httpx.Response) -> str:
    try:
        document = response.json()
        return str(next(iter(document.values()))["message"])
    except (ValueError, StopIteration, KeyError, TypeError, AttributeError):
        return response.text[:500]


class Client:
    """One user's view of one cloud."""

    def __init__(self, url: str, token: str = "admin:admin:admin", timeout: float = 30.0) -> None:
        headers = {"X-Auth-Token": token, "OpenStack-API-Version": f"compute {MICROVERSION}"}
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
        # Proxies of the environment have no business on loopback.
        self.http = httpx.Client(
            base_url=url, headers=headers, timeout=timeout, limits=limits, trust_env=False
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.http.close()

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """The answer, whatever its status."""
        return self.http.request(method, path, json=body, headers=headers)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The answer's document (None if it has none). Raises ApiError for a status of 400 and more."""
        response = self.request(method, path, body, **headers)
        if response.status_code >= 400:
            raise ApiError(response)
        is_json = response.headers.get("Content-Type", "").startswith("application/json")
        return response.json() if response.content and is_json else None

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    # Servers

    def boot(self, name: str, flavor: str, image: str, **fields: Any) -> str:
        """Ask for a server; returns its id."""
        server = {"name": name, "flavorRef": flavor, "imageRef": image, "networks": "none", **fields}
        created: str = self.call("POST", "/v2.1/servers", {"server": server})["server"]["id"]
        return created

    def server(self, server_id: str) -> Json:
        document: Json = self.get(f"/v2.1/servers/{server_id}")["server"]
        return document

    def servers(self) -> list[Json]:
        listed: list[Json] = self.get("/v2.1/servers/detail?all_tenants=1")["servers"]
        return listed

    def action(self, server_id: str, action: str, argument: Any = None) -> httpx.Response:
        """Ask for an action; the answer, whatever its status."""
        return self.request("POST", f"/v2.1/servers/{server_id}/action", {action: argument})

    def act(self, server_id: str, action: str, argument: Any = None) -> None:
        """Ask for an action that is expected to be accepted."""
        self.call("POST", f"/v2.1/servers/{server_id}/action", {action: argument})

    def delete(self, server_id: str) -> None:
        self.call("DELETE", f"/v2.1/servers/{server_id}")

    def wait(self, server_id: str, *statuses: str, seconds: float = 30.0, poll: float = POLL) -> Json:
        """Poll until the server has one of ``statuses`` and no task; at once an error when it is in ERROR."""
        server: Json = {}

        def arrived() -> bool:
            nonlocal server
            server = self.server(server_id)
            if server["OS-EXT-STS:task_state"] is not None:
                return False
            if server["status"] == "ERROR" and "ERROR" not in statuses:
                raise NotReached(f"{server_id} is in ERROR: {server.get('fault')}")
            return server["status"] in statuses

        until(arrived, lambda: f"{server_id}: no {statuses}, but {brief(server)}", seconds, poll)
        return server

    def settled(self, server_id: str, seconds: float = 30.0) -> Json:
        """Poll until the server has no task, whatever its status."""
        server: Json = {}

        def idle() -> bool:
            nonlocal server
            server = self.server(server_id)
            return server["OS-EXT-STS:task_state"] is None and server["status"] != "BUILD"

        until(idle, lambda: f"{server_id}: still {brief(server)}", seconds)
        return server

    def wait_gone(self, server_id: str, seconds: float = 30.0, poll: float = POLL) -> None:
        """Poll until the server is 404."""
        until(
            lambda: self.request("GET", f"/v2.1/servers/{server_id}").status_code == 404,
            lambda: f"{server_id} is still there: {brief(self.server(server_id))}",
            seconds,
            poll,
        )

    # Images

    def image_id(self, name: str) -> str:
        found = self.get(f"/image/v2/images?name={name}")["images"]
        if not found:
            raise NotReached(f"there is no image {name}")
        identity: str = found[0]["id"]
        return identity

    def images(self) -> list[Json]:
        listed: list[Json] = self.get("/image/v2/images")["images"]
        return listed

    # The book

    def nodes(self) -> dict[str, Json]:
        return {node["node"]: node for node in self.get("/pinfold/v1/nodes")["nodes"]}

    def node(self, name: str) -> Json:
        document: Json = self.get(f"/pinfold/v1/nodes/{name}")
        return document.get("node", document) if isinstance(document.get("node"), dict) else document

    def operations(self, server_id: str) -> list[Json]:
        listed: list[Json] = self.get(f"/pinfold/v1/operations?server={server_id}")["operations"]
        return listed

    def operation(self, operation_id: str) -> Json:
        document: Json = self.get(f"/pinfold/v1/operations/{operation_id}")
        return document


def until(done: Any, what: Any, seconds: float, poll: float = POLL) -> None:
    """Poll ``done()`` until it is true; NotReached with ``what()`` when the time is over."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise NotReached(f"{what()} (waited {seconds:.0f} s)")
        time.sleep(poll)


def brief(server: Json) -> str:
    """A server's state in a few words."""
    host, task = server.get("OS-EXT-SRV-ATTR:host"), server.get("OS-EXT-STS:task_state")
    return f"{server.get('status')} task={task} host={host} fault={server.get('fault')}"


def pins(node: Json, server_id: str | None = None) -> frozenset[int]:
    """The CPUs of ``node`` that are taken, by anybody or by one server."""
    return frozenset(
        int(cpu)
        for cell in node["cells"]
        for cpu, owner in cell["pins"].items()
        if server_id is None or owner == server_id
    )
