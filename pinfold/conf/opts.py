"""Which options each process reads: for the generator of sample files, and to tell a typo from an option.

``api``, ``conductor``, ``compute`` and ``all_in_one`` are the namespaces of oslo-config-generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib import metadata
from typing import Any

from oslo_config import cfg

from pinfold.conf import api as conf_api
from pinfold.conf import compute as conf_compute
from pinfold.conf import conductor as conf_conductor
from pinfold.conf import database, image, metrics, operations, rpc, service, virt

Listing = list[tuple[str, list[cfg.Opt]]]
_ListOpts = Callable[[], Iterable[tuple[Any, Sequence[cfg.Opt]]]]

_EVERY: tuple[_ListOpts, ...] = (service.list_opts, rpc.list_opts, image.list_opts)
_BOOK: tuple[_ListOpts, ...] = (database.list_opts, operations.list_opts)
_WORKER: tuple[_ListOpts, ...] = (conf_compute.list_opts, virt.list_opts)

#: Namespaces of libraries whose options a process may have.
LIBRARIES = (
    "keystonemiddleware.auth_token",
    "oslo.concurrency",
    "oslo.log",
    "oslo.messaging",
    "oslo.policy",
    "oslo.service.service",
)
#: Groups in which keystoneauth1 finds the options of the plugin that auth_type names.
AUTH_GROUPS = ("image", "keystone_authtoken")


def api() -> Listing:
    """Of pinfold-api."""
    return _merged(*_EVERY, *_BOOK, conf_api.list_opts)


def conductor() -> Listing:
    """Of pinfold-conductor."""
    return _merged(*_EVERY, *_BOOK, conf_conductor.list_opts, metrics.list_opts)


def compute() -> Listing:
    """Of pinfold-compute."""
    return _merged(*_EVERY, *_WORKER, metrics.list_opts)


def all_in_one() -> Listing:
    """Of pinfold-all-in-one."""
    return _merged(*_EVERY, *_BOOK, *_WORKER, conf_api.list_opts, conf_conductor.list_opts)


def _merged(*lists: _ListOpts) -> Listing:
    """One entry per group, each option once."""
    found: dict[str, list[cfg.Opt]] = {}
    for listed in lists:
        for group, options in listed():
            known = found.setdefault(_name(group), [])
            known.extend(option for option in options if option not in known)
    return list(found.items())


def _name(group: Any) -> str:
    return str(getattr(group, "name", group) or "DEFAULT")


def ours() -> frozenset[str]:
    """The groups that are Pinfold's alone (DEFAULT is also the libraries')."""
    return frozenset(group for listed in (api, conductor, compute) for group, _ in listed()) - {"database"}


@lru_cache(maxsize=1)
def known() -> frozenset[tuple[str, str]]:
    """(group, option) of all that any process of Pinfold or a library of it reads, former names too.

    Loads the libraries, so it is asked only about what the process itself does not know.
    """
    listings: list[_ListOpts] = [api, conductor, compute, *_of_libraries()]
    found = {
        (group, name)
        for listing in listings
        for owner, options in listing()
        for option in options
        for group, name in _names(_name(owner), option)
    }
    return frozenset(found | {(group, name) for group in AUTH_GROUPS for name in _of_keystone()})


@lru_cache(maxsize=1)
def secrets() -> frozenset[tuple[str, str]]:
    """(group, option) of what nobody else may read."""
    listings: list[_ListOpts] = [api, conductor, compute, *_of_libraries()]
    found = {
        (_name(owner), option.dest)
        for listing in listings
        for owner, options in listing()
        for option in options
        if option.secret
    }
    return frozenset(found | {(group, name) for group in AUTH_GROUPS for name in ("password", "token")})


def register_libraries(conf: cfg.ConfigOpts) -> None:
    """Add the options of libraries to ``conf``, as the services have them between them."""
    for listing in _of_libraries():
        for owner, options in listing():
            conf.register_opts(options, group=None if _name(owner) == "DEFAULT" else _name(owner))


def _of_libraries() -> list[_ListOpts]:
    points = metadata.entry_points(group="oslo.config.opts")
    return [point.load() for point in points if point.name in LIBRARIES]


def _names(group: str, option: cfg.Opt) -> Iterable[tuple[str, str]]:
    yield group, option.dest
    yield group, option.name
    for former in option.deprecated_opts:
        for name in (former.name or option.dest, (former.name or option.dest).replace("-", "_")):
            yield former.group or group, name


def _of_keystone() -> frozenset[str]:
    from keystoneauth1 import exceptions, loading

    found = [
        *loading.get_auth_common_conf_options(),
        *loading.get_session_conf_options(),
        *loading.get_adapter_conf_options(),
    ]
    for plugin in loading.get_available_plugin_names():
        try:
            found += loading.get_auth_plugin_conf_options(plugin)
        except (exceptions.ClientException, ImportError):
            continue  # a plugin whose own requirements are not installed
    return frozenset(name for option in found for name in (option.dest, option.name))
