"""The API for a WSGI server of choice: ``pinfold.wsgi:application``.

The configuration files are named by the environment's PINFOLD_CONFIG_FILES (several with ``:`` between them), or
else looked for where pinfold-api looks. The server must have one application per process, and threads.
"""

from __future__ import annotations

import os
from typing import Any

from pinfold import concurrency
from pinfold.model import errors

FILES = "PINFOLD_CONFIG_FILES"


def _arguments() -> list[str]:
    files = [name for name in os.environ.get(FILES, "").split(os.pathsep) if name]
    return [argument for name in files for argument in ("--config-file", name)]


def make_application(arguments: list[str]) -> Any:
    """The application as the files have it. Raises errors.ConfigurationError."""
    concurrency.choose(arguments)
    from oslo_config import cfg
    from prometheus_client import CollectorRegistry

    from pinfold.cmd.assembly import api, book
    from pinfold.cmd.configuration import check, configure
    from pinfold.rpcapi import transport
    from pinfold.runtime import RealRuntime

    conf = configure("pinfold-api", arguments)
    runtime = RealRuntime()
    try:
        for register in api.PROGRAM.registers:
            register(conf)
        check(conf)
        the_book, broker = book.book_from(conf, runtime), transport.connect(conf, runtime)
        deps = api.deps_from(conf, runtime, broker, the_book, CollectorRegistry())
        return api.application_from(conf, deps)
    except cfg.Error as error:
        raise errors.ConfigurationError(str(error)) from error


def __getattr__(name: str) -> Any:
    """``application`` is made when it is first asked for, so that importing this module is harmless."""
    if name != "application":
        raise AttributeError(name)
    globals()[name] = application = make_application(_arguments())
    return application
