"""The version of the database's schema: made by migrations, checked by every service that starts."""

from __future__ import annotations

import pathlib

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from pinfold.model import errors

_SCRIPTS = pathlib.Path(__file__).parent / "migrations"


def _config(engine: sa.Engine) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.attributes["engine"] = engine
    return config


def wanted(engine: sa.Engine) -> str:
    """The version that this release works with."""
    head = ScriptDirectory.from_config(_config(engine)).get_current_head()
    if head is None:
        raise AssertionError("there are no migrations")
    return head


def present(engine: sa.Engine) -> str | None:
    """The version that the database has, or None where it is empty."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(engine: sa.Engine, version: str = "head") -> None:
    """Bring the schema to ``version``; nothing happens when it is there already."""
    command.upgrade(_config(engine), version)


def require(engine: sa.Engine) -> None:
    """Raise errors.ConfigurationError, with the command to run, if the schema is of another version."""
    have, want = present(engine), wanted(engine)
    if have == want:
        return
    if have is None:
        raise errors.ConfigurationError(
            "[database] connection leads to a database without Pinfold's tables. "
            "Run: pinfold-manage --config-file FILE db upgrade"
        )
    known = {script.revision for script in ScriptDirectory.from_config(_config(engine)).walk_revisions()}
    if have in known:
        raise errors.ConfigurationError(
            f"The database has schema version {have}, and this release needs {want}. "
            "Run: pinfold-manage --config-file FILE db upgrade"
        )
    raise errors.ConfigurationError(
        f"The database has schema version {have}, which is newer than this release ({want}): start a newer release."
    )
