"""A proxy in front of a cloud that writes down what passes through."""

from __future__ import annotations

import http.client
import http.server
import json
import threading
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pinfold.api.microversions import HEADER

_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


class Exchange(NamedTuple):
    """A request and its answer; bodies are None unless they are JSON."""

    method: str
    path: str
    version: str | None
    status: int
    request: Any
    reply: Any


class Recorder:
    """Listens at a free port of 127.0.0.1 and hands on to ``url``, with the Host that the client used."""

    def __init__(self, url: str) -> None:
        self.exchanges: list[Exchange] = []
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, urlsplit(url).netloc))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def take(self) -> list[Exchange]:
        """What has passed since the last time."""
        taken, self.exchanges = self.exchanges, []
        return taken

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(recorder: Recorder, there: str) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            connection = http.client.HTTPConnection(there, timeout=60)
            connection.request(
                self.command, self.path, body or None, headers | {"Host": self.headers.get("Host", there)}
            )
            answer = connection.getresponse()
            content = answer.read()
            recorder.exchanges.append(self._exchange(body, answer.status, content))
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            connection.close()

        def _exchange(self, body: bytes, status: int, content: bytes) -> Exchange:
            version = (self.headers.get(HEADER) or "").removeprefix("compute ") or None
            return Exchange(self.command, self.path, version, status, _json(body), _json(content))

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _pass_on

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None
