"""At which generation of a node something was taken last."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("nodes", sa.Column("taken_at", sa.BigInteger(), nullable=True))
    op.execute("UPDATE nodes SET taken_at = generation")
    with op.batch_alter_table("nodes") as nodes:
        nodes.alter_column("taken_at", existing_type=sa.BigInteger(), nullable=False)
