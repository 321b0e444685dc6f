"""What the options of all processes of a cloud must be together. Like ``checks``, these rules only look."""

from __future__ import annotations

import itertools
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from oslo_config import cfg

from pinfold.conf import checks, opts
from pinfold.conf.checks import Problem, value_of
from pinfold.conf.files import Entry

API, CONDUCTOR, COMPUTE, ALL_IN_ONE = "api", "conductor", "compute", "all-in-one"
LISTINGS: dict[str, Callable[[], opts.Listing]] = {
    API: opts.api,
    CONDUCTOR: opts.conductor,
    COMPUTE: opts.compute,
    ALL_IN_ONE: opts.all_in_one,
}
_EQUAL = "equal on all"
_UNSET = object()


class Member(msgspec.Struct, frozen=True):
    """A process: its file, which kind of process it is, and what it reads."""

    path: str
    kind: str
    conf: cfg.ConfigOpts
    entries: Sequence[Entry]

    @property
    def host(self) -> str:
        """The name of its host in the cloud; unless the file says it, that of a machine which is not known here."""
        if any((entry.group, entry.name) == ("DEFAULT", "host") for entry in self.entries):
            return str(self.conf.host)
        return f"(the machine of {self.path})"


Rule = Callable[[Sequence[Member]], Iterator[Problem]]


def kind_of(path: Path, entries: Iterable[Entry]) -> str:
    """Which process a file is for: by the groups that only one has, else by its name."""
    groups = {entry.group for entry in entries}
    if "compute" in groups:
        return ALL_IN_ONE if "api" in groups else COMPUTE
    if "api" in groups:
        return API
    named = [kind for kind in LISTINGS if path.stem.startswith(kind)]
    return named[0] if named else CONDUCTOR


def of_cloud(members: Sequence[Member]) -> list[Problem]:
    """All that is wrong with the processes together."""
    return [problem for rule in RULES for problem in rule(members)]


# --- names ------------------------------------------------------------------------------------------


def _alone(members: Sequence[Member]) -> Iterator[Problem]:
    for member in members:
        if member.kind == ALL_IN_ONE and len(members) > 1:
            yield Problem(
                f"{member.path} has [api] and [compute], so it is a whole cloud in one process, which no other can "
                "join: check it alone, or give each process a file of its own."
            )


def _hosts(members: Sequence[Member]) -> Iterator[Problem]:
    for one, other in itertools.combinations(members, 2):
        if (one.kind, one.host) == (other.kind, other.host):
            yield Problem(
                f"[DEFAULT] host = {one.host} in {one.path} and in {other.path}: each {one.kind} must have a name of "
                "its own."
            )


def _nodes(members: Sequence[Member]) -> Iterator[Problem]:
    owners: dict[str, Member] = {}
    for member in members:
        for node in _nodes_of(member):
            other = owners.setdefault(node, member)
            if other is not member and other.host != member.host:
                yield Problem(
                    f"[compute] nodes has {node} in {other.path} (host {other.host}) and in {member.path} (host "
                    f"{member.host}): a node belongs to one host."
                )


def _nodes_of(member: Member) -> list[str]:
    nodes = value_of(member.conf, "compute", "nodes")
    return [] if nodes is None else nodes or [member.host]


# --- what must be equal -----------------------------------------------------------------------------


def agreed() -> dict[tuple[str, str], cfg.Opt]:
    """The options whose help says that they must be equal on all services (of some kinds)."""
    return {
        (group, option.dest): option
        for listed in LISTINGS.values()
        for group, options in listed()
        for option in options
        if _EQUAL in (option.help or "") and not option.secret
    }


def _equal(members: Sequence[Member]) -> Iterator[Problem]:
    for (group, name), option in agreed().items():
        values = [(member.path, _value(member, group, name, option)) for member in members]
        yield from _compared(f"[{group}] {name}", values)


def _value(member: Member, group: str, name: str, option: cfg.Opt) -> Any:
    """What the process reads; or what stands in its file though it does not: somebody thought it would."""
    value = value_of(member.conf, group, name)
    if value is not None:
        return value
    found = [entry.value for entry in member.entries if (entry.group, entry.name) == (group, name)]
    try:
        return option.type(found[-1]) if found else _UNSET
    except ValueError:
        return found[-1]


def _compared(option: str, values: Iterable[tuple[str, Any]]) -> Iterator[Problem]:
    """One problem for each value that is not the first's."""
    given = [(path, value) for path, value in values if value is not _UNSET]
    seen = [value for _, value in given[:1]]
    for path, value in given[1:]:
        if value not in seen:
            seen.append(value)
            yield Problem(f"{option} is {given[0][1]} in {given[0][0]} and {value} in {path}: make it equal.")


def _transport(members: Sequence[Member]) -> Iterator[Problem]:
    there = [member for member in members if member.kind != ALL_IN_ONE]
    yield from _compared(
        "[DEFAULT] transport_url (but for the account)",
        [(member.path, brokers(value_of(member.conf, "DEFAULT", "transport_url") or "")) for member in there],
    )
    for group, name in (("DEFAULT", "control_exchange"), ("oslo_messaging_rabbit", "ssl")):
        values = [(member.path, value_of(member.conf, group, name)) for member in there]
        yield from _compared(f"[{group}] {name}", values)


def brokers(url: str) -> str:
    """A transport_url without accounts and passwords."""
    parts = urlsplit(url)
    hosts = [place.rpartition("@")[2] for place in parts.netloc.split(",")]
    return f"{parts.scheme}://{','.join(sorted(hosts))}{parts.path}"


def _database(members: Sequence[Member]) -> Iterator[Problem]:
    yield from _compared(
        "[database] connection (but for the account)",
        [
            (member.path, brokers(connection))
            for member in members
            if (connection := value_of(member.conf, "database", "connection"))
        ],
    )
    for member in members:
        if member.kind == COMPUTE and any(entry.group == "database" for entry in member.entries):
            yield Problem(
                f"[database] stands in {member.path}, the file of a compute host, which needs no database and must "
                "not have its password: remove it."
            )


def _beats(members: Sequence[Member]) -> Iterator[Problem]:
    """A worker does not read the times that conductors judge it by."""
    for worker in (member for member in members if member.kind == COMPUTE):
        for judge in (member for member in members if member.kind in (API, CONDUCTOR)):
            for name in ("lease", "service_down_time"):
                limit = value_of(judge.conf, "operations", name)
                option = f"[compute] heartbeat (in {worker.path})"
                within = f"[operations] {name} (in {judge.path})"
                yield from checks.beat(option, worker.conf.compute.heartbeat, within, limit)


# --- secrets ----------------------------------------------------------------------------------------


def _secrets(members: Sequence[Member]) -> Iterator[Problem]:
    for path in sorted({entry.path for member in members for entry in member.entries if _is_secret(entry)}):
        if stat.S_IMODE(Path(path).stat().st_mode) & stat.S_IROTH:
            yield Problem(
                f"{path} holds a password, and everybody on its machine can read it: chmod o-r it.",
                fatal=False,
            )


def _is_secret(entry: Entry) -> bool:
    if (entry.group, entry.name) not in opts.secrets():
        return False
    return entry.name not in ("transport_url", "connection") or "@" in entry.value


RULES: tuple[Rule, ...] = (_alone, _hosts, _nodes, _equal, _transport, _database, _beats, _secrets)
