"""What options must be, alone and together: the same rules at a start and in ``pinfold-manage config check``.

A rule looks at a configuration and yields what is wrong with it; it changes nothing and reads nothing else. To
add one: a function, and its name in ``RULES``.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from oslo_config import cfg

from pinfold.conf import files
from pinfold.conf.files import Entry
from pinfold.model import cpuset
from pinfold.model.errors import ConfigurationError, InvalidRequest

SHARED, DEDICATED = "[compute] cpu_shared_set", "[compute] cpu_dedicated_set"


class Problem(msgspec.Struct, frozen=True):
    """A sentence that names the option and the cure. One that is not ``fatal`` is logged, and the service starts."""

    text: str
    fatal: bool = True


Rule = Callable[[cfg.ConfigOpts], Iterator[Problem]]


def require(problems: Iterable[Problem]) -> list[Problem]:
    """Those that are not fatal. Raises errors.ConfigurationError that says all that are."""
    found = list(problems)
    if fatal := [problem.text for problem in found if problem.fatal]:
        raise ConfigurationError(" ".join(fatal))
    return found


def of_process(conf: cfg.ConfigOpts, entries: Iterable[Entry], *, strict: bool = False) -> list[Problem]:
    """All that is wrong with the options of one process; ``entries`` is what stands in its files.

    ``strict`` makes every unknown option fatal, also in groups of libraries.
    """
    entries = list(entries)
    wrong = list(_values(conf, entries))
    found = [*_unknown(conf, entries, strict=strict), *wrong, *_keystone(conf, entries)]
    if wrong:
        return found
    return found + [problem for rule in RULES for problem in rule(conf)]


# --- single options ---------------------------------------------------------------------------------


def _unknown(conf: cfg.ConfigOpts, entries: Iterable[Entry], *, strict: bool) -> Iterator[Problem]:
    """A typo in a group of ours stops the service. In a library's it may be an option of another version of it."""
    for entry in files.unknown(conf, entries):
        text = f"{entry.option} (in {entry.path}) is not an option. {files.meant(entry)}".rstrip()
        yield Problem(text, fatal=strict or files.is_ours(entry))


def _values(conf: cfg.ConfigOpts, entries: Iterable[Entry]) -> Iterator[Problem]:
    """oslo.config reads a value when it is asked for; so ask for each."""
    for entry in entries:
        if not files.registered(conf, entry.group, entry.name):
            continue
        try:
            value_of(conf, entry.group, entry.name)
        except (cfg.Error, ValueError) as error:
            why = str(error).rpartition("is not valid: ")[2]
            yield Problem(f"{entry.option} = {entry.value} (in {entry.path}) cannot be: {why}.")


def value_of(conf: cfg.ConfigOpts, group: str, name: str) -> Any:
    """An option's value, None where the process does not have the option."""
    if not files.registered(conf, group, name):
        return None
    return conf[name] if group == "DEFAULT" else conf[group][name]


def cpu_sets(
    shared: str | None, dedicated: str | None
) -> tuple[frozenset[int] | None, frozenset[int] | None]:
    """The CPUs of both options, None for one that is not set or empty.

    Raises errors.ConfigurationError for what is no CPU list, names no CPU, or overlaps the other.
    """
    sets = _cpus(SHARED, shared), _cpus(DEDICATED, dedicated)
    if both := (sets[0] or frozenset()) & (sets[1] or frozenset()):
        raise ConfigurationError(
            f"CPUs {cpuset.render(both)} stand in {SHARED} ({shared}) and in {DEDICATED} ({dedicated}): take them "
            "out of one of the two.",
        )
    return sets


def _cpus(option: str, text: str | None) -> frozenset[int] | None:
    if text is None or not text.strip():
        return None
    try:
        cpus = cpuset.parse(text)
    except InvalidRequest as error:
        raise ConfigurationError(f"{option} = {text}: {error.message}") from error
    if not cpus:
        raise ConfigurationError(f"{option} = {text} names no CPU; name some, or remove the option.")
    return cpus


# --- options together -------------------------------------------------------------------------------


def reachable(strategy: str, host: str) -> Iterator[Problem]:
    """Nobody on the network may say that they are admin."""
    if strategy == "noauth" and not _is_loopback(host):
        yield Problem(
            f"[api] host = {host} is not a loopback address, and with auth_strategy = noauth everybody who can reach "
            "it is admin. Bind 127.0.0.1, or set [api] auth_strategy = keystone."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def beat(option: str, every: float, within: str, limit: float) -> Iterator[Problem]:
    """A heartbeat must come several times within the time after which its sender counts as dead."""
    if every >= limit:
        yield Problem(
            f"{option} = {every:g} is not below {within} = {limit:g}: between two heartbeats the service would count "
            f"as dead. Lower {option} to a third of it, or raise {within}."
        )
    elif every * 2 > limit:
        yield Problem(
            f"{option} = {every:g} is more than half of {within} = {limit:g}: one lost heartbeat counts as a death. "
            f"Lower {option} to a third of it.",
            fatal=False,
        )


def _partition(conf: cfg.ConfigOpts) -> Iterator[Problem]:
    if "compute" not in conf:
        return
    try:
        cpu_sets(conf.compute.cpu_shared_set, conf.compute.cpu_dedicated_set)
    except ConfigurationError as error:
        yield Problem(error.message)


def _nodes(conf: cfg.ConfigOpts) -> Iterator[Problem]:
    if "compute" in conf:
        twice = [name for name, count in Counter(conf.compute.nodes).items() if count > 1]
        if twice:
            yield Problem(f"[compute] nodes names {', '.join(twice)} more than once: name each node once.")


def _api(conf: cfg.ConfigOpts) -> Iterator[Problem]:
    if "api" in conf:
        yield from reachable(conf.api.auth_strategy, conf.api.host)


def _times(conf: cfg.ConfigOpts) -> Iterator[Problem]:
    for group in ("api", "conductor", "compute"):
        every = value_of(conf, group, "heartbeat")
        for within in ("service_down_time", *(("lease",) if group == "compute" else ())):
            limit = value_of(conf, "operations", within)
            if every is not None and limit is not None:
                yield from beat(f"[{group}] heartbeat", every, f"[operations] {within}", limit)


def _stops(conf: cfg.ConfigOpts) -> Iterator[Problem]:
    grace = value_of(conf, "DEFAULT", "graceful_shutdown_timeout")
    for group in ("api", "compute"):
        wait = value_of(conf, group, "stop_wait")
        if wait is not None and grace and wait >= grace:
            yield Problem(
                f"[{group}] stop_wait = {wait:g} is not below [DEFAULT] graceful_shutdown_timeout = {grace}: a stop "
                "is cut short before it is over. Lower the one, or raise the other.",
                fatal=False,
            )


def _pools(conf: cfg.ConfigOpts) -> Iterator[Problem]:
    threads, connections = value_of(conf, "api", "threads"), value_of(conf, "database", "max_pool_size")
    if threads is not None and connections is not None and connections < threads:
        yield Problem(
            f"[database] max_pool_size = {connections} is smaller than [api] threads = {threads}: requests would "
            "wait for a connection and fail. Raise the one, or lower the other."
        )


def _book(conf: cfg.ConfigOpts) -> Iterator[Problem]:
    if "database" in conf and not conf.database.connection:
        yield Problem(
            "[database] connection is not set: set it to a URL such as postgresql://user:password@host/pinfold."
        )


def _keystone(conf: cfg.ConfigOpts, entries: Iterable[Entry]) -> Iterator[Problem]:
    """Its options are registered when keystonemiddleware is made, so look at the files."""
    if value_of(conf, "api", "auth_strategy") == "keystone":
        named = {entry.name for entry in entries if entry.group == "keystone_authtoken"}
        if not named & {"auth_type", "auth_plugin", "auth_section"}:
            yield Problem(
                "[keystone_authtoken] auth_type is not set, and [api] auth_strategy = keystone: no token can be "
                "checked, so nobody is let in. Set the options of [keystone_authtoken].",
                fatal=False,
            )


def _images(conf: cfg.ConfigOpts) -> Iterator[Problem]:
    if "image" in conf and conf.image.store == "files" and not conf.image.path.strip():
        yield Problem(
            "[image] path is empty, and [image] store = files keeps images there: set it to a folder."
        )


RULES: tuple[Rule, ...] = (_partition, _nodes, _api, _times, _stops, _pools, _book, _images)
