"""The little of Glance and Neutron that Nova asks for when servers have an image and no network.

python -m benchmarks.nova.neighbours PORT
"""

from __future__ import annotations

import json
import re
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: The image that servers are booted from.
IMAGE = "6f1d2a4e-2f5b-4c59-9d0b-1c7b8d0a9e11"
_NOW = "2026-01-01T00:00:00Z"
_BASE: dict[str, Any] = {
    "id": IMAGE, "name": "tiny", "status": "active", "visibility": "public", "protected": False,
    "container_format": "bare", "disk_format": "raw", "size": 1048576, "min_ram": 0, "min_disk": 0,
    "checksum": None, "owner": "admin", "tags": [], "created_at": _NOW, "updated_at": _NOW,
    "schema": "/v2/schemas/image",
}  # fmt: skip
_TYPES = {
    "string": ("id", "status", "visibility", "created_at", "updated_at", "self", "file", "schema"),
    "string or null": ("name", "checksum", "owner", "container_format", "disk_format"),
    "integer or null": ("size", "virtual_size"),
    "integer": ("min_ram", "min_disk"),
    "boolean": ("protected", "os_hidden"),
    "array": ("tags", "locations"),
}
_SCHEMA = {
    "name": "image",
    "properties": {
        name: {"type": kinds.split(" or ")} for kinds, names in _TYPES.items() for name in names
    },
    "additionalProperties": {"type": "string"},
    "links": [{"rel": "self", "href": "{self}"}],
}  # fmt: skip


class Images:
    """Records without bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records = {IMAGE: _BASE}

    def answer(self, method: str, image: str | None, of_bytes: bool, body: bytes) -> tuple[int, Any]:
        with self._lock:
            if image is None:
                return self._collection(method, body)
            if image not in self._records:
                return 404, {}
            if of_bytes:
                return 204, None
            return self._record(method, image, body)

    def _collection(self, method: str, body: bytes) -> tuple[int, Any]:
        if method == "GET":
            return 200, {"images": list(self._records.values()), "schema": "/v2/schemas/images"}
        wanted = json.loads(body)
        made = {**_BASE, **wanted, "id": wanted.get("id") or str(uuid.uuid4())}
        self._records[made["id"]] = made
        return 201, made

    def _record(self, method: str, image: str, body: bytes) -> tuple[int, Any]:
        if method == "DELETE":
            if image != IMAGE:
                del self._records[image]
            return 204, None
        if method == "PATCH":
            record = dict(self._records[image])
            for change in json.loads(body):
                name = change["path"].removeprefix("/")
                if change["op"] == "remove":
                    record.pop(name, None)
                else:
                    record[name] = change["value"]
            self._records[image] = record
        return 200, self._records[image]


class Handler(BaseHTTPRequestHandler):
    """Both services, on one port."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    images = Images()

    def log_message(self, *arguments: Any) -> None:
        """Nothing."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, document = self._route(self.path.split("?")[0].rstrip("/"), body)
        content = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _route(self, path: str, body: bytes) -> tuple[int, Any]:
        if path in ("", "/v2", "/v2.0"):
            base = f"http://{self.headers['Host']}"
            versions = [("v2.9", "CURRENT", "/v2/"), ("v2.0", "CURRENT", "/v2.0/")]
            return 200, {
                "versions": [
                    {"id": name, "status": status, "links": [{"rel": "self", "href": base + at}]}
                    for name, status, at in versions
                ]
            }
        if path == "/v2/schemas/image":
            return 200, _SCHEMA
        if found := re.fullmatch(r"/v2/images(?:/([^/]+)(/file)?)?", path):
            return self.images.answer(self.command, found[1], bool(found[2]), body)
        if self.command == "GET" and (found := re.fullmatch(r"/v2\.0/([a-z-]+)", path)):
            return 200, {found[1].replace("-", "_"): []}
        return 404, {"NeutronError": {"type": "NotFound", "message": path, "detail": ""}}

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


if __name__ == "__main__":
    _Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
