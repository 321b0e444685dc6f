"""A cloud without workers: the real API on a real book. Tests speak as the worker, through ``box``."""

from __future__ import annotations

import io
import pathlib
import sqlite3
import sys
from typing import Any
from urllib.parse import unquote_to_bytes

import httpx
import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import event

from pinfold.api.app import make_app
from pinfold.api.deps import Deps, Settings
from pinfold.conductor.settings import Settings as ConductorSettings
from pinfold.db.models import Base, Operation
from pinfold.db.session import Book
from pinfold.image.files import FileStore
from pinfold.model import quotas
from pinfold.model.work import Times, Work
from pinfold.rpcapi import clients
from pinfold.rpcapi.context import Context
from pinfold.rpcapi.local import Hub, LocalTransport
from pinfold.rpcapi.wire import exported
from pinfold.runtime import RealRuntime
from tests.conductor.box import Box

Json = dict[str, Any]
Rows = dict[str, list[tuple[Any, ...]]]
ADMIN, DEMO, OTHER = "admin:admin", "ann:demo:member", "bob:other:member"
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDdowKIPC6IoIHnOuWPj5LWgZUSRO+qLrej0+Dlw5abS"
ROOMY = {**quotas.DEFAULTS, "instances": 1000, "cores": 4000, "ram": 4000000}
DIRECT = "a statement on the driver"
MISSING = "00000000-0000-4000-8000-000000000000"


class Wsgi(httpx.BaseTransport):
    """Speaks to an application as a server does. (httpx's own does not hand on bytes that are no UTF-8.)"""

    def __init__(self, app: Any) -> None:
        self._app = app

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        path, _, query = request.url.raw_path.partition(b"?")
        body = request.read()
        environ = {
            "REQUEST_METHOD": request.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
            "QUERY_STRING": query.decode("latin-1"),
            "SERVER_NAME": "cloud",
            "SERVER_PORT": "8774",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in request.headers.raw:
            key = name.decode("latin-1").upper().replace("-", "_")
            key = key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"
            environ[key] = value.decode("latin-1")
        started: list[Any] = []
        content = b"".join(self._app(environ, lambda *arguments: started.append(arguments)))
        status, headers = started[0][:2]
        return httpx.Response(int(status.split()[0]), headers=headers, content=content)


class Ears:
    """Hears what is cast to a conductor or a worker, and does nothing about it."""

    def __init__(self, runtime: RealRuntime) -> None:
        self.heard: list[Any] = []
        self.rang = runtime.event()

    def _hear(self, what: Any) -> None:
        self.heard.append(what)
        self.rang.set()

    @exported
    def run(self, context: Context, operation: str) -> None:
        self._hear((context, operation))

    @exported
    def shelve(self, context: Context, record: Json) -> None:
        self._hear(record)

    @exported
    def shelve_offload(self, context: Context, record: Json) -> None:
        self._hear(record)

    @exported
    def unshelve_in_place(self, context: Context, record: Json) -> None:
        self._hear(record)

    @exported
    def delete(self, context: Context, record: Json) -> None:
        self._hear(record)


class Cloud:
    """``url`` is the book's; nobody listens to the API's casts unless ``listen`` is called."""

    def __init__(
        self, url: str, book: Book, folder: pathlib.Path, *, times: Times = Times(), **settings: Any
    ) -> None:
        self.url = url
        self.book = book
        self.runtime = RealRuntime()
        self.images = FileStore(self.runtime, str(folder / "images"))
        self.box = Box(book, self.images, ConductorSettings(host="conductor-1", times=times))
        self.transport = LocalTransport(Hub(self.runtime))
        self.conf = cfg.ConfigOpts()
        self.conf([], project="pinfold", default_config_files=[], default_config_dirs=[])
        nobody = Context("req-api")
        self.deps = Deps(
            book=book,
            conductor=clients.ConductorClient(self.transport, nobody),
            compute=clients.ComputeClient(self.transport, nobody),
            images=self.images,
            runtime=self.runtime,
            broker_answers=self.transport.ping,
            times=self.box.times,
            settings=Settings(**{"quotas": ROOMY, **settings}),
        )
        self.app = make_app(self.deps, self.conf)
        self._rows: tuple[int, Rows] | None = None
        self._changes: sqlite3.Connection | None = None
        if book.engine.dialect.name == "sqlite":
            self._changes = sqlite3.connect(
                book.engine.url.database or "", isolation_level=None, check_same_thread=False
            )
        self.admin = self.client(ADMIN)
        self.demo = self.client(DEMO)
        self.other = self.client(OTHER)

    def close(self) -> None:
        """Let go of everything."""
        if self._changes is not None:
            self._changes.close()
        self.transport.close()
        self.book.engine.dispose()

    def client(self, token: str | None, version: str = "2.100") -> httpx.Client:
        """Somebody who speaks to it."""
        headers = {"OpenStack-API-Version": f"compute {version}"}
        if token is not None:
            headers["X-Auth-Token"] = token
        return httpx.Client(transport=Wsgi(self.app), base_url="http://cloud:8774", headers=headers)

    def listen(self) -> tuple[Ears, Ears]:
        """Somebody who hears the conductor's calls, and somebody who hears those of host n1."""
        conductor, worker = Ears(self.runtime), Ears(self.runtime)
        self.transport.serve(clients.CONDUCTOR_TOPIC, "conductor-1", conductor, "1.0")
        self.transport.serve(clients.COMPUTE_TOPIC, "n1", worker, "1.0")
        return conductor, worker

    # --- what there is ---------------------------------------------------------------------------

    def flavor(self, name: str = "p2", vcpus: int = 2, specs: Json | None = None, **fields: Any) -> str:
        """A flavor, with dedicated CPUs unless other extra specs are given; its id is its name."""
        body = {"id": name, "name": name, "vcpus": vcpus, "ram": 512, "disk": 1, **fields}
        assert self.admin.post("/v2.1/flavors", json={"flavor": body}).status_code == 200
        specs = {"hw:cpu_policy": "dedicated"} if specs is None else specs
        if specs:
            url = f"/v2.1/flavors/{name}/os-extra_specs"
            headers = {"OpenStack-API-Version": "compute 2.1"}
            answer = self.admin.post(url, json={"extra_specs": specs}, headers=headers)
            assert answer.status_code == 200, answer.text
        return name

    def image(self, name: str = "tiny", **fields: Any) -> str:
        """A public image with some bytes; its id."""
        body = {"name": name, "disk_format": "raw", "container_format": "bare", "visibility": "public"}
        made = self.admin.post("/image/v2/images", json=body | fields)
        assert made.status_code == 201, made.text
        image: str = made.json()["id"]
        put = self.admin.put(
            f"/image/v2/images/{image}/file",
            content=b"bytes of a disk",
            headers={"Content-Type": "application/octet-stream"},
        )
        assert put.status_code == 204, put.text
        return image

    def keypair(self, name: str, client: httpx.Client | None = None) -> Json:
        """A keypair of the demo user."""
        body = {"keypair": {"name": name, "public_key": PUBLIC_KEY}}
        made = (client or self.demo).post("/v2.1/os-keypairs", json=body)
        assert made.status_code == 201, made.text
        shown: Json = made.json()["keypair"]
        return shown

    def body(self, **fields: Any) -> Json:
        """The body of a request for a server."""
        server = {"name": "a", "flavorRef": "p2", "imageRef": self.tiny, "networks": "none", **fields}
        return {"server": {name: value for name, value in server.items() if value is not None}}

    def stock(self) -> Cloud:
        """Give it two hosts, a flavor and an image."""
        for host in ("n1", "n2"):
            self.box.register(host)
        self.flavor()
        self.tiny = self.image()
        return self

    # --- servers ---------------------------------------------------------------------------------

    def ask(self, client: httpx.Client | None = None, **fields: Any) -> str:
        """POST a server that nobody builds yet; its id."""
        answer = (client or self.demo).post("/v2.1/servers", json=self.body(**fields))
        assert answer.status_code == 202, answer.text
        server: str = answer.json()["server"]["id"]
        return server

    def boot(self, client: httpx.Client | None = None, **fields: Any) -> str:
        """A server that runs; its id."""
        server = self.ask(client, **fields)
        self.build(server)
        return server

    def build(self, server: str) -> None:
        """What the conductor and a worker do with it."""
        self.box.runner.run(self.open_operation(server))
        self.box.claim(self.box.last)
        assert self.box.finish(self.box.last).done

    def shelve(self, server: str) -> str:
        """Shelve and offload it; the id of its image."""
        return self.box.shelve(server)

    def cast(self, server: str) -> Work:
        """What its worker is told to do by a sweeper."""
        self.box.age(server)
        self.box.sweeper.operations()
        assert self.box.last.instance == server
        return self.box.last

    def carry(self, server: str) -> Work:
        """Its worker does what is open."""
        return self.box.do(self.cast(server))

    def through(self, server: str, *actions: str) -> str:
        """The server, after these actions."""
        for action in actions:
            answer = self.act(server, action)
            assert answer.status_code == 202, answer.text
            self.carry(server)
        return server

    def open_operation(self, server: str) -> str:
        """The id of its open operation."""
        found = self.book.read(
            lambda session: session.scalar(sa.select(Operation.id).where(Operation.open_key == server))
        )
        assert found is not None, "it has no open operation"
        return found

    def show(self, server: str, client: httpx.Client | None = None) -> Json:
        """GET it."""
        answer = (client or self.admin).get(f"/v2.1/servers/{server}")
        assert answer.status_code == 200, answer.text
        shown: Json = answer.json()["server"]
        return shown

    def act(
        self, server: str, action: str, value: Any = None, client: httpx.Client | None = None
    ) -> httpx.Response:
        """POST an action."""
        return (client or self.demo).post(f"/v2.1/servers/{server}/action", json={action: value})

    # --- looking ---------------------------------------------------------------------------------

    def everything(self) -> Rows:
        """All rows of all tables; where it can be told, read anew only when somebody has written."""
        if self._changes is None:
            return self._read_everything()
        (now,) = self._changes.execute("PRAGMA data_version").fetchone()
        if self._rows is None or self._rows[0] != now:
            self._rows = now, self._read_everything()
        return self._rows[1]

    def _read_everything(self) -> Rows:
        def read(session: Any) -> Rows:
            return {
                name: sorted(map(tuple, session.execute(sa.select(table))), key=repr)
                for name, table in Base.metadata.tables.items()
            }

        return self.book.read(read)

    def statements(self, client: httpx.Client, url: str) -> list[str]:
        """The SQL that a GET costs; DIRECT is one that SQLAlchemy did not see (one for each connection)."""
        seen: list[str] = []

        def take(*arguments: Any) -> None:
            seen.append(DIRECT)

        def note(*arguments: Any) -> None:
            if seen[-1] == DIRECT:
                seen.pop()
            seen.append(arguments[2])

        engine = self.book.engine
        event.listen(engine, "checkout", take)
        event.listen(engine, "before_cursor_execute", note)
        try:
            answer = client.get(url)
            assert answer.status_code == 200, answer.text
        finally:
            event.remove(engine, "before_cursor_execute", note)
            event.remove(engine, "checkout", take)
        return [text for text in seen if not text.startswith("BEGIN")]
