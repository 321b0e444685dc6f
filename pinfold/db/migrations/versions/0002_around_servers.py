"""Keypairs, server groups, quotas, aggregates, and who may use a flavor that is not public."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"

LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NAME = sa.String(length=255)
ID = sa.String(length=36)
WORD = sa.String(length=64)


def upgrade() -> None:
    op.create_table(
        "flavor_access",
        sa.Column("flavor_id", BIG_ID, autoincrement=False, nullable=False),
        sa.Column("project_id", NAME, nullable=False),
        sa.ForeignKeyConstraint(
            ["flavor_id"], ["flavors.id"], name=op.f("fk_flavor_access_flavor_id_flavors"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("flavor_id", "project_id", name=op.f("pk_flavor_access")),
    )
    op.create_table(
        "keypairs",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("user_id", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("type", WORD, nullable=False),
        sa.Column("public_key", LONG_TEXT, nullable=False),
        sa.Column("fingerprint", NAME, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_keypairs")),
        sa.UniqueConstraint("user_id", "name", name=op.f("uq_keypairs_user_id_name")),
    )
    op.create_table(
        "server_groups",
        sa.Column("id", ID, nullable=False),
        sa.Column("project_id", NAME, nullable=False),
        sa.Column("user_id", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("policy", WORD, nullable=False),
        sa.Column("most_per_host", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_server_groups")),
    )
    op.create_index(
        op.f("ix_server_groups_project_id_created_at"), "server_groups", ["project_id", "created_at"]
    )
    op.create_table(
        "server_group_members",
        sa.Column("instance_id", ID, nullable=False),
        sa.Column("group_id", ID, nullable=False),
        sa.ForeignKeyConstraint(
            ["instance_id"],
            ["instances.id"],
            name=op.f("fk_server_group_members_instance_id_instances"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["server_groups.id"],
            name=op.f("fk_server_group_members_group_id_server_groups"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("instance_id", name=op.f("pk_server_group_members")),
    )
    op.create_index(op.f("ix_server_group_members_group_id"), "server_group_members", ["group_id"])
    op.create_table(
        "quota_sets",
        sa.Column("project_id", NAME, nullable=False),
        sa.Column("user_id", NAME, nullable=False),
        sa.Column("limits", LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("project_id", "user_id", name=op.f("pk_quota_sets")),
    )
    op.create_table(
        "quota_classes",
        sa.Column("name", NAME, nullable=False),
        sa.Column("limits", LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_quota_classes")),
    )
    op.create_table(
        "aggregates",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("uuid", ID, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("availability_zone", NAME, nullable=True),
        sa.Column("meta", LONG_TEXT, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_aggregates")),
        sa.UniqueConstraint("name", name=op.f("uq_aggregates_name")),
        sa.UniqueConstraint("uuid", name=op.f("uq_aggregates_uuid")),
    )
    op.create_table(
        "aggregate_hosts",
        sa.Column("aggregate_id", BIG_ID, autoincrement=False, nullable=False),
        sa.Column("host", NAME, nullable=False),
        sa.ForeignKeyConstraint(
            ["aggregate_id"],
            ["aggregates.id"],
            name=op.f("fk_aggregate_hosts_aggregate_id_aggregates"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("aggregate_id", "host", name=op.f("pk_aggregate_hosts")),
    )
    op.create_index(op.f("ix_aggregate_hosts_host"), "aggregate_hosts", ["host"])
