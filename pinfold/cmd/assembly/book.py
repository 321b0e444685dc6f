"""The book of a process that has a database."""

from __future__ import annotations

from oslo_config import cfg

from pinfold.conf import database
from pinfold.db.session import Book, make_engine
from pinfold.model import errors
from pinfold.runtime import Runtime


def register(conf: cfg.ConfigOpts) -> None:
    """The options of group [database]."""
    database.register(conf)


def book_from(conf: cfg.ConfigOpts, runtime: Runtime) -> Book:
    """The book at [database] connection. Raises errors.ConfigurationError."""
    if not conf.database.connection:
        raise errors.ConfigurationError(
            "[database] connection is not set; it must be a URL such as postgresql://user:password@host/pinfold."
        )
    return Book(make_engine(conf.database.connection, conf.database.max_pool_size), runtime)
