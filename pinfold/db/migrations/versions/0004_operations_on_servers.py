"""When a server was soft-deleted, and what a question to a worker is about."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0004"
down_revision = "0003"

LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    op.add_column("instances", sa.Column("soft_deleted_at", sa.Double(), nullable=True))
    op.add_column("reports", sa.Column("arguments", LONG_TEXT, nullable=True))
