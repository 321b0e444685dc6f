"""When a node changed last, for schedulers to read what is new."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("nodes", sa.Column("changed_at", sa.Double(), nullable=True))
    op.execute("UPDATE nodes SET changed_at = updated_at")
    with op.batch_alter_table("nodes") as nodes:
        nodes.alter_column("changed_at", existing_type=sa.Double(), nullable=False)
    op.create_index(op.f("ix_nodes_changed_at"), "nodes", ["changed_at"])
