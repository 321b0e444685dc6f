"""pinfold-manage db: the schema, and what is deleted for long enough."""

from __future__ import annotations

import argparse

from pinfold.cmd.manage.shared import Shell
from pinfold.db import purge, schema

_DAY = 86400.0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``db`` and its own commands."""
    group = commands.add_parser("db", help="the database's schema and size").add_subparsers(
        dest="command", required=True
    )
    upgrade = group.add_parser("upgrade", help="bring the schema to this release's version")
    upgrade.set_defaults(run=_upgrade)
    version = group.add_parser("version", help="show the schema's version, and the one this release needs")
    version.set_defaults(run=_version)
    remove = group.add_parser("purge", help="remove servers that were deleted long ago")
    remove.add_argument("--older-than", type=float, default=30.0, metavar="DAYS", help="(30)")
    remove.set_defaults(run=_purge)


def _upgrade(shell: Shell, _arguments: argparse.Namespace) -> int:
    schema.upgrade(shell.book.engine)
    print(f"The schema is at version {schema.present(shell.book.engine)}.")
    return 0


def _version(shell: Shell, _arguments: argparse.Namespace) -> int:
    have, want = schema.present(shell.book.engine), schema.wanted()
    print(f"schema {have or 'none'}, this release needs {want}")
    return 0 if have == want else 1


def _purge(shell: Shell, arguments: argparse.Namespace) -> int:
    schema.require(shell.book.engine)
    print(f"{purge.purge(shell.book, arguments.older_than * _DAY)} servers removed")
    return 0
