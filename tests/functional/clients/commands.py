"""The commands that were recorded in front of a real Nova, and how they are told to this cloud."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import msgspec

from tests.functional.clients import shape
from tests.functional.clients.recorder import Exchange
from tests.functional.clients.terminal import Outcome, Terminal
from tests.functional.harness import Cloud

DATA = Path(__file__).parent / "data"
_NAMES = {"cmp1": "host-1", "cmp2": "host-2", "cmp3": "host-3"}
_FLAVOR = re.compile(r"(?<=/flavors/)[ps]\d(?=/|$)")
_PROJECT = re.compile(r"(?<=os-quota-sets/)admin|(?<=os-simple-tenant-usage/)admin|(?<=project_id=)admin")

#: Without Keystone, the client does not know which project it is in, and has to be told.
_INSTEAD = {
    "openstack quota show --compute": "openstack quota show --compute admin",
    "openstack quota show --compute --usage": "openstack quota show --compute --usage admin",
    "openstack quota show --compute --default": "openstack quota show --compute --default admin",
    "openstack usage show": "openstack usage show --project admin",
}


class Recorded(msgspec.Struct, frozen=True):
    """A command; each request is (service, method, path, version, status)."""

    section: str
    title: str
    command: str
    rc: int
    requests: list[tuple[str, str, str, str | None, int]]

    @property
    def name(self) -> str:
        """By which differences are told."""
        return f"{self.section}: {self.title}"


class Known(msgspec.Struct, frozen=True):
    """An exchange with Nova whose fields are compared."""

    service: str
    method: str
    path: str
    version: str | None
    status: int
    request: Any
    reply: Any
    headers: list[str]


def recorded() -> list[Recorded]:
    """All of them, in order."""
    return msgspec.json.decode((DATA / "commands.json").read_bytes(), type=list[Recorded])


def known() -> list[Known]:
    """What Nova answered."""
    return msgspec.json.decode((DATA / "exchanges.json").read_bytes(), type=list[Known])


def here(text: str) -> str:
    """With the names that things have in this cloud."""
    for theirs, ours in _NAMES.items():
        text = text.replace(theirs, ours)
    return text


# --- running ----------------------------------------------------------------------------------------


class Session:
    """Runs the commands on a cloud, with what some of them need to be there."""

    def __init__(self, cloud: Cloud, terminal: Terminal, folder: Path) -> None:
        self._cloud = cloud
        self._terminal = terminal
        (folder / "ud.txt").write_text("#!/bin/sh\n")
        (folder / "disk").write_bytes(b"0" * 1024)
        for name in ("img1", "img2"):
            line = f"openstack image create --public --disk-format raw --file disk {name}"
            assert terminal.run(line).code == 0, line
        self._before: dict[str, Callable[[str], str]] = {
            "more: server event show": self._with_a_server,
            "more: compute service delete": self._with_a_service,
            "more: server evacuate": self._with_a_dead_host,
            "more: server migrate --live": self._with_hosts_back,
        }

    def run(self, recorded: Recorded) -> Outcome:
        """Run one as a user of this cloud would type it."""
        command = here(recorded.command)
        if recorded.section == "keystone":
            command = _INSTEAD.get(command, command)
        prepare = self._before.get(recorded.name)
        return self._terminal.run(prepare(command) if prepare else command)

    def _with_a_server(self, command: str) -> str:
        for line in (
            "openstack flavor create --ram 64 --vcpus 1 --disk 1 t.nano",
            "openstack server create --flavor t.nano --image img1 --nic none --wait s1",
        ):
            assert self._terminal.run(line).code == 0, line
        (server,) = [server for server in self._cloud.client.servers() if server["name"] == "s1"]
        actions = self._cloud.client.get(f"/v2.1/servers/{server['id']}/os-instance-actions")
        return re.sub(r"req-[0-9a-f-]+", actions["instanceActions"][0]["request_id"], command)

    def _with_a_service(self, command: str) -> str:
        (server,) = [server for server in self._cloud.client.servers() if server["name"] == "s1"]
        services = self._cloud.client.get("/v2.1/os-services")["services"]
        host = server["OS-EXT-SRV-ATTR:host"]
        (service,) = [one for one in services if one["host"] == host and one["binary"] == "nova-compute"]
        return re.sub(r"[0-9a-f-]{36}", service["id"], command)

    def _with_a_dead_host(self, command: str) -> str:
        (server,) = [server for server in self._cloud.client.servers() if server["name"] == "s1"]
        host = server["OS-EXT-SRV-ATTR:host"]
        assert self._terminal.run(f"openstack compute service set --down {host} nova-compute").code == 0
        return command

    def _with_hosts_back(self, command: str) -> str:
        for host in _NAMES.values():
            assert self._terminal.run(f"openstack compute service set --up {host} nova-compute").code == 0
        return command


# --- comparing --------------------------------------------------------------------------------------


def of_command(recorded: Recorded, outcome: Outcome) -> list[str]:
    """How a command went otherwise than in front of Nova."""
    found = []
    if outcome.code != recorded.rc:
        found.append(f"{recorded.name}: exit code {outcome.code}, Nova's {recorded.rc}")
    nova = _settled(
        (_where(service == "i", method, here(path), version), status)
        for service, method, path, version, status in recorded.requests
    )
    ours = _settled(_asked(outcome.exchanges))
    matcher = SequenceMatcher(
        None, [where for where, _ in nova], [where for where, _ in ours], autojunk=False
    )
    for kind, first, last, start, end in matcher.get_opcodes():
        if kind == "equal":
            found += [
                f"{recorded.name}: {where} answers {got}, Nova {wanted}"
                for (where, wanted), (_, got) in zip(nova[first:last], ours[start:end], strict=True)
                if wanted != got
            ]
            continue
        found += [f"{recorded.name}: {where} is not asked" for where, _ in nova[first:last]]
        found += [f"{recorded.name}: {where} is asked, too ({status})" for where, status in ours[start:end]]
    return found


def _asked(exchanges: Iterable[Exchange]) -> Iterable[tuple[str, int]]:
    for exchange in exchanges:
        if exchange.path.startswith("/identity"):
            continue
        image = exchange.path.startswith("/image")
        path = (exchange.path.removeprefix("/image") or "/") if image else exchange.path
        yield _where(image, exchange.method, path, exchange.version), exchange.status


def _where(image: bool, method: str, path: str, version: str | None) -> str:
    shown = shape.where(method, _FLAVOR.sub("{id}", _PROJECT.sub("{id}", path)), version)
    return f"image: {shown}" if image else shown


def _settled(requests: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Without repetitions: of a request that is polled, only the last answer counts."""
    found: list[tuple[str, int]] = []
    for where, status in requests:
        if found and found[-1][0] == where:
            found.pop()
        found.append((where, status))
    return found


def of_fields(exchanges: Iterable[Exchange], answers: Iterable[Known]) -> set[str]:
    """Where answers of the same request and status have other fields, or fields of another type."""
    nova: dict[tuple[str, int], Any] = {}
    for answer in answers:
        where = _where(answer.service == "image", answer.method, here(answer.path), answer.version)
        nova[_bare(where, answer.request), answer.status] = answer.reply
    found: set[str] = set()
    for exchange in exchanges:
        for where, status in _asked([exchange]):
            what = _bare(where, exchange.request)
            reply = nova.get((what, status))
            if reply is not None and exchange.reply is not None:
                found |= {f"{what} ({status}): {text}" for text in shape.differences(reply, exchange.reply)}
    return found


def _bare(where: str, request: Any) -> str:
    """Without its query, which does not decide what fields there are; but with the action, which does."""
    action = f" {next(iter(request))}" if "/action" in where and isinstance(request, dict) else ""
    return re.sub(r"\?\S+", "", where) + action
