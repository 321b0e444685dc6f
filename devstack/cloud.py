"""Start, resume and stop one cloud."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx

from devstack import config, processes, rabbit, seed
from devstack.client import Client
from devstack.databases import KINDS, Database
from devstack.layout import Layout, Options, Process, StackError, State
from devstack.progress import Progress

#: The folder of pinfold-api and the others: that of the interpreter that runs this.
BINARIES = Path(sys.executable).parent
#: How long a service may take to be ready, on a busy machine.
READY = 60.0


class Cloud:
    """The cloud whose files stand in ``layout``; ``state`` is what stack.json says."""

    def __init__(self, layout: Layout, state: State, progress: Progress) -> None:
        self.layout, self.state, self.progress = layout, state, progress
        #: What this run started, to be stopped if it fails.
        self._begun: list[str] = []
        #: Where in its log each of these began.
        self._logs: dict[str, int] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.state.options.port}"

    def client(self) -> Client:
        return Client(self.url)

    def running(self) -> list[str]:
        """The names of processes that live."""
        processes.reap()
        return [name for name, process in self.state.processes.items() if processes.alive(process)]

    def up(self, migrate: bool) -> None:
        """Start what does not run; on any failure stop what this run started."""
        try:
            self._servers()
            if migrate and not self._services_alive():
                with self.progress.step("bringing the schema up to date"):
                    self.migrate()
            self._services()
            self._ready()
        except BaseException:
            with _uninterrupted():
                self.stop(self._begun)
            raise

    def resume(self) -> list[str]:
        """Start only what is dead; returns its names."""
        self.up(migrate=False)
        return self._begun

    def down(self) -> None:
        """Stop every process that was recorded: services first, then what they use."""
        self.stop(list(self.state.processes))

    # Private servers

    def create_servers(self) -> None:
        """Decide on ports and passwords, and make the folders, of the private servers that are needed."""
        options = self.state.options
        if not options.multi:
            return
        if options.transport_url is None and rabbit.NAME not in self.state.servers:
            self._create_brokers(options.brokers)
        if options.database_url is None and options.database not in self.state.servers:
            kind = KINDS[options.database]
            with self.progress.step(f"creating a private {kind.title}"):
                made = kind.create(self.layout, free_ports(1)[0], secrets.token_hex(16))
            self.state.servers[kind.name] = made
        for name in {config.account(name) for name in options.services}:
            self.state.accounts.setdefault(name, secrets.token_hex(16))
        if rabbit.NAME in self.state.servers:
            rabbit.write_accounts(self.layout, self.state.accounts)
        self.layout.save(self.state)

    def _create_brokers(self, count: int) -> None:
        """One broker, or a cluster of them with one port mapper."""
        ports, mapper = free_ports(2 * count + 1), None
        for number in range(1, count + 1):
            broker = rabbit.record([ports[2 * number - 2], ports[2 * number - 1], ports[-1]], number, mapper)
            mapper = broker["mapper"]
            rabbit.create(self.layout, broker, count)
            self.state.servers[rabbit.name(number)] = broker

    def _servers(self) -> None:
        """Start the private servers, the slowest first, then wait for each."""
        begun = self.running()
        brokers = {name: one for name, one in self.state.servers.items() if name.startswith(rabbit.NAME)}
        dead = [name for name in brokers if name not in begun]
        if dead and rabbit.MAPPER not in begun:
            self._record(rabbit.MAPPER, rabbit.start_mapper(self.layout, brokers[dead[0]]))
        # the others of a new cluster join the first
        first, *others = dead or [""]
        new = bool(first) and rabbit.is_new(self.layout, brokers[first])
        if first:
            self._record(first, rabbit.start(self.layout, brokers[first]))
        for kind in KINDS.values():
            if kind.name in self.state.servers and kind.name not in begun:
                self._database(kind)
        if first:
            title = "the private RabbitMQ" if len(brokers) == 1 else f"{len(dead)} private RabbitMQ"
            with self.progress.step(f"starting {title}"):
                if new:
                    rabbit.await_ready(self.layout, brokers[first], self.state.processes[first])
                for name in others:
                    self._record(name, rabbit.start(self.layout, brokers[name]))
                for name in dead:
                    rabbit.await_ready(self.layout, brokers[name], self.state.processes[name])

    def _database(self, kind: Database) -> None:
        record = self.state.servers[kind.name]
        with self.progress.step(f"starting the private {kind.title}"):
            self._begun.append(kind.name)
            self.state.processes[kind.name] = kind.start(self.layout, record)
            self.layout.save(self.state)
            if not record.get("made"):
                kind.make_database(record)
                record["made"] = True
                self.layout.save(self.state)

    # Services

    def _services_alive(self) -> bool:
        return bool(set(self.running()) & set(self.state.options.services))

    def migrate(self) -> None:
        """Bring the schema up to date."""
        name = "all-in-one" if not self.state.options.multi else "conductor-1"
        command = [str(BINARIES / "pinfold-manage"), "--config-file", str(self.layout.config(name))]
        done = subprocess.run(
            [*command, "db", "upgrade"], cwd="/", env=_clean_environment(), capture_output=True, text=True
        )
        if done.returncode:
            raise StackError(f"pinfold-manage db upgrade failed:\n{done.stdout}{done.stderr}")

    def _services(self) -> None:
        alive = self.running()
        names = [name for name in self.state.options.services if name not in alive]
        self._port_is_free(names)
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        """Start one service process; it waits by itself until its old incarnation is gone."""
        program = "all-in-one" if name == "all-in-one" else name.partition("-")[0]
        command = [str(BINARIES / f"pinfold-{program}"), "--config-file", str(self.layout.config(name))]
        log = self.layout.log_file(name)
        self._logs[name] = log.stat().st_size if log.exists() else 0
        self._record(name, processes.start(command, self.layout.log_file(name)))

    def _port_is_free(self, names: Iterable[str]) -> None:
        if any(name in ("api", "all-in-one") for name in names):
            check_port(self.state.options.port)

    def _record(self, name: str, process: Process) -> None:
        self._begun.append(name)
        self.state.processes[name] = process
        self.layout.save(self.state)

    def _ready(self) -> None:
        names = [name for name in self._begun if name in self.state.options.services]
        if not names:
            return
        with self.progress.step(f"starting {_list(names)}"):
            deadline = time.monotonic() + READY
            while missing := self._missing():
                self._check_alive(names)
                if time.monotonic() > deadline:
                    raise StackError(f"not ready within {READY:.0f} s: {missing}\n{self._tails(names)}")
                time.sleep(0.1)

    def has_started(self, name: str) -> bool:
        """Whether the process that does the work of ``name`` now has said that it takes work."""
        try:
            pid = self.layout.pid_file(name).read_text().strip()
            with open(self.layout.log_file(name), "rb") as log:
                log.seek(self._logs.get(name, 0))
                said = f" has started as process {pid}\n".encode() in log.read()
        except FileNotFoundError:
            return False
        return said and processes.start_time(int(pid)) is not None

    def _missing(self) -> str:
        """What is not ready yet, in words; empty when all is."""
        for name in self._begun:
            if name in self.state.options.services and not self.has_started(name):
                return f"{name} has not started"
        try:
            with self.client() as client:
                if (answer := client.request("GET", "/healthz")).status_code != 200:
                    return f"/healthz says {answer.status_code}: {answer.text[:200]}"
                nodes = client.nodes()
        except httpx.HTTPError as error:
            return f"the API does not answer: {error}"
        wanted = self.state.options.host_names
        down = [host for host in wanted if nodes.get(host, {}).get("state") != "up"]
        return f"{_list(down)} not up" if down else ""

    def _check_alive(self, names: list[str]) -> None:
        processes.reap()
        for name in names:
            if not processes.alive(self.state.processes[name]):
                raise StackError(f"{name} ended:\n{processes.tail(self.layout.log_file(name))}")

    def _tails(self, names: list[str]) -> str:
        return "\n".join(f"{name}:\n{processes.tail(self.layout.log_file(name), 8)}" for name in names)

    def seed(self) -> None:
        with self.client() as client:
            seed.seed(client)

    # The end

    def stop(self, names: Iterable[str]) -> None:
        names = [name for name in names if name in self.state.processes]
        servers = self._how_to_stop()
        services = [name for name in names if name not in servers]
        _all_at_once(lambda name: self._stop_one(name, processes.stop), services)
        # brokers of a cluster must go together: one that is left behind waits for the others
        brokers = [name for name in names if name.startswith(rabbit.NAME)]
        _all_at_once(lambda name: self._stop_one(name, rabbit.stop), brokers)
        for name, how in servers.items():
            if name in names and name not in brokers:
                self._stop_one(name, how)
        for name in names:
            self.state.processes.pop(name, None)
        self.layout.save(self.state)

    def _how_to_stop(self) -> dict[str, Callable[[Process], None]]:
        """What is behind the services, in the order in which it goes."""
        return {
            **{name: rabbit.stop for name in self.state.servers if name.startswith(rabbit.NAME)},
            rabbit.MAPPER: processes.stop,
            **{kind.name: kind.stop for kind in KINDS.values()},
        }

    def _stop_one(self, name: str, how: Callable[[Process], None]) -> None:
        how(self.state.processes[name])
        for file in (self.layout.pid_file(name), self.layout.run / f"{name}.supervisor"):
            file.unlink(missing_ok=True)


def _all_at_once(what: Callable[[str], None], names: list[str]) -> None:
    threads = [threading.Thread(target=what, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class _uninterrupted:
    """No Ctrl-C while what was started is being stopped."""

    def __enter__(self) -> None:
        self._old = {how: signal.signal(how, signal.SIG_IGN) for how in (signal.SIGINT, signal.SIGTERM)}

    def __exit__(self, *exc: object) -> None:
        for how, old in self._old.items():
            signal.signal(how, old)


def _clean_environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "OS_"))}


def free_ports(count: int) -> list[int]:
    """Ports that nobody has; all are held until all are known, so that they differ."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            why = f"port {port} on 127.0.0.1 is taken ({error.strerror}); choose one with --port"
            raise StackError(why) from error


def _list(names: list[str]) -> str:
    if len(names) <= 3:
        return ", ".join(names)
    return f"{', '.join(names[:2])} and {len(names) - 2} more"


def wipe(layout: Layout) -> None:
    """Remove everything that this cloud and those set aside wrote."""
    for file in [layout.state_file, *layout.root.glob("set-aside/*/stack.json")]:
        state = Layout(file.parent).load()
        for kind in KINDS.values():
            if state is not None and kind.name in state.servers:
                kind.wipe(state.servers[kind.name])
    shutil.rmtree(layout.root)


def open_cloud(layout: Layout, progress: Progress) -> Cloud | None:
    state = layout.load()
    return None if state is None else Cloud(layout, state, progress)


def prepare(layout: Layout, options: Options, progress: Progress) -> Cloud:
    """The cloud for ``options`` in ``layout``, with its files written and nothing new started."""
    old = open_cloud(layout, progress)
    if old is not None:
        running = old.running()
        if running and old.state.options != options:
            raise StackError(
                f"a cloud with other options runs in {layout.root}; "
                f"stop it first: ./unstack.sh --dir {layout.root}"
            )
        if not running and not options.keeps_data_of(old.state.options):
            progress.say(f"the stopped cloud in {layout.root} was another: set aside in {layout.set_aside()}")
            old = None
    layout.make()
    if options.topology is not None:
        layout.topology.write_text(options.topology)
    state = State(options) if old is None else old.state
    state.options = options
    cloud = Cloud(layout, state, progress)
    cloud.create_servers()
    config.write(layout, state)
    config.write_clients(layout, options, BINARIES)
    layout.save(state)
    return cloud
