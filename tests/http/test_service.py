"""The API as a service: a real HTTP server on a real port."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from pinfold.api.service import ApiService, Listen
from pinfold.db.models import Service
from pinfold.model import errors
from tests.http.cloud import Cloud

Serve = Callable[..., ApiService]


@pytest.fixture
def serve(cloud: Cloud) -> Iterator[Serve]:
    """Starts the API (or another application) on a free port."""
    started: list[ApiService] = []

    def start(app: Any = None, **listen: Any) -> ApiService:
        service = ApiService(app or cloud.app, cloud.deps, Listen("api-1", **{"port": 0, **listen}))
        service.start()
        started.append(service)
        return service

    yield start
    for service in started:
        service.stop()


def url(service: ApiService) -> str:
    """Where it listens."""
    return f"http://127.0.0.1:{service.port}"


def test_it_answers_over_kept_connections(cloud: Cloud, serve: Serve) -> None:
    server = cloud.ask()
    with httpx.Client(base_url=url(serve()), headers={"X-Auth-Token": "ann:demo"}) as client:
        for _ in range(5):
            assert client.get(f"/v2.1/servers/{server}").json()["server"]["id"] == server
        links = client.get("/v2.1").json()["version"]["links"]
    assert links[0]["href"].startswith("http://127.0.0.1:")


def test_an_image_goes_up_in_chunks_and_comes_down_whole(cloud: Cloud, serve: Serve) -> None:
    pieces = [bytes([number]) * 70000 for number in range(20)]
    with httpx.Client(base_url=url(serve())) as client:
        body = {"name": "i", "disk_format": "raw", "container_format": "bare"}
        path = f"/image/v2/images/{client.post('/image/v2/images', json=body).json()['id']}/file"
        headers = {"Content-Type": "application/octet-stream"}
        assert client.put(path, content=iter(pieces), headers=headers).status_code == 204
        assert client.get(path).content == b"".join(pieces)


class Slow:
    """An application whose requests wait until they are let go."""

    def __init__(self) -> None:
        self.arrived = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
        self.arrived.release()
        self.go.wait(10)
        start_response("200 OK", [("Content-Length", "4")])
        return [b"done"]


def test_a_stop_lets_requests_end_and_accepts_no_more(serve: Serve) -> None:
    slow = Slow()
    service = serve(slow)
    answers: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: answers.append(httpx.get(url(service), timeout=10)))
    asking.start()
    assert slow.arrived.acquire(timeout=5)
    stopping = threading.Thread(target=service.stop)
    stopping.start()
    _refused(service.port)
    assert stopping.is_alive()
    slow.go.set()
    asking.join(10)
    stopping.join(10)
    assert answers[0].text == "done"
    assert not stopping.is_alive()


def _refused(port: int) -> None:
    """Wait until nobody listens."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return
        time.sleep(0.01)
    pytest.fail("it still accepts connections")


def test_a_stop_does_not_wait_for_ever(serve: Serve) -> None:
    slow = Slow()
    service = serve(slow, stop_wait=0.3)

    def ask() -> None:
        with pytest.raises(httpx.HTTPError):
            httpx.get(url(service), timeout=10)

    asking = threading.Thread(target=ask)
    asking.start()
    assert slow.arrived.acquire(timeout=5)
    began = time.monotonic()
    service.stop()
    assert time.monotonic() - began < 5
    slow.go.set()
    asking.join(10)


def test_kept_connections_do_not_hold_a_stop_up(serve: Serve) -> None:
    service = serve()
    kept = http.client.HTTPConnection("127.0.0.1", service.port)
    kept.request("GET", "/v2.1")
    kept.getresponse().read()
    began = time.monotonic()
    service.stop()
    service.stop()
    assert time.monotonic() - began < 3


def test_a_taken_port_is_a_configuration_error(serve: Serve, cloud: Cloud) -> None:
    taken = serve().port
    again = ApiService(cloud.app, cloud.deps, Listen("api-2", port=taken))
    with pytest.raises(errors.ConfigurationError, match="port"):
        again.start()


def test_a_stop_before_the_start_keeps_it_from_listening(cloud: Cloud) -> None:
    service = ApiService(cloud.app, cloud.deps, Listen("api-1", port=0))
    service.stop()
    service.start()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", service.port), 1)


def test_it_stands_in_the_list_of_services(cloud: Cloud, serve: Serve) -> None:
    serve()
    query = sa.select(Service.host).where(Service.binary == "pinfold-api", Service.ready)
    until = time.monotonic() + 5
    while time.monotonic() < until:
        if cloud.book.read(lambda session: session.scalar(query)) == "api-1":
            return
        time.sleep(0.02)
    pytest.fail("it has not noted that it lives")


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GARBAGE\r\n\r\n",
        b"POST /v2.1/servers HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v2.1/servers HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"POST /v2.1/servers HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /v2.1/servers HTTP/1.1\r\nHost: \xff\xfe\r\nX-Auth-Token: \xc3\xa4:b\r\n\r\n",
        b"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://other/v2.1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_odd_requests_get_an_answer_below_500(serve: Serve, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", serve().port), 5) as connection:
        connection.sendall(raw)
        line = connection.recv(65536).split(b"\r\n")[0]
    assert line.startswith(b"HTTP/1."), line
    assert int(line.split()[1]) < 500, line
