"""The private databases that a cloud may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from devstack import mariadb, postgres
from devstack.layout import Layout, Process

Record = dict[str, Any]


class Database(NamedTuple):
    """One kind of server."""

    name: str
    title: str
    create: Callable[[Layout, int, str], Record]
    start: Callable[[Layout, Record], Process]
    make_database: Callable[[Record], None]
    url: Callable[[Record], str]
    stop: Callable[[Process], None]
    wipe: Callable[[Record], None]


KINDS = {
    kind.name: kind
    for kind in (
        Database(
            postgres.NAME, "PostgreSQL", postgres.create, postgres.start, postgres.make_database,
            postgres.url, postgres.stop, postgres.wipe,
        ),
        Database(
            mariadb.NAME, "MariaDB", mariadb.create, mariadb.start, mariadb.make_database,
            mariadb.url, mariadb.stop, mariadb.wipe,
        ),
    )
}  # fmt: skip
