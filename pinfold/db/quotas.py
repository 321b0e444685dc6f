"""Quotas: limits are rows, what is used is counted from the rows that use it, in the transaction that adds to them.

No usage is stored, so none can drift. What must be exact is counted under the lock of the project's row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import sqlalchemy as sa
from oslo_db import exception as db_errors
from sqlalchemy.orm import Session

from pinfold.db import quick
from pinfold.db.models import Base, GroupMember, Instance, Keypair, QuotaClass, QuotaSet, ServerGroup
from pinfold.db.types import json_number, largest
from pinfold.model import errors, quotas
from pinfold.model.quotas import Amounts

DEFAULT_CLASS = "default"
_WHOLE_PROJECT = ""
# Given back until they are restored, which counts again from the request on.
_NOT_COUNTED = "soft-delete"
_COUNTED_AGAIN = "restore"

_instances = Base.metadata.tables["instances"]
_operations = Base.metadata.tables["operations"]


_PROJECT, _USER = sa.bindparam("project", type_=sa.String()), sa.bindparam("user", type_=sa.String())
_LOCK = (
    sa.select(QuotaSet.project_id)
    .where(QuotaSet.project_id == _PROJECT, QuotaSet.user_id == _USER)
    .with_for_update()
)
_LIMITS = sa.union_all(
    sa.select(sa.cast(sa.null(), sa.String(255)), QuotaClass.limits).where(QuotaClass.name == DEFAULT_CLASS),
    sa.select(QuotaSet.user_id, QuotaSet.limits).where(
        QuotaSet.project_id == _PROJECT, sa.or_(QuotaSet.user_id == _WHOLE_PROJECT, QuotaSet.user_id == _USER)
    ),
)


def _size(of: str) -> sa.ColumnElement[int]:
    return largest(
        json_number(_instances.c.flavor, of),
        json_number(_instances.c.moved_from, "flavor", of),
        json_number(_operations.c.arguments, "flavor", of),
    )


def _used(user: sa.BindParameter[str] | None) -> sa.Select[Any]:
    cores, ram = _size("vcpus"), _size("memory_mb")
    sums: list[sa.ColumnElement[Any]] = [sa.func.count(), sa.func.sum(cores), sa.func.sum(ram)]
    if user is not None:
        mine = _instances.c.user_id == user
        sums += [sa.func.sum(sa.case((mine, amount), else_=0)) for amount in (sa.literal(1), cores, ram)]
    return (
        sa.select(*sums)
        .select_from(_instances)
        .outerjoin(_operations, _operations.c.open_key == _instances.c.id)
        .where(
            _instances.c.deleted_at.is_(None),
            _instances.c.project_id == _PROJECT,
            sa.or_(_instances.c.vm_state != _NOT_COUNTED, _operations.c.kind == _COUNTED_AGAIN),
        )
    )


_USED, _USED_WITH_USER = _used(None), _used(_USER)


class Limits(msgspec.Struct, frozen=True):
    """What a project may have, and what a user of it may: only where the user's own limits differ."""

    project: dict[str, int]
    user: dict[str, int] = {}


class Scopes(msgspec.Struct, frozen=True):
    """What servers use: of a whole project, and of one user of it."""

    project: dict[str, int]
    user: dict[str, int]


def lock(session: Session, project: str, user: str = _WHOLE_PROJECT) -> None:
    """From here on, nobody else counts what is theirs, and adds to it, until this transaction ends.

    ::

        SELECT project_id FROM quota_sets WHERE project_id = :project AND user_id = '' FOR UPDATE
    """
    if quick.one(session, _LOCK, project=project, user=user) is None:
        _first(session, QuotaSet, {"project_id": project, "user_id": user}, {})


def limits(session: Session, defaults: Amounts, project: str, user: str = _WHOLE_PROJECT) -> Limits:
    """What counts for the two: own limits, else those of the default class, else the options' (``defaults``).

    ::

        SELECT NULL, limits FROM quota_classes WHERE name = 'default' UNION ALL
        SELECT user_id, limits FROM quota_sets WHERE project_id = :project AND user_id IN ('', :user)
    """
    known = quick.every(session, _LIMITS, project=project, user=user)
    found: dict[str | None, dict[str, int]] = {row[0]: row[1] for row in known}
    whole = {**defaults, **found.get(None, {}), **found.get(_WHOLE_PROJECT, {})}
    return Limits(whole, found.get(user, {}) if user != _WHOLE_PROJECT else {})


def locked_limits(session: Session, defaults: Amounts, project: str, user: str) -> Limits:
    """The limits, with the project locked: what is counted after this still holds when it is added to."""
    lock(session, project)
    return limits(session, defaults, project, user)


def used_by_servers(session: Session, project: str, user: str = _WHOLE_PROJECT) -> Scopes:
    """Instances, cores and RAM of the servers that are not deleted, whatever their state; a user's if one is named.

    A server that is resized counts as the larger of what it was and is to be, until the one or the other is final.

    ::

        SELECT count(*), sum(greatest(flavor.vcpus, moved_from.flavor.vcpus, arguments.flavor.vcpus)), sum(...)
        [, sum(user_id = :user), ...] FROM instances LEFT JOIN operations ON open_key = instances.id
        WHERE deleted_at IS NULL AND project_id = :project
        AND (vm_state <> 'soft-delete' OR operations.kind = 'restore')
    """
    if user == _WHOLE_PROJECT:
        (row,) = quick.every(session, _USED, project=project)
    else:
        (row,) = quick.every(session, _USED_WITH_USER, project=project, user=user)
    numbers = [int(number or 0) for number in row]
    return Scopes(
        dict(zip(quotas.OF_SERVERS, numbers[:3], strict=True)),
        dict(zip(quotas.OF_SERVERS, numbers[3:], strict=False)),
    )


def room_for_servers(
    session: Session, may: Limits, project: str, user: str, each: Amounts, least: int, most: int
) -> int:
    """How many more servers, of ``each`` cores and RAM, the two may have: ``most``, or fewer, but at least ``least``.

    ``may`` are their locked limits. Raises OverQuota.
    """
    used = used_by_servers(session, project, user if may.user else _WHOLE_PROJECT)
    one = {"instances": 1, **each}
    limited = {name: amount for name, amount in one.items() if name in may.user}
    count = quotas.room(may.project, used.project, one, most)
    count = quotas.room(may.user, used.user, limited, count)
    if count < least:
        quotas.require("project", may.project, used.project, _times(one, least))
        quotas.require("user", may.user, used.user, _times(limited, least))
    return count


def require_servers(session: Session, defaults: Amounts, project: str, user: str, asked: Amounts) -> None:
    """Raise OverQuota where ``asked``, which is counted already, is beyond the limits of the project or the user."""
    may = locked_limits(session, defaults, project, user)
    used = used_by_servers(session, project, user if may.user else _WHOLE_PROJECT)
    quotas.require("project", may.project, _less(used.project, asked), asked)
    own = {name: amount for name, amount in asked.items() if name in may.user}
    quotas.require("user", may.user, _less(used.user, own), own)


def _less(used: Amounts, asked: Amounts) -> dict[str, int]:
    return {name: amount - asked.get(name, 0) for name, amount in used.items()}


def require_server(session: Session, defaults: Amounts, instance: Instance) -> None:
    """Raise OverQuota where a server that is counted already, and is to have a place again, is beyond the limits."""
    require_servers(session, defaults, instance.project_id, instance.user_id, one_server(instance.flavor))


def one_server(flavor: Mapping[str, Any]) -> Amounts:
    """What a server of this size counts as."""
    return {"instances": 1, "cores": flavor["vcpus"], "ram": flavor["memory_mb"]}


def _times(each: Amounts, count: int) -> dict[str, int]:
    return {name: amount * count for name, amount in each.items()}


# --- groups and keypairs ----------------------------------------------------------------------------


def groups_of(session: Session, project: str, user: str | None = None) -> int:
    """How many server groups the project has (those of one user, if given)."""
    query = sa.select(sa.func.count()).select_from(ServerGroup).where(ServerGroup.project_id == project)
    if user is not None:
        query = query.where(ServerGroup.user_id == user)
    return session.scalar(query) or 0


def members_of(session: Session, group: str) -> int:
    """How many servers of the group are not deleted."""
    query = (
        sa.select(sa.func.count())
        .select_from(GroupMember)
        .join(_instances, _instances.c.id == GroupMember.instance_id)
        .where(GroupMember.group_id == group, _instances.c.deleted_at.is_(None))
    )
    return session.scalar(query) or 0


def keypairs_of(session: Session, user: str) -> int:
    """How many keypairs the user has."""
    query = sa.select(sa.func.count()).select_from(Keypair).where(Keypair.user_id == user)
    return session.scalar(query) or 0


# --- limits -----------------------------------------------------------------------------------------


def set_limits(session: Session, project: str, user: str, changes: Mapping[str, int]) -> None:
    """Change limits of a project (user ``""``) or of a user in it, whose row is there or made."""
    _change(session, QuotaSet, {"project_id": project, "user_id": user}, changes)


def drop_limits(session: Session, project: str, user: str = _WHOLE_PROJECT) -> None:
    """Back to the defaults, for a user or for the project with all its users; the project's row stays as the lock."""
    whole = sa.update(QuotaSet).where(QuotaSet.project_id == project).values(limits={})
    if user != _WHOLE_PROJECT:
        whole = whole.where(QuotaSet.user_id == user)
    session.execute(whole)


def class_limits(session: Session, name: str) -> dict[str, int]:
    """The limits of a class that differ from the options'."""
    return session.scalar(sa.select(QuotaClass.limits).where(QuotaClass.name == name)) or {}


def set_class_limits(session: Session, name: str, changes: Mapping[str, int]) -> None:
    """Change limits of a class, whose row is there or made."""
    _change(session, QuotaClass, {"name": name}, changes)


def users_limits(session: Session, project: str, but: str) -> list[dict[str, int]]:
    """The own limits of the project's users, without those of one of them."""
    rows = session.scalars(
        sa.select(QuotaSet.limits).where(
            QuotaSet.project_id == project, QuotaSet.user_id.not_in((_WHOLE_PROJECT, but))
        )
    )
    return list(rows)


def _change(
    session: Session, table: type[QuotaSet | QuotaClass], key: dict[str, Any], changes: Mapping[str, int]
) -> None:
    query: sa.Select[Any] = sa.select(table).filter_by(**key).with_for_update()
    row: QuotaSet | QuotaClass | None = session.scalar(query)
    if row is None:
        _first(session, table, key, changes)
    else:
        row.limits = {**row.limits, **changes}


def _first(
    session: Session, table: type[QuotaSet | QuotaClass], key: dict[str, Any], values: Mapping[str, int]
) -> None:
    """Write a row that was not there; the transaction runs again if somebody else wrote it at the same time."""
    try:
        session.execute(sa.insert(table).values(**key, limits=dict(values)))
    except db_errors.DBDuplicateEntry as error:
        raise db_errors.RetryRequest(errors.Conflict("A limit was set for the first time twice.")) from error
