"""One running cloud as the tests see it: its API, its processes and its hypervisor's files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from devstack import cloud as clouds
from devstack import processes
from devstack.client import ApiError, Client, Json, NotReached, pins, until
from devstack.databases import KINDS
from devstack.layout import Layout, Options, State
from devstack.progress import Progress
from devstack.seed import IMAGE
from devstack.story import write_faults

#: For what only exists with one process per service, or only without.
only_multi = pytest.mark.parametrize("running", ["multi"], indirect=True)
only_all_in_one = pytest.mark.parametrize("running", ["all-in-one"], indirect=True)
ROOT = Path(__file__).parents[2]
BINARIES = Path(sys.executable).parent


def stack(*arguments: str, script: str = "stack.sh", check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run stack.sh or unstack.sh as a user would."""
    command = [str(ROOT / script), *arguments]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=300)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def free_port() -> int:
    return clouds.free_ports(1)[0]


class Cloud:
    """A cloud in ``folder`` that stack.sh started; ``multi`` says whether each service is its own process."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.layout = folder, Layout(folder)
        stack("--dir", str(folder), "--port", str(free_port()), "--no-story", *options)
        self.client = Client(self._control().url)
        self.image = self.client.image_id(IMAGE)

    def _control(self) -> clouds.Cloud:
        """The same code that stack.sh runs, over what is recorded now."""
        return clouds.Cloud(self.layout, self.state, Progress())

    @property
    def state(self) -> State:
        state = self.layout.load()
        assert state is not None
        return state

    @property
    def options(self) -> Options:
        return self.state.options

    @property
    def multi(self) -> bool:
        return self.options.multi

    @property
    def database(self) -> str | None:
        """The name of the private database's process; None with SQLite."""
        return next((name for name in KINDS if name in self.state.servers), None)

    @property
    def url(self) -> str:
        return self._control().url

    def close(self) -> None:
        self.client.http.close()
        stack("--dir", str(self.folder), "--wipe", script="unstack.sh")

    def reset(self) -> None:
        """Back to an empty cloud with no fault ordered and every process alive."""
        write_faults(self.layout.faults)
        if set(self.options.services) - set(self._control().running()):
            self.resume()
        for server in self.client.servers():
            self.client.request("DELETE", f"/v2.1/servers/{server['id']}")
        until(self._is_empty, lambda: f"not empty: {self._contents()}", 60)

    def _contents(self) -> dict[str, Any]:
        nodes = self.client.nodes()
        return {
            "servers": [server["id"] for server in self.client.servers()],
            "claims": {name: node["claims"] for name, node in nodes.items() if node["claims"] or pins(node)},
            "guests": {name: guests for name, guests in self.guests().items() if guests},
            "images": sorted(image["name"] for image in self.client.images() if image["name"] != IMAGE),
            "down": [name for name, node in nodes.items() if node["state"] != "up"],
        }

    def _is_empty(self) -> bool:
        return not any(self._contents().values())

    # Servers

    def ask(self, name: str, flavor: str = "p4", host: str | None = "host-1", **fields: Any) -> str:
        """Ask for a server (on a host); returns its id at once."""
        if host is not None:
            fields["availability_zone"] = f"nova:{host}"
        return self.client.boot(name, flavor, self.image, **fields)

    def boot(self, name: str, flavor: str = "p4", host: str | None = "host-1") -> str:
        """A running server's id."""
        server = self.ask(name, flavor, host)
        self.client.wait(server, "ACTIVE")
        return server

    def offload(self, server: str) -> None:
        self.client.act(server, "shelve")
        self.client.wait(server, "SHELVED_OFFLOADED")

    def unshelve(self, server: str, host: str | None = None) -> Json:
        self.client.act(server, "unshelve", None if host is None else {"host": host})
        return self.client.wait(server, "ACTIVE")

    def delete(self, server: str) -> None:
        self.client.delete(server)
        self.client.wait_gone(server)

    def used(self, host: str = "host-1") -> frozenset[int]:
        return pins(self.client.node(host))

    def pins(self, server: str) -> dict[str, frozenset[int]]:
        """The CPUs that a server holds, by node."""
        nodes = self.client.nodes()
        return {name: held for name, node in nodes.items() if (held := pins(node, server))}

    def dedicated(self, host: str = "host-1") -> int:
        return sum(len(cell["dedicated"]) for cell in self.client.node(host)["cells"])

    def await_task(self, server: str, *tasks: str | None, seconds: float = 20.0) -> Json:
        """Wait until the server's task is one of ``tasks``."""
        seen: Json = {}

        def there() -> bool:
            nonlocal seen
            seen = self.client.server(server)
            return seen["OS-EXT-STS:task_state"] in tasks

        until(there, lambda: f"{server}: no task of {tasks}: {seen}", seconds)
        return seen

    def await_pins(self, server: str, seconds: float = 20.0) -> dict[str, frozenset[int]]:
        """Wait until a claim of the server is in the book."""
        until(lambda: self.pins(server), lambda: f"{server} holds no pins", seconds)
        return self.pins(server)

    def await_unused(self, host: str = "host-1", seconds: float = 30.0) -> None:
        until(lambda: not self.used(host), lambda: f"{host}: {self.used(host)} still used", seconds)

    def await_no_images(self, seconds: float = 15.0) -> None:
        """Wait until no image but the first is left: images are deleted after the operation."""
        until(lambda: not self.shelved_images(), lambda: f"left behind: {self.shelved_images()}", seconds)

    def shelved_images(self) -> list[Json]:
        return [image for image in self.client.images() if image["name"] != IMAGE]

    # Faults and the hypervisor

    @contextmanager
    def fault(self, call: str, effect: str = "fail", **fields: Any) -> Iterator[None]:
        """Order one fault for the time of the block."""
        write_faults(self.layout.faults, {"call": call, "effect": effect, **fields})
        try:
            yield
        finally:
            write_faults(self.layout.faults)

    def guests(self) -> dict[str, set[str]]:
        """The instances that each host's hypervisor has, from its own files."""
        return {
            host: {entry.name for entry in self.layout.hypervisor.glob(f"{host}/*/guests/*")}
            for host in self.options.host_names
        }

    def disk(self, server: str, host: str) -> Path:
        return next(self.layout.hypervisor.glob(f"{host}/*/guests/{server}/disk"))

    def where(self, server: str) -> list[str]:
        """The hosts whose hypervisor has a guest of the server."""
        return [host for host, guests in self.guests().items() if server in guests]

    # Processes

    def name_of(self, service: str) -> str:
        """The process that does the work of ``api``, ``conductor-1`` or ``compute-host-1``."""
        return service if self.multi else "all-in-one"

    def pid(self, service: str) -> int:
        return int(self.layout.pid_file(self.name_of(service)).read_text())

    def kill(self, service: str) -> int:
        """kill -9 of the process that does the work; its supervisor replaces it."""
        pid = self.pid(service)
        os.kill(pid, signal.SIGKILL)
        return pid

    def await_replaced(self, service: str, old: int, seconds: float = 30.0) -> None:
        """Wait until another process does the work, and the cloud is healthy again."""

        def replaced() -> bool:
            try:
                new = self.pid(service)
            except (FileNotFoundError, ValueError):
                return False
            return new != old and self._control().has_started(self.name_of(service))

        until(replaced, lambda: f"{service} (pid {old}) was not replaced", seconds)
        self.await_healthy(seconds)

    def await_healthy(self, seconds: float = 30.0) -> None:
        why: object = None

        def healthy() -> bool:
            nonlocal why
            try:
                why = self.client.get("/healthz")
                why = [name for name, node in self.client.nodes().items() if node["state"] != "up"]
                return not why
            except (httpx.HTTPError, ApiError) as error:  # the API may be down just now
                why = error
                return False

        until(healthy, lambda: f"not healthy: {why}", seconds)

    @contextmanager
    def frozen(self, *services: str) -> Iterator[None]:
        """SIGSTOP for the time of the block: the process is there, and does nothing."""
        pids = [self.pid(service) for service in services]
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in pids:
                _continue(pid)

    def stop(self, service: str) -> None:
        """Stop a service process for good, as ``kill`` of its supervisor would."""
        self._control().stop([self.name_of(service)])

    def stop_at_once(self, service: str) -> None:
        """End a service process with its supervisor as the power cut of its host would."""
        for pid in processes.members(self.state.processes[self.name_of(service)]):
            os.kill(pid, signal.SIGKILL)

    def resume(self) -> subprocess.CompletedProcess[str]:
        return stack("--dir", str(self.folder), "--resume")

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        name = self.name_of("conductor-1")
        command = [str(BINARIES / "pinfold-manage"), "--config-file", str(self.layout.config(name))]
        return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)

    def audit(self) -> None:
        """pinfold-manage audit finds no difference."""
        done = self.manage("audit", "--json")
        assert done.returncode == 0, f"audit: {done.returncode}\n{done.stdout}{done.stderr}"


def _continue(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass


def check_books(cloud: Cloud, seconds: float = 15.0) -> None:
    """The invariant.

    At every instant: a node's pins are the disjoint union of its claims' pins. And soon: claims only for servers
    that exist, a claim for each server that has a host, guests exactly where claims are. The old end of a move has a
    claim and a guest too, until that is confirmed or reverted; what is left over may have either.
    """
    last: list[str] = []

    def sound() -> bool:
        nonlocal last
        nodes = cloud.client.nodes()
        for node in nodes.values():
            check_node(node)
        last = _differences(cloud, nodes)
        return not last

    until(sound, lambda: f"the books are wrong: {last}", seconds)


def check_node(node: Json) -> None:
    held: list[tuple[str, int]] = [
        (claim["server"], cpu) for claim in node["claims"] for cpu in claim_cpus(claim)
    ]
    cpus = [cpu for _, cpu in held]
    assert len(cpus) == len(set(cpus)), f"{node['node']}: a CPU has two claims: {held}"
    assert set(cpus) == pins(node), f"{node['node']}: pins {pins(node)} are not those of its claims {held}"
    for server, cpu in held:
        assert cpu in pins(node, server), f"{node['node']}: CPU {cpu} is not {server}'s in the pins"


def claim_cpus(claim: Json) -> list[int]:
    """The host CPUs that a claim holds."""
    return [
        cpu
        for cell in claim["cells"]
        for cpu in {*cell["pins"].values(), *cell.get("reserved", ()), *cell.get("held", ())}
    ]


def _differences(cloud: Cloud, nodes: dict[str, Json]) -> list[str]:
    hosts = {server["id"]: server["OS-EXT-SRV-ATTR:host"] for server in cloud.client.servers()}
    roles = {
        (claim["server"], name): claim["role"] for name, node in nodes.items() for claim in node["claims"]
    }
    leftover = {pair for pair, role in roles.items() if role == "leftover"}
    outgoing = {pair for pair, role in roles.items() if role == "outgoing"}
    claimed = set(roles) - leftover
    placed = {(server, host) for server, host in hosts.items() if host is not None}
    guests = {(guest, host) for host, there in cloud.guests().items() for guest in there}
    found = [f"a claim without a server's host: {pair}" for pair in claimed - outgoing - placed]
    found += [f"a server's host without a claim: {pair}" for pair in placed - claimed]
    found += [f"a guest without a claim: {pair}" for pair in guests - claimed - leftover]
    found += [f"a claim without a guest: {pair}" for pair in claimed - guests]
    return found


def watch(look: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Call ``look`` again and again until it is true; it asserts what must hold at every instant."""
    until(look, lambda: f"{what} did not end", seconds, poll=0.002)


__all__ = ["Cloud", "NotReached", "check_books", "claim_cpus", "free_port", "stack", "until", "watch"]
