"""Servers that are not deleted in the order in which lists show them."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

ALIVE = sa.text("deleted_at IS NULL")


def upgrade() -> None:
    op.create_index(
        "ix_instances_alive",
        "instances",
        ["created_at", "id"],
        postgresql_where=ALIVE,
        sqlite_where=ALIVE,
    )
