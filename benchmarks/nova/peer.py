"""Install, start and stop a real Nova: API, conductor, scheduler, two computes, placement, MariaDB, RabbitMQ."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import httpx

from benchmarks import meter
from benchmarks.nova import config
from benchmarks.nova.neighbours import IMAGE
from devstack import mariadb, processes, rabbit
from devstack.cloud import free_ports
from devstack.layout import Layout, Options, State
from devstack.progress import Progress, wait_for
from pinfold.rpcapi.permissions import Permissions, definitions

NOVA, PLACEMENT = "34.0.0", "16.0.0"
PACKAGES = [f"nova=={NOVA}", f"openstack-placement=={PLACEMENT}", "uwsgi", "pymysql"]
INSIDE = Path(__file__).parent / "inside"
#: Not counted as Nova's: it stands for services that Nova does not bring, and is far cheaper than they are.
NEIGHBOURS = "neighbours"
_EVERYTHING = Permissions(configure=".*", write=".*", read=".*", topic_write=".*", topic_read=".*")
_HEADERS = {"X-Auth-Token": "admin:admin", "OpenStack-API-Version": "compute 2.90"}


class Nova:
    """A Nova in ``folder``, from ``with`` to its end. Raises SystemExit with the end of a log where one ends."""

    image = IMAGE

    def __init__(self, folder: Path, topology: Path, hosts: int, progress: Progress) -> None:
        self._venv, self._topology, self._progress = folder / "venv", topology, progress
        self.layout = Layout(folder / "nova")
        self.state = State(Options(multi=True, hosts=hosts))
        self._hosts = [f"compute-{number}" for number in range(1, hosts + 1)]
        self._password = secrets.token_hex(8)
        names = ("broker", "distribution", "mapper", "database", "api", "placement", "neighbours")
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))

    @property
    def port(self) -> int:
        """Of the API, at 127.0.0.1."""
        return self._ports["api"]

    def __enter__(self) -> Nova:
        shutil.rmtree(self.layout.root, ignore_errors=True)
        self.layout.make()
        try:
            self._install()
            with self._progress.step("Nova: database and broker"):
                self._start_servers()
            self._configure()
            with self._progress.step("Nova: schemas"):
                self._migrate()
            with self._progress.step("Nova: services"):
                self._start_services()
                self._map_hosts()
            self._seed()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    # --- what is measured ------------------------------------------------------------------------

    def reading(self) -> meter.Reading:
        """CPU and memory without the neighbours; statements are those of the whole server."""
        counted = State(self.state.options, dict(self.state.processes), dict(self.state.servers))
        counted.processes.pop(NEIGHBOURS, None)
        counted.processes.pop(rabbit.MAPPER, None)
        return meter.read(self.layout, counted)

    # --- set-up ----------------------------------------------------------------------------------

    def _install(self) -> None:
        python = self._venv / "bin" / "python"
        stamp = self._venv / "packages"
        if not stamp.exists() or stamp.read_text() != " ".join(PACKAGES):
            with self._progress.step("Nova: pip install, some minutes"):
                self._run(["python3", "-m", "venv", str(self._venv)])
                self._run([str(python), "-m", "pip", "install", "-q", *PACKAGES])
            stamp.write_text(" ".join(PACKAGES))
        (virt,) = self._venv.glob("lib/python3*/site-packages/nova/virt")
        link = virt / "pinned_fake.py"
        link.unlink(missing_ok=True)
        link.symlink_to(INSIDE / "pinned_fake.py")

    def _start_servers(self) -> None:
        broker = rabbit.record([self._ports[name] for name in ("broker", "distribution", "mapper")])
        rabbit.create(self.layout, broker)
        accounts = json.dumps(definitions({"nova": (self._password, _EVERYTHING)}))
        (self.layout.root / "broker" / "accounts.json").write_text(accounts)
        self.state.servers[rabbit.NAME] = broker
        self.state.processes[rabbit.MAPPER] = rabbit.start_mapper(self.layout, broker)
        self.state.processes[rabbit.NAME] = rabbit.start(self.layout, broker)
        database = mariadb.create(self.layout, self._ports["database"], self._password)
        database["settings"] = {"max-connections": "1000", "innodb-buffer-pool-size": "512M"}
        self.state.servers[mariadb.NAME] = database
        self.state.processes[mariadb.NAME] = mariadb.start(self.layout, database)
        for name in config.DATABASES:
            mariadb.execute(database, f"CREATE DATABASE {name} CHARACTER SET utf8mb3")
        rabbit.await_ready(self.layout, broker, self.state.processes[rabbit.NAME])

    def _configure(self) -> None:
        for host in self._hosts:
            folder = self.layout.root / host
            (folder / "instances").mkdir(parents=True)
            # made once: a compute does not start again under another id
            (folder / "compute_id").write_text(str(uuid.uuid4()))
        config.write(self.layout, self._venv, self._ports, self._password, self._hosts)

    def _migrate(self) -> None:
        manage = ["nova-manage", *self._files("common", "databases")]
        template = "{scheme}://{username}:{password}@{hostname}:{port}/"
        cell1 = ["--name", "cell1", "--database_connection", template + "nova_cell1?{query}"]
        placement = {"OS_PLACEMENT_CONFIG_DIR": str(self.layout.etc)}
        self._run([*manage, "api_db", "sync"])
        self._run(["placement-manage", *self._files("placement"), "db", "sync"], placement)
        self._run([*manage, "cell_v2", "map_cell0", "--database_connection", template + "nova_cell0?{query}"])
        self._run([*manage, "db", "sync"])
        self._run([*manage, "cell_v2", "create_cell", *cell1, "--transport-url", self._transport_url()])

    def _transport_url(self) -> str:
        return config.transport_url(self._ports, self._password)

    def _start_services(self) -> None:
        neighbours = [sys.executable, "-m", "benchmarks.nova.neighbours", str(self._ports["neighbours"])]
        self._start(NEIGHBOURS, neighbours, {"PYTHONPATH": str(Path(__file__).parents[2])})
        self._start_wsgi(
            "placement", "placement.wsgi.api", 2, 4, {"OS_PLACEMENT_CONFIG_DIR": str(self.layout.etc)}
        )
        files = ";".join(("api-paste.ini", "common.conf", "databases.conf"))
        here = {"OS_NOVA_CONFIG_DIR": str(self.layout.etc), "OS_NOVA_CONFIG_FILES": files}
        self._start_wsgi("api", "nova.wsgi.osapi_compute", 2, 8, here)
        for name in ("conductor", "scheduler"):
            self._start(name, [f"nova-{name}", *self._files("common", "databases")])
        for host in self._hosts:
            self._start(host, ["nova-compute", *self._files("common", host)])
        self._await("the API answers", self._answers, 180)

    def _start_wsgi(
        self, name: str, module: str, workers: int, threads: int, environment: dict[str, str]
    ) -> None:
        command = [
            "uwsgi",
            "--http-socket",
            f"127.0.0.1:{self._ports[name]}",
            "--module",
            f"{module}:application",
        ]
        command += ["-H", str(self._venv), "--master", "--lazy-apps", "--enable-threads", "--die-on-term"]
        command += ["--processes", str(workers), "--threads", str(threads), "--buffer-size", "65535"]
        command += [
            "--listen",
            "100",
            "--thunder-lock",
            "--disable-logging",
            "--add-header",
            "Connection: close",
        ]
        self._start(name, command, environment)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/v2.1/", headers=_HEADERS).status_code == 200
        except httpx.HTTPError:
            return False

    def _map_hosts(self) -> None:
        self._await(
            "the computes report", lambda: self._count("nova_cell1.compute_nodes") >= len(self._hosts), 120
        )
        self._run(["nova-manage", *self._files("common", "databases"), "cell_v2", "discover_hosts"])

    def _count(self, table: str) -> int:
        ((count,),) = mariadb.execute(
            self.state.servers[mariadb.NAME], f"SELECT count(*) FROM {table} WHERE deleted = 0"
        )
        return int(count)

    def _seed(self) -> None:
        """The flavor of the load; and one server, so that all is warm."""
        flavor = {"id": "p2", "name": "p2", "vcpus": 2, "ram": 512, "disk": 1}
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=_HEADERS, timeout=120) as client:
            client.post("/v2.1/flavors", json={"flavor": flavor}).raise_for_status()
            specs = {"extra_specs": {"hw:cpu_policy": "dedicated"}}
            client.post("/v2.1/flavors/p2/os-extra_specs", json=specs).raise_for_status()
            self._await("a first server is ACTIVE", lambda: self._boots(client), 300)

    def _boots(self, client: httpx.Client) -> bool:
        body = {"server": {"name": "first", "flavorRef": "p2", "imageRef": IMAGE, "networks": "none"}}
        made = client.post("/v2.1/servers", json=body)
        if made.status_code != 202:
            return False
        url = f"/v2.1/servers/{made.json()['server']['id']}"
        status = "BUILD"
        deadline = time.monotonic() + 60
        while status == "BUILD" and time.monotonic() < deadline:
            time.sleep(0.2)
            status = client.get(url).json()["server"]["status"]
        client.delete(url)
        return bool(status == "ACTIVE")

    # --- processes -------------------------------------------------------------------------------

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        path = f"{self._venv / 'bin'}:{os.environ['PATH']}"
        return {
            "PATH": path, "PYTHONPATH": str(INSIDE), "PINFOLD_BENCH_TOPOLOGY": str(self._topology), **more
        }  # fmt: skip

    def _files(self, *names: str) -> list[str]:
        return [word for name in names for word in ("--config-file", str(self.layout.config(name)))]

    def _start(self, name: str, command: list[str], environment: Mapping[str, str] | None = None) -> None:
        made = self._environment(environment or {})
        found = shutil.which(command[0], path=made["PATH"]) or command[0]
        self.state.processes[name] = processes.start([found, *command[1:]], self.layout.log_file(name), made)

    def _run(self, command: list[str], environment: Mapping[str, str] | None = None) -> None:
        made = {**os.environ, **self._environment(environment or {})}
        found = shutil.which(command[0], path=made["PATH"]) or command[0]
        done = subprocess.run([found, *command[1:]], env=made, cwd="/", capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(
                f"{' '.join(command)}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
            )

    def _await(self, what: str, ready: Callable[[], object], seconds: float) -> None:
        def look() -> object:
            processes.reap()
            for name, process in self.state.processes.items():
                if not processes.alive(process):
                    raise SystemExit(
                        f"Nova's {name} ended:\n{processes.tail(self.layout.log_file(name), 30)}"
                    )
            return ready()

        try:
            wait_for(f"Nova: {what}", look, seconds, every=0.5)
        except TimeoutError as error:
            raise SystemExit(f"{error}; see {self.layout.log}") from error

    def _stop(self) -> None:
        """Everything, the servers last."""
        last = (rabbit.NAME, mariadb.NAME, rabbit.MAPPER)
        names = [name for name in self.state.processes if name not in last]
        for name in [*names, *(name for name in last if name in self.state.processes)]:
            processes.stop(self.state.processes[name])
        if record := self.state.servers.get(mariadb.NAME):
            mariadb.wipe(record)
