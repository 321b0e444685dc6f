"""The first schema."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None

LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "flavors",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("flavorid", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("root_gb", sa.Integer(), nullable=False),
        sa.Column("ephemeral_gb", sa.Integer(), nullable=False),
        sa.Column("swap_mb", sa.Integer(), nullable=False),
        sa.Column("rxtx_factor", sa.Double(), nullable=False),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("description", LONG_TEXT, nullable=True),
        sa.Column("extra_specs", LONG_TEXT, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_flavors")),
        sa.UniqueConstraint("flavorid", name=op.f("uq_flavors_flavorid")),
        sa.UniqueConstraint("name", name=op.f("uq_flavors_name")),
    )
    op.create_table(
        "instances",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("hostname", sa.String(length=255), nullable=False),
        sa.Column("reservation_id", sa.String(length=64), nullable=False),
        sa.Column("launch_index", sa.Integer(), nullable=False),
        sa.Column("vm_state", sa.String(length=64), nullable=False),
        sa.Column("power_state", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("launched_at", sa.Double(), nullable=True),
        sa.Column("terminated_at", sa.Double(), nullable=True),
        sa.Column("deleted_at", sa.Double(), nullable=True),
        sa.Column("image_ref", sa.String(length=255), nullable=False),
        sa.Column("image_properties", LONG_TEXT, nullable=False),
        sa.Column("flavor", LONG_TEXT, nullable=False),
        sa.Column("demand", LONG_TEXT, nullable=False),
        sa.Column("meta", LONG_TEXT, nullable=False),
        sa.Column("tags", LONG_TEXT, nullable=False),
        sa.Column("hints", LONG_TEXT, nullable=False),
        sa.Column("description", LONG_TEXT, nullable=True),
        sa.Column("key_name", sa.String(length=255), nullable=True),
        sa.Column("availability_zone", sa.String(length=255), nullable=True),
        sa.Column("config_drive", sa.String(length=64), nullable=False),
        sa.Column("user_data", LONG_TEXT, nullable=True),
        sa.Column("disk_config", sa.String(length=64), nullable=False),
        sa.Column("access_ip_v4", sa.String(length=64), nullable=False),
        sa.Column("access_ip_v6", sa.String(length=64), nullable=False),
        sa.Column("locked_by", sa.String(length=64), nullable=True),
        sa.Column("locked_reason", sa.String(length=255), nullable=True),
        sa.Column("shelved_at", sa.Double(), nullable=True),
        sa.Column("shelved_image", sa.String(length=36), nullable=True),
        sa.Column("fault", LONG_TEXT, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instances")),
    )
    op.create_index(
        op.f("ix_instances_deleted_at_created_at"), "instances", ["deleted_at", "created_at"], unique=False
    )
    op.create_index(
        op.f("ix_instances_deleted_at_project_id_created_at"),
        "instances",
        ["deleted_at", "project_id", "created_at"],
        unique=False,
    )
    op.create_index(
        op.f("ix_instances_vm_state_shelved_at"), "instances", ["vm_state", "shelved_at"], unique=False
    )
    op.create_table(
        "nodes",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("report", LONG_TEXT, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
        sa.UniqueConstraint("name", name=op.f("uq_nodes_name")),
        sa.UniqueConstraint("uuid", name=op.f("uq_nodes_uuid")),
    )
    op.create_index(op.f("ix_nodes_host"), "nodes", ["host"], unique=False)
    op.create_table(
        "outbox",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=255), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    op.create_index(op.f("ix_outbox_due_at"), "outbox", ["due_at"], unique=False)
    op.create_table(
        "reports",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("cast_at", sa.Double(), nullable=True),
        sa.Column("answered_at", sa.Double(), nullable=True),
        sa.Column("answer", LONG_TEXT, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reports")),
    )
    op.create_index(op.f("ix_reports_cast_at"), "reports", ["cast_at"], unique=False)
    op.create_table(
        "services",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("binary", sa.String(length=64), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("host_id", sa.String(length=36), nullable=True),
        sa.Column("incarnation", sa.String(length=36), nullable=False),
        sa.Column("ready", sa.Boolean(), nullable=False),
        sa.Column("last_seen_at", sa.Double(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", sa.String(length=255), nullable=True),
        sa.Column("forced_down", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_services")),
        sa.UniqueConstraint("binary", "host", name=op.f("uq_services_binary_host")),
    )
    op.create_table(
        "claims",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("instance_id", sa.String(length=36), nullable=False),
        sa.Column("node_id", BIG_ID, nullable=False),
        sa.Column("role", sa.String(length=64), nullable=False),
        sa.Column("slot", sa.String(length=64), nullable=True),
        sa.Column("operation_id", sa.String(length=36), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("disk_gb", sa.Integer(), nullable=False),
        sa.Column("shared_vcpus", sa.Integer(), nullable=False),
        sa.Column("placement", LONG_TEXT, nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_claims_instance_id_instances")
        ),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_claims_node_id_nodes")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_claims")),
        sa.UniqueConstraint("instance_id", "slot", name=op.f("uq_claims_instance_id_slot")),
    )
    op.create_index(op.f("ix_claims_instance_id"), "claims", ["instance_id"], unique=False)
    op.create_index(op.f("ix_claims_node_id"), "claims", ["node_id"], unique=False)
    op.create_table(
        "operations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("instance_id", sa.String(length=36), nullable=False),
        sa.Column("open_key", sa.String(length=36), nullable=True),
        sa.Column("step", sa.String(length=64), nullable=True),
        sa.Column("task_state", sa.String(length=64), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("finished_attempt", sa.Integer(), nullable=True),
        sa.Column("owner_host", sa.String(length=255), nullable=True),
        sa.Column("owner_incarnation", sa.String(length=36), nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=False),
        sa.Column("deadline_at", sa.Double(), nullable=False),
        sa.Column("left_leftover", sa.Boolean(), nullable=False),
        sa.Column("result", sa.String(length=64), nullable=True),
        sa.Column("error", LONG_TEXT, nullable=True),
        sa.Column("arguments", LONG_TEXT, nullable=False),
        sa.Column("targets", LONG_TEXT, nullable=False),
        sa.Column("refusals", LONG_TEXT, nullable=False),
        sa.Column("log", LONG_TEXT, nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_operations_instance_id_instances")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operations")),
        sa.UniqueConstraint("open_key", name=op.f("uq_operations_open_key")),
    )
    op.create_index(op.f("ix_operations_ended_at"), "operations", ["ended_at"], unique=False)
    op.create_index(
        op.f("ix_operations_instance_id_created_at"),
        "operations",
        ["instance_id", "created_at"],
        unique=False,
    )
    op.create_index(
        op.f("ix_operations_open_key_lease_until"), "operations", ["open_key", "lease_until"], unique=False
    )
    op.create_table(
        "pins",
        sa.Column("node_id", BIG_ID, autoincrement=False, nullable=False),
        sa.Column("cpu", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("claim_id", sa.String(length=36), nullable=False),
        sa.ForeignKeyConstraint(
            ["claim_id"], ["claims.id"], name=op.f("fk_pins_claim_id_claims"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_pins_node_id_nodes")),
        sa.PrimaryKeyConstraint("node_id", "cpu", name=op.f("pk_pins")),
    )
    op.create_index(op.f("ix_pins_claim_id"), "pins", ["claim_id"], unique=False)
