"""Server groups and their members in the book."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db import claims
from pinfold.db.models import Base, Claim, GroupMember, Node, ServerGroup
from pinfold.db.session import may_be_done
from pinfold.db.types import epoch
from pinfold.model.groups import GroupRule


class GroupRow(msgspec.Struct, frozen=True):
    """A group with the ids of its members that are not deleted, oldest first."""

    id: str
    project_id: str
    user_id: str
    name: str
    policy: str
    most_per_host: int | None
    members: tuple[str, ...] = ()


_instances = Base.metadata.tables["instances"]
_OF_GROUP = [name for name in GroupRow.__struct_fields__ if name != "members"]
_GROUPS = sa.select(*(getattr(ServerGroup, name) for name in _OF_GROUP))


def add(session: Session, group: GroupRow) -> None:
    """Write a new group."""
    values = {name: getattr(group, name) for name in _OF_GROUP}
    session.execute(sa.insert(ServerGroup).values(**values, created_at=epoch()))


def get(session: Session, group: str) -> GroupRow | None:
    """One group, with its members."""
    found = _with_members(session, _GROUPS.where(ServerGroup.id == group))
    return found[0] if found else None


def listed(session: Session, project: str | None, limit: int, offset: int) -> list[GroupRow]:
    """A page of the groups of a project, or of all (None), oldest first."""
    query = _GROUPS.order_by(ServerGroup.created_at, ServerGroup.id).limit(limit).offset(offset)
    return _with_members(
        session, query if project is None else query.where(ServerGroup.project_id == project)
    )


def _with_members(session: Session, groups: sa.Select[tuple[str, ...]]) -> list[GroupRow]:
    """::

    SELECT page.*, instances.id FROM (SELECT ... FROM server_groups ...) AS page
    LEFT JOIN server_group_members ON group_id = page.id
    LEFT JOIN instances ON instances.id = instance_id AND deleted_at IS NULL
    """
    page = groups.add_columns(ServerGroup.created_at).subquery("page")
    rows = session.execute(
        sa.select(*(page.c[name] for name in _OF_GROUP), _instances.c.id)
        .select_from(page)
        .outerjoin(GroupMember, GroupMember.group_id == page.c.id)
        .outerjoin(
            _instances,
            sa.and_(_instances.c.id == GroupMember.instance_id, _instances.c.deleted_at.is_(None)),
        )
        .order_by(page.c.created_at, page.c.id, _instances.c.created_at, _instances.c.id)
    )
    found: dict[str, GroupRow] = {}
    members: dict[str, list[str]] = {}
    for *fields, member in rows:
        group = GroupRow(*fields)
        found.setdefault(group.id, group)
        members.setdefault(group.id, []).extend([member] if member else [])
    return [msgspec.structs.replace(group, members=tuple(members[group.id])) for group in found.values()]


def delete(session: Session, group: str) -> bool:
    """Remove it, and that its members were in it; whether it was there."""
    gone = session.execute(sa.delete(ServerGroup).where(ServerGroup.id == group))
    return bool(gone.rowcount) or may_be_done(session)  # type: ignore[attr-defined]


def locked(session: Session, group: str) -> ServerGroup | None:
    """The group, locked: nobody joins it or takes a claim as its member until this transaction ends."""
    return session.scalar(sa.select(ServerGroup).where(ServerGroup.id == group).with_for_update())


def join(session: Session, group: str, servers: Sequence[str]) -> None:
    """Make servers, which have just been written, members of a group that is locked."""
    session.flush()
    rows = [{"instance_id": server, "group_id": group} for server in servers]
    session.execute(sa.insert(GroupMember), rows)


def rule_for(session: Session, server: str, *, lock: bool = False) -> GroupRule | None:
    """The rule of the server's group, with where the others are now; None for a server that is in none.

    With ``lock`` the group is locked first, so that the answer still holds when this transaction writes a claim.
    Lock it after the operation and the instance, and before nodes. Leftovers do not count: what they stand for is a
    guest that has ended, or that nobody needs any more.

    ::

        SELECT server_groups.* FROM server_groups JOIN server_group_members ON group_id = id
        WHERE instance_id = :server FOR UPDATE
        SELECT nodes.host, count(DISTINCT instance_id) FROM server_group_members JOIN claims USING (instance_id)
        JOIN nodes ON ... WHERE group_id = :group AND instance_id <> :server AND role <> 'leftover' GROUP BY host
    """
    query = (
        sa.select(ServerGroup)
        .join(GroupMember, GroupMember.group_id == ServerGroup.id)
        .where(GroupMember.instance_id == server)
    )
    group = session.scalar(query.with_for_update(of=ServerGroup) if lock else query)
    if group is None:
        return None
    rows = session.execute(
        sa.select(Node.host, sa.func.count(Claim.instance_id.distinct()))
        .join(Claim, Claim.node_id == Node.id)
        .join(GroupMember, GroupMember.instance_id == Claim.instance_id)
        .where(
            GroupMember.group_id == group.id,
            GroupMember.instance_id != server,
            Claim.role != claims.LEFTOVER,
        )
        .group_by(Node.host)
    )
    return GroupRule(group.policy, {row[0]: row[1] for row in rows}, group.most_per_host or 1)
