"""Threads or green threads: decided once per process, before anything else is imported.

Every entry point calls ``choose`` in its first line. The mode decides what a lock *is*, and a module
imported before the decision keeps locks of the wrong kind: so a wrong order refuses to start, instead
of stopping the whole process some day. Only this module knows eventlet; everything else uses threading
primitives, which turn green when eventlet patches them.
"""

from __future__ import annotations

import configparser
import itertools
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from pinfold.model.errors import ConfigurationError

Backend = Literal["threading", "eventlet"]

DEFAULT: Backend = "threading"
#: Set in the environment it wins over the configuration files.
VARIABLE = "PINFOLD_CONCURRENCY_BACKEND"

# Whoever imports one of these decides the mode, or keeps locks, in passing.
_DECIDES = ("oslo_service.service", "oslo_messaging", "oslo_service.loopingcall")
_KEEPS_LOCKS = (
    "oslo_log",
    "oslo_db",
    "sqlalchemy",
    "kombu",
    "amqp",
    "falcon",
    "waitress",
    "cheroot",
    "pinfold.runtime",
)

_chosen: Backend | None = None


def chosen() -> Backend | None:
    """The mode of this process, or None before ``choose``."""
    return _chosen


def choose(
    argv: Sequence[str] = (), environ: Mapping[str, str] | None = None, *, program: str = ""
) -> Backend:
    """Fix the mode of this process, as environment or configuration files say. Repeating it is harmless.

    ``argv`` names the files; without any, those of Pinfold and of ``program`` are looked for as oslo.config
    does.

    Raises ConfigurationError for an unknown mode, or when something was imported too early.
    """
    global _chosen
    if _chosen is None:
        backend = _wanted(argv, os.environ if environ is None else environ, program)
        _fix(backend)
        _chosen = backend
    return _chosen


def check(configured: str) -> None:
    """Raise ConfigurationError unless the parsed configuration agrees with what was chosen early."""
    if os.environ.get(VARIABLE) is None and configured != _chosen:
        raise ConfigurationError(
            f"[DEFAULT] concurrency_backend = {configured}, but this process started as {_chosen}: "
            f"set the option in a file given by --config-file or --config-dir, or set {VARIABLE}"
        )


def require() -> None:
    """Raise ConfigurationError when this process has not chosen (called by what depends on the choice)."""
    if _chosen is None:
        raise ConfigurationError(
            "pinfold.concurrency.choose() must be the first thing that a process of Pinfold does"
        )


def _fix(backend: Backend) -> None:
    early = [name for name in _DECIDES if name in sys.modules]
    if early:
        raise _too_early(backend, early)
    if backend == "eventlet":
        _go_green()
    else:
        _stay_native()


def _stay_native() -> None:
    eventlet = sys.modules.get("eventlet")
    if eventlet is not None and any(sys.modules["eventlet.patcher"].already_patched.values()):
        raise ConfigurationError(
            "concurrency_backend = threading, but eventlet has patched this process already; "
            "start the service by its own command, or set concurrency_backend = eventlet"
        )
    # A library that would use eventlet when it finds it does not find it.
    cast(dict[str, Any], sys.modules)["eventlet"] = None
    _init_oslo("THREADING")


def _go_green() -> None:
    early = [name for name in _KEEPS_LOCKS if name in sys.modules]
    if early or threading.active_count() > 1:
        raise _too_early("eventlet", early or [thread.name for thread in threading.enumerate()])
    try:
        with warnings.catch_warnings():
            # Whoever sets the option has read in its help that eventlet is discouraged.
            warnings.simplefilter("ignore")
            import eventlet
    except ImportError as error:
        raise ConfigurationError(
            f"concurrency_backend = eventlet, but eventlet cannot be imported: {error}"
        ) from error
    eventlet.monkey_patch()
    _init_oslo("EVENTLET")


def _init_oslo(kind: Literal["THREADING", "EVENTLET"]) -> None:
    from oslo_service import backend

    try:
        backend.init_backend(backend.BackendType[kind])
    except backend.exceptions.BackendAlreadySelected as error:
        raise ConfigurationError(f"oslo.service was set up before pinfold.concurrency: {error}") from error
    except ValueError as error:
        # What oslo.service says when cotyledon or eventlet is missing: "Unknown backend".
        raise ConfigurationError(
            f"oslo.service has no backend {kind.lower()}: {error}; install oslo.service[threading]"
        ) from error


def _too_early(backend: str, names: Sequence[str]) -> ConfigurationError:
    return ConfigurationError(
        f"concurrency_backend = {backend} cannot be set up any more, because these came first: "
        f"{', '.join(names)}; import pinfold.concurrency and call choose() before them"
    )


def _wanted(argv: Sequence[str], environ: Mapping[str, str], program: str) -> Backend:
    value = environ.get(VARIABLE)
    source = VARIABLE
    if value is None:
        value, source = DEFAULT, ""
        for path in _files(argv, program):
            found = _read(path)
            if found is not None:
                value, source = found, str(path)
    if value not in ("threading", "eventlet"):
        raise ConfigurationError(f"{source}: concurrency_backend = {value} is neither threading nor eventlet")
    return cast(Backend, value)


def _files(argv: Sequence[str], program: str) -> Iterator[Path]:
    """The configuration files in the order in which oslo.config reads them; the last one wins."""
    given = _values(argv, "--config-file")
    folders = _values(argv, "--config-dir")
    if not given and not folders:
        places = [Path(name).expanduser() for name in ("~/.pinfold", "~", "/etc/pinfold", "/etc")]
        for name in ("pinfold", program or "pinfold"):
            given += [str(place / f"{name}.conf") for place in places if (place / f"{name}.conf").exists()][
                :1
            ]
    yield from map(Path, given)
    for folder in folders:
        yield from sorted(Path(folder).glob("*.conf"))


def _values(argv: Sequence[str], option: str) -> list[str]:
    found = [word.partition("=")[2] for word in argv if word.startswith(option + "=")]
    found += [value for word, value in itertools.pairwise(argv) if word == option]
    return found


def _read(path: Path) -> str | None:
    """The option in one file; what is wrong with the file is said later by oslo.config."""
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True, default_section="")
    try:
        parser.read(path)
    except (configparser.Error, UnicodeDecodeError):
        return None
    value = parser.get("DEFAULT", "concurrency_backend", fallback=None)
    return None if value is None else value.strip()
