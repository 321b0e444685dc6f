"""A small Image API v2 on loopback, as strict as Glance is, over a file store."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cheroot import wsgi

from pinfold.image.files import FileStore
from pinfold.image.store import Image, ImageNotFound
from pinfold.image.v2 import OURS, from_v2, to_v2
from pinfold.model import errors
from pinfold.runtime import Runtime
from tests.servers import free_ports

Answer = tuple[int, Iterable[bytes]]
STATUSES: dict[type[Exception], int] = {
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.InvalidRequest: 400,
    errors.Forbidden: 403,
}


class ImageApi:
    """The WSGI application. ``answers`` are given to the next requests instead of the true ones; a negative
    one is given after the work was done. ``seen`` are the requests so far, as "METHOD path?query". ``extra``
    stands at the end of the list; a download breaks off after ``cut`` bytes."""

    def __init__(self, runtime: Runtime, store: FileStore, page: int = 1000) -> None:
        self._runtime = runtime
        self._store = store
        self.page = page
        self.answers: list[int] = []
        self.seen: list[str] = []
        self.tokens: set[str | None] = set()
        self.extra: list[dict[str, Any]] = []
        self.cut: int | None = None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, path, query = environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("QUERY_STRING", "")
        self.seen.append(f"{method} {path}" + (f"?{query}" if query else ""))
        self.tokens.add(environ.get("HTTP_X_AUTH_TOKEN"))
        order = self.answers.pop(0) if self.answers else 0
        answer: Answer = (order, [b"ordered"])
        if order <= 0:
            answer = self._truth(method, path, parse_qs(query), environ["wsgi.input"])
        start_response(f"{abs(order) or answer[0]} -", [("Content-Type", "application/json")])
        return answer[1]

    def _truth(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:
        try:
            return self._answer(method, path, query, body)
        except errors.PinfoldError as error:
            status = next(code for kind, code in STATUSES.items() if isinstance(error, kind))
            return status, [error.message.encode()]

    def _answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:
        match = re.fullmatch(r"/image/v2/images(?:/([^/]+)(/file)?)?", path)
        if match is None:
            return 404, [b"no such path"]
        image, file = match.groups()
        if image is None:
            return self.get_images(query) if method == "GET" else self.post_images(body)
        handle: Callable[..., Answer] = getattr(self, f"{method.lower()}_{'file' if file else 'image'}")
        return handle(image, body)

    def get_images(self, query: dict[str, list[str]]) -> Answer:
        images = [to_v2(image) for image in self._store.list()] + self.extra
        first = 0
        if "marker" in query:
            first = 1 + [image["id"] for image in images].index(query["marker"][0])
        page = images[first : first + min(self.page, int(query["limit"][0]))]
        shown: dict[str, Any] = {"images": page}
        if first + len(page) < len(images):
            shown["next"] = f"/v2/images?marker={page[-1]['id']}&limit={query['limit'][0]}"
        return _json(200, shown)

    def post_images(self, body: Any) -> Answer:
        now = self._runtime.now().isoformat()
        fields = {"owner": "caller", **json.load(body), "status": "queued", "created_at": now}
        return _json(201, to_v2(self._store.create(from_v2({**fields, "updated_at": now}))))

    def get_image(self, image: str, body: Any) -> Answer:
        return _json(200, to_v2(self._store.get(image)))

    def delete_image(self, image: str, body: Any) -> Answer:
        self._store.get(image)
        self._store.delete(image)
        return 204, []

    def patch_image(self, image: str, body: Any) -> Answer:
        properties = dict(self._store.get(image).properties)
        changes: dict[str, Any] = {"properties": properties}
        for change in json.load(body):
            name = change["path"].removeprefix("/").replace("~1", "/").replace("~0", "~")
            if name in OURS:
                changes[name] = change["value"]
            elif change["op"] == "remove":
                del properties[name]
            else:
                assert change["op"] == ("replace" if name in properties else "add")
                properties[name] = change["value"]
        return _json(200, to_v2(self._store.update(image, changes)))

    def put_file(self, image: str, body: Any) -> Answer:
        there = self._store.get(image)
        if there.status != "queued":
            return 409, [f"Image status transition from {there.status} to saving is not allowed".encode()]
        try:
            self._store.upload(image, iter(lambda: body.read(65536), b""))
        except ImageNotFound:
            return 410, [b"deleted meanwhile"]
        return 204, []

    def get_file(self, image: str, body: Any) -> Answer:
        there: Image = self._store.get(image)
        if not there.size:
            return 204, []
        data = self._store.download(image)
        return 200, data if self.cut is None else _cut(data, self.cut)


def _json(status: int, body: object) -> Answer:
    return status, [json.dumps(body).encode()]


def _cut(data: Iterable[bytes], end: int) -> Iterator[bytes]:
    """As if the service died after ``end`` bytes."""
    for piece in data:
        yield piece[:end]
        end -= len(piece)
        if end <= 0:
            raise ConnectionResetError


class Gate:
    """A server whose application may be changed; ``address`` is where it listens."""

    def __init__(self) -> None:
        self.address = f"http://127.0.0.1:{free_ports(1)[0]}/image"
        self.application: Callable[..., Iterable[bytes]] | None = None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        assert self.application is not None
        return self.application(environ, start_response)


class Keystone:
    """An identity service before ``behind``: a password gives a token, whose catalog has the image service.

    Only the newest token is good."""

    def __init__(self, behind: ImageApi, root: str) -> None:
        self._behind = behind
        self._root = root
        self.tokens: list[str] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/image/identity/v3/auth/tokens":
            self.tokens.append(f"token-{len(self.tokens)}")
            start_response("201 Created", [("X-Subject-Token", self.tokens[-1])])
            return [json.dumps({"token": self._token()}).encode()]
        if environ.get("HTTP_X_AUTH_TOKEN") != self.tokens[-1]:
            start_response("401 Unauthorized", [])
            return [b"no such token"]
        return self._behind(environ, start_response)

    def revoke(self) -> None:
        """Nobody has a good token now."""
        self.tokens.append("nobody's")

    def _token(self) -> dict[str, Any]:
        endpoints = [
            {"id": kind, "interface": kind, "region": "r", "region_id": "r", "url": url}
            for kind, url in (("internal", self._root), ("public", "http://127.0.0.1:9"))
        ]
        catalog = [{"id": "i", "name": "glance", "type": "image", "endpoints": endpoints}]
        user = {"id": "u", "name": "u", "domain": {"id": "default", "name": "Default"}}
        times = {"issued_at": "2026-01-01T00:00:00Z", "expires_at": "2096-01-01T00:00:00Z"}
        return {"methods": ["password"], "user": user, "catalog": catalog, **times}


@contextmanager
def served(gate: Gate) -> Iterator[None]:
    """Listen until the end of the block."""
    server = wsgi.Server(("127.0.0.1", urlsplit(gate.address).port), gate, numthreads=6)
    server.prepare()
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.stop()
        thread.join(10)
