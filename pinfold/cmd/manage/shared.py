"""What the commands work with."""

from __future__ import annotations

import datetime

import msgspec
from oslo_config import cfg

from pinfold.db.session import Book, make_engine
from pinfold.runtime import RealRuntime, Runtime


class Shell:
    """The configuration, and the book once a command wants it."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf
        self.runtime: Runtime = RealRuntime()
        self._book: Book | None = None

    @property
    def book(self) -> Book:
        """The database of the configuration. Raises errors.ConfigurationError."""
        if self._book is None:
            self._book = Book(make_engine(self.conf.database.connection, 2), self.runtime)
        return self._book


def as_json(value: object) -> str:
    """Indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def when(seconds: float | None) -> str:
    """A time of the book for people."""
    if seconds is None:
        return "-"
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
