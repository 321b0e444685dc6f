"""Moves: what a server was before, and each finish of an operation that several workers do."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"

LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    op.add_column("instances", sa.Column("moved_from", LONG_TEXT, nullable=True))
    op.add_column("instances", sa.Column("moved_at", sa.Double(), nullable=True))
    op.create_index(op.f("ix_instances_vm_state_moved_at"), "instances", ["vm_state", "moved_at"])
    op.add_column("operations", sa.Column("finishes", LONG_TEXT, nullable=True))
    op.execute("UPDATE operations SET finishes = '{}'")
    with op.batch_alter_table("operations") as operations:
        operations.alter_column("finishes", existing_type=LONG_TEXT, nullable=False)
        operations.drop_column("finished_attempt")
