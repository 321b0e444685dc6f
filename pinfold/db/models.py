"""The tables of the book.

What an instance holds is not in its row: it is its claims. What a node has used is the sum of
its claims. The unique keys are the rules: one pin per CPU, one claim per instance and role, one
open operation per instance.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pinfold.db.types import Json, LongText, Record, Seconds, epoch
from pinfold.model.host import NodeReport
from pinfold.model.numa import Placement
from pinfold.model.request import Demand

Id = sa.String(36)
Name = sa.String(255)
Word = sa.String(64)
BigId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


class Base(DeclarativeBase):
    """All tables; names of keys are fixed so that migrations can name them."""

    metadata = sa.MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Flavor(Base):
    """A flavor; servers keep a copy of what they were made from."""

    __tablename__ = "flavors"

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    flavorid: Mapped[str] = mapped_column(Name, unique=True)
    name: Mapped[str] = mapped_column(Name, unique=True)
    vcpus: Mapped[int] = mapped_column(sa.Integer)
    memory_mb: Mapped[int] = mapped_column(sa.Integer)
    root_gb: Mapped[int] = mapped_column(sa.Integer)
    ephemeral_gb: Mapped[int] = mapped_column(sa.Integer, default=0)
    swap_mb: Mapped[int] = mapped_column(sa.Integer, default=0)
    rxtx_factor: Mapped[float] = mapped_column(sa.Double, default=1.0)
    is_public: Mapped[bool] = mapped_column(sa.Boolean, default=True)
    disabled: Mapped[bool] = mapped_column(sa.Boolean, default=False)
    description: Mapped[str | None] = mapped_column(LongText, default=None)
    extra_specs: Mapped[dict[str, str]] = mapped_column(Json, default=dict)
    created_at: Mapped[float] = mapped_column(Seconds)


class FlavorAccess(Base):
    """A project that may see and use a flavor that is not public."""

    __tablename__ = "flavor_access"

    flavor_id: Mapped[int] = mapped_column(
        sa.ForeignKey("flavors.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    project_id: Mapped[str] = mapped_column(Name, primary_key=True)


class Keypair(Base):
    """A public key of a user; servers keep its name."""

    __tablename__ = "keypairs"
    __table_args__ = (sa.UniqueConstraint("user_id", "name"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    user_id: Mapped[str] = mapped_column(Name)
    name: Mapped[str] = mapped_column(Name)
    type: Mapped[str] = mapped_column(Word)
    public_key: Mapped[str] = mapped_column(LongText)
    fingerprint: Mapped[str] = mapped_column(Name)
    created_at: Mapped[float] = mapped_column(Seconds)


class Instance(Base):
    """A server. Its host, node and pins are its claims; its task state is its open operation's."""

    __tablename__ = "instances"
    __table_args__ = (
        sa.Index(None, "deleted_at", "project_id", "created_at"),
        sa.Index(None, "deleted_at", "created_at"),
        # in the order of lists: IS NULL at the head of an index gives PostgreSQL no order (MariaDB has the whole)
        sa.Index(
            "ix_instances_alive",
            "created_at",
            "id",
            postgresql_where=sa.text("deleted_at IS NULL"),
            sqlite_where=sa.text("deleted_at IS NULL"),
        ),
        sa.Index(None, "vm_state", "shelved_at"),
        sa.Index(None, "vm_state", "moved_at"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(Name)
    user_id: Mapped[str] = mapped_column(Name)
    name: Mapped[str] = mapped_column(Name)
    hostname: Mapped[str] = mapped_column(Name)
    reservation_id: Mapped[str] = mapped_column(Word)
    launch_index: Mapped[int] = mapped_column(sa.Integer, default=0)
    vm_state: Mapped[str] = mapped_column(Word)
    power_state: Mapped[int] = mapped_column(sa.Integer, default=0)
    created_at: Mapped[float] = mapped_column(Seconds)
    updated_at: Mapped[float] = mapped_column(Seconds)
    launched_at: Mapped[float | None] = mapped_column(Seconds, default=None)
    terminated_at: Mapped[float | None] = mapped_column(Seconds, default=None)
    deleted_at: Mapped[float | None] = mapped_column(Seconds, default=None)
    image_ref: Mapped[str] = mapped_column(Name)
    image_properties: Mapped[dict[str, str]] = mapped_column(Json, default=dict)
    flavor: Mapped[dict[str, Any]] = mapped_column(Json)
    """The flavor as it was: flavorid, name, vcpus, memory_mb, root_gb, ephemeral_gb, swap_mb, extra_specs."""
    demand: Mapped[Demand] = mapped_column(Record(Demand))
    meta: Mapped[dict[str, str]] = mapped_column(Json, default=dict)
    tags: Mapped[list[str]] = mapped_column(Json, default=list)
    hints: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    description: Mapped[str | None] = mapped_column(LongText, default=None)
    key_name: Mapped[str | None] = mapped_column(Name, default=None)
    availability_zone: Mapped[str | None] = mapped_column(Name, default=None)
    config_drive: Mapped[str] = mapped_column(Word, default="")
    user_data: Mapped[str | None] = mapped_column(LongText, default=None)
    disk_config: Mapped[str] = mapped_column(Word, default="MANUAL")
    access_ip_v4: Mapped[str] = mapped_column(Word, default="")
    access_ip_v6: Mapped[str] = mapped_column(Word, default="")
    locked_by: Mapped[str | None] = mapped_column(Word, default=None)
    locked_reason: Mapped[str | None] = mapped_column(Name, default=None)
    shelved_at: Mapped[float | None] = mapped_column(Seconds, default=None)
    shelved_image: Mapped[str | None] = mapped_column(Id, default=None)
    moved_from: Mapped[dict[str, Any] | None] = mapped_column(Json, default=None)
    """While a move waits to be confirmed: flavor and demand as they were, whether it ran (``runs``), and the
    ``operation`` that moved it."""
    moved_at: Mapped[float | None] = mapped_column(Seconds, default=None)
    soft_deleted_at: Mapped[float | None] = mapped_column(Seconds, default=None)
    fault: Mapped[dict[str, Any] | None] = mapped_column(Json, default=None)
    """Of the last operation, if it failed: code (int), message, details, created (seconds)."""


class ServerGroup(Base):
    """Servers that are to be on one host, or on different ones.

    Its row is the lock that members take their claims under, one after another: the rule is exact. ``most_per_host``
    is for anti-affinity.
    """

    __tablename__ = "server_groups"
    __table_args__ = (sa.Index(None, "project_id", "created_at"),)

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(Name)
    user_id: Mapped[str] = mapped_column(Name)
    name: Mapped[str] = mapped_column(Name)
    policy: Mapped[str] = mapped_column(Word)
    most_per_host: Mapped[int | None] = mapped_column(sa.Integer, default=None)
    created_at: Mapped[float] = mapped_column(Seconds)


class GroupMember(Base):
    """A server belongs to one group at most, from its creation on."""

    __tablename__ = "server_group_members"

    instance_id: Mapped[str] = mapped_column(
        sa.ForeignKey("instances.id", ondelete="CASCADE"), primary_key=True
    )
    group_id: Mapped[str] = mapped_column(sa.ForeignKey("server_groups.id", ondelete="CASCADE"), index=True)


class QuotaSet(Base):
    """Limits of a project, or of a user in it, where they differ from the defaults.

    The row of a project (with user "") is also the lock under which its servers and groups are counted and made.
    """

    __tablename__ = "quota_sets"

    project_id: Mapped[str] = mapped_column(Name, primary_key=True)
    user_id: Mapped[str] = mapped_column(Name, primary_key=True, default="")
    limits: Mapped[dict[str, int]] = mapped_column(Json, default=dict)


class QuotaClass(Base):
    """Default limits; the class named ``default`` is the one that counts."""

    __tablename__ = "quota_classes"

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    limits: Mapped[dict[str, int]] = mapped_column(Json, default=dict)


class Aggregate(Base):
    """Hosts with something in common; those of one with an ``availability_zone`` are that zone."""

    __tablename__ = "aggregates"

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    uuid: Mapped[str] = mapped_column(Id, unique=True)
    name: Mapped[str] = mapped_column(Name, unique=True)
    availability_zone: Mapped[str | None] = mapped_column(Name, default=None)
    meta: Mapped[dict[str, str]] = mapped_column(Json, default=dict)
    created_at: Mapped[float] = mapped_column(Seconds)
    updated_at: Mapped[float | None] = mapped_column(Seconds, default=None)


class AggregateHost(Base):
    """A host in an aggregate; it may be in several, but in one zone at most."""

    __tablename__ = "aggregate_hosts"

    aggregate_id: Mapped[int] = mapped_column(
        sa.ForeignKey("aggregates.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    host: Mapped[str] = mapped_column(Name, primary_key=True, index=True)


class Service(Base):
    """A process that registered: workers by host, conductors and APIs for the list of services."""

    __tablename__ = "services"
    __table_args__ = (sa.UniqueConstraint("binary", "host"),)

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    binary: Mapped[str] = mapped_column(Word)
    host: Mapped[str] = mapped_column(Name)
    host_id: Mapped[str | None] = mapped_column(Id, default=None)
    incarnation: Mapped[str] = mapped_column(Id)
    ready: Mapped[bool] = mapped_column(sa.Boolean, default=False)
    last_seen_at: Mapped[float] = mapped_column(Seconds)
    created_at: Mapped[float] = mapped_column(Seconds)
    disabled: Mapped[bool] = mapped_column(sa.Boolean, default=False)
    disabled_reason: Mapped[str | None] = mapped_column(Name, default=None)
    forced_down: Mapped[bool] = mapped_column(sa.Boolean, default=False)


class Node(Base):
    """A node of a host. Each change of its claims raises ``generation`` in the same transaction; ``taken_at`` is the
    generation at which more was taken of it last, or it was reported otherwise. ``updated_at`` is the time of its
    report, ``changed_at`` that of any news for schedulers."""

    __tablename__ = "nodes"

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    uuid: Mapped[str] = mapped_column(Id, unique=True)
    name: Mapped[str] = mapped_column(Name, unique=True)
    host: Mapped[str] = mapped_column(Name, index=True)
    generation: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    taken_at: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    report: Mapped[NodeReport] = mapped_column(Record(NodeReport), deferred=True)
    """Large, so that it is read when it is looked at."""
    created_at: Mapped[float] = mapped_column(Seconds)
    updated_at: Mapped[float] = mapped_column(Seconds)
    changed_at: Mapped[float] = mapped_column(Seconds, insert_default=epoch(), onupdate=epoch(), index=True)


class Claim(Base):
    """What an instance holds on a node.

    ``role``: incoming, current, outgoing, leftover. ``slot`` is the role, or null for leftovers, so that the
    unique key allows one claim per instance and role but any number of leftovers.
    """

    __tablename__ = "claims"
    __table_args__ = (sa.UniqueConstraint("instance_id", "slot"),)

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    instance_id: Mapped[str] = mapped_column(sa.ForeignKey("instances.id"), index=True)
    node_id: Mapped[int] = mapped_column(sa.ForeignKey("nodes.id"), index=True)
    role: Mapped[str] = mapped_column(Word)
    slot: Mapped[str | None] = mapped_column(Word, default=None)
    operation_id: Mapped[str] = mapped_column(Id)
    memory_mb: Mapped[int] = mapped_column(sa.Integer)
    disk_gb: Mapped[int] = mapped_column(sa.Integer)
    shared_vcpus: Mapped[int] = mapped_column(sa.Integer)
    placement: Mapped[Placement | None] = mapped_column(Record(Placement), default=None)
    created_at: Mapped[float] = mapped_column(Seconds)


class Pin(Base):
    """A host CPU that a claim holds: pinned to, for emulator threads, or held because its sibling is isolated."""

    __tablename__ = "pins"

    node_id: Mapped[int] = mapped_column(sa.ForeignKey("nodes.id"), primary_key=True, autoincrement=False)
    cpu: Mapped[int] = mapped_column(sa.Integer, primary_key=True, autoincrement=False)
    claim_id: Mapped[str] = mapped_column(sa.ForeignKey("claims.id", ondelete="CASCADE"), index=True)


class Operation(Base):
    """Work in progress, or done.

    ``open_key`` is the instance's id while it is open and null after: one open operation per instance.
    ``owner_host`` and ``owner_incarnation`` do it until ``lease_until``; ``attempt`` is the fence.
    ``targets`` are the nodes still to try (the first is being tried); ``refusals`` say why hosts were refused.
    ``result`` is null while open, then succeeded, failed or superseded; ``finishes`` are the answers to each
    ``finish`` that was accepted, by attempt and node, so that it can be answered again for ever.
    """

    __tablename__ = "operations"
    __table_args__ = (
        sa.Index(None, "instance_id", "created_at"),
        sa.Index(None, "open_key", "lease_until"),
        sa.Index(None, "ended_at"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    kind: Mapped[str] = mapped_column(Word)
    instance_id: Mapped[str] = mapped_column(sa.ForeignKey("instances.id"))
    open_key: Mapped[str | None] = mapped_column(Id, unique=True, default=None)
    step: Mapped[str | None] = mapped_column(Word, default=None)
    task_state: Mapped[str | None] = mapped_column(Word, default=None)
    attempt: Mapped[int] = mapped_column(sa.Integer, default=0)
    finishes: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    owner_host: Mapped[str | None] = mapped_column(Name, default=None)
    owner_incarnation: Mapped[str | None] = mapped_column(Id, default=None)
    lease_until: Mapped[float] = mapped_column(Seconds)
    deadline_at: Mapped[float] = mapped_column(Seconds)
    left_leftover: Mapped[bool] = mapped_column(sa.Boolean, default=False)
    result: Mapped[str | None] = mapped_column(Word, default=None)
    error: Mapped[str | None] = mapped_column(LongText, default=None)
    arguments: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    targets: Mapped[list[str]] = mapped_column(Json, default=list)
    refusals: Mapped[list[dict[str, Any]]] = mapped_column(Json, default=list)
    log: Mapped[list[dict[str, Any]]] = mapped_column(Json, default=list)
    """Each step tried: step, attempt, host, start and end (seconds), error."""
    request_id: Mapped[str] = mapped_column(Word)
    project_id: Mapped[str] = mapped_column(Name)
    user_id: Mapped[str] = mapped_column(Name)
    created_at: Mapped[float] = mapped_column(Seconds)
    updated_at: Mapped[float] = mapped_column(Seconds)
    ended_at: Mapped[float | None] = mapped_column(Seconds, default=None)


class Outbox(Base):
    """What must happen outside the database after a commit; swept until it has happened."""

    __tablename__ = "outbox"

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    kind: Mapped[str] = mapped_column(Word)
    subject: Mapped[str] = mapped_column(Name)
    tries: Mapped[int] = mapped_column(sa.Integer, default=0)
    due_at: Mapped[float] = mapped_column(Seconds, index=True)
    created_at: Mapped[float] = mapped_column(Seconds)


class Report(Base):
    """A question to a worker (``kind``, with ``arguments``) and its answer: nobody calls a worker, it is cast to and
    answers here."""

    __tablename__ = "reports"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    kind: Mapped[str] = mapped_column(Word)
    arguments: Mapped[dict[str, Any] | None] = mapped_column(Json, default=None)
    host: Mapped[str] = mapped_column(Name)
    asked_at: Mapped[float] = mapped_column(Seconds)
    cast_at: Mapped[float | None] = mapped_column(Seconds, default=None, index=True)
    answered_at: Mapped[float | None] = mapped_column(Seconds, default=None)
    answer: Mapped[Any] = mapped_column(Json, nullable=True, default=None)
