"""The version of the database's schema: made by migrations, checked by every service that starts.

Alembic makes it. To look at it alembic is not needed, and would stay in each service's memory for nothing.
"""

from __future__ import annotations

import pathlib

import sqlalchemy as sa

from pinfold.model import errors

_SCRIPTS = pathlib.Path(__file__).parent / "migrations"


_version = sa.table("alembic_version", sa.column("version_num", sa.String))


def versions() -> list[str]:
    """All that there are, oldest first: a file of migrations is named by its version, each follows the one before."""
    return sorted(path.name.partition("_")[0] for path in (_SCRIPTS / "versions").glob("[0-9]*_*.py"))


def wanted() -> str:
    """The version that this release works with."""
    return versions()[-1]


def present(engine: sa.Engine) -> str | None:
    """The version that the database has, or None where it is empty."""
    with engine.connect() as connection:
        if not sa.inspect(connection).has_table(_version.name):
            return None
        found: str | None = connection.scalar(sa.select(_version.c.version_num))
        return found


def upgrade(engine: sa.Engine, version: str = "head") -> None:
    """Bring the schema to ``version``; nothing happens when it is there already."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.attributes["engine"] = engine
    command.upgrade(config, version)


def require(engine: sa.Engine) -> None:
    """Raise errors.ConfigurationError, with the command to run, if the schema is of another version."""
    have, want = present(engine), wanted()
    if have == want:
        return
    if have is None:
        raise errors.ConfigurationError(
            "[database] connection leads to a database without Pinfold's tables. "
            "Run: pinfold-manage --config-file FILE db upgrade"
        )
    if have in versions():
        raise errors.ConfigurationError(
            f"The database has schema version {have}, and this release needs {want}. "
            "Run: pinfold-manage --config-file FILE db upgrade"
        )
    raise errors.ConfigurationError(
        f"The database has schema version {have}, which is newer than this release ({want}): start a newer release."
    )
