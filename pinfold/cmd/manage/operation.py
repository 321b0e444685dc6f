"""pinfold-manage operation: what is under way, and how to hurry it or call it off. No SQL is ever needed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.cmd.manage.shared import Shell, as_json, when
from pinfold.db import operations, schema
from pinfold.db.models import Operation
from pinfold.db.types import epoch
from pinfold.model import errors, timeline
from pinfold.model.timeline import Span


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``operation`` and its own commands."""
    group = commands.add_parser("operation", help="operations under way").add_subparsers(
        dest="command", required=True
    )
    listing = group.add_parser("list", help="the open operations, oldest first")
    listing.add_argument("--all", action="store_true", help="the last 100, ended ones too")
    listing.add_argument("--server", metavar="ID", help="of this server only, ended ones too")
    listing.add_argument("--json", action="store_true")
    listing.set_defaults(run=_list)
    for name, run, text in (
        ("show", _show, "everything about one operation"),
        ("retry", _retry, "have a conductor carry an open operation on now"),
        ("unwind", _unwind, "have a conductor end an open operation now, as if its time were over"),
    ):
        one = group.add_parser(name, help=text)
        one.add_argument("operation", metavar="ID")
        one.set_defaults(run=run)
        if name == "show":
            one.add_argument("--json", action="store_true", help="the row of the book")


def _list(shell: Shell, arguments: argparse.Namespace) -> int:
    schema.require(shell.book.engine)
    query = sa.select(Operation).order_by(Operation.created_at)
    if arguments.server:
        query = query.where(Operation.instance_id == arguments.server)
    elif arguments.all:
        query = sa.select(Operation).order_by(Operation.created_at.desc()).limit(100)
    else:
        query = query.where(Operation.open_key.is_not(None))
    found = shell.book.read(lambda session: session.scalars(query).all())
    if arguments.json:
        print(as_json([_fields(operation) for operation in found]))
        return 0
    for operation in found:
        print(
            f"{operation.id}  {operation.kind:<18} server {operation.instance_id}  "
            f"{operation.result or 'open':<10} step {operation.step or '-'}  attempt {operation.attempt}  "
            f"owner {operation.owner_host or '-'}  since {when(operation.created_at)}"
        )
    return 0


def _fields(operation: Operation) -> dict[str, object]:
    return {
        column.key: getattr(operation, column.key) for column in sa.inspect(Operation).mapper.column_attrs
    }


def _show(shell: Shell, arguments: argparse.Namespace) -> int:
    schema.require(shell.book.engine)
    found = shell.book.read(
        lambda session: session.execute(
            sa.select(Operation, epoch()).where(Operation.id == arguments.operation)
        ).first()
    )
    if found is None:
        raise errors.NotFound(f"There is no operation {arguments.operation}.")
    operation, now = found
    print(as_json(_fields(operation)) if arguments.json else "\n".join(_story(operation, now)))
    return 0


def _story(operation: Operation, now: float) -> Iterator[str]:
    """The operation for people: what it is, then its waits and steps, one a line."""
    took = (operation.ended_at or now) - operation.created_at
    yield f"Operation {operation.id}: {operation.kind} of server {operation.instance_id}"
    yield f"  {operation.result or 'open'} after {took:.3f} s, since {when(operation.created_at)}"
    yield (
        f"  asked for by user {operation.user_id} of project {operation.project_id} in request "
        f"{operation.request_id}"
    )
    if operation.ended_at is None:
        yield (
            f"  attempt {operation.attempt}, owner {operation.owner_host or '-'}, lease until "
            f"{when(operation.lease_until)}, deadline {when(operation.deadline_at)}"
        )
    if operation.error:
        yield f"  error: {operation.error}"
    for refusal in operation.refusals:
        yield f"  refused: {as_json(refusal)}"
    for span in timeline.spans(operation.created_at, operation.ended_at, operation.log, now):
        yield _line(span, operation.created_at)


def _line(span: Span, created_at: float) -> str:
    words = timeline.WAITS.get(span.name, span.name) if span.what == "wait" else span.name
    line = f"  +{span.start - created_at:8.3f} s  {span.what}  {words:<58} {span.seconds:8.3f} s"
    line += f"  {span.host}" if span.host else ""
    line += f"  attempt {span.attempt}" if span.attempt > 1 else ""
    line += "  (under way)" if span.open else ""
    return line + (f"  failed: {span.error}" if span.error else "")


def _due(shell: Shell, operation_id: str, column: str) -> None:
    """Make the operation due: the next sweep of any conductor takes it up."""

    def change(session: Session) -> None:
        found = operations.locked(session, operation_id)
        if found is None:
            raise errors.NotFound(f"There is no operation {operation_id}.")
        if found[0].open_key is None:
            raise errors.Conflict(f"Operation {operation_id} has ended: {found[0].result}.")
        session.execute(sa.update(Operation).where(Operation.id == operation_id).values({column: epoch()}))

    schema.require(shell.book.engine)
    shell.book.write(change)


def _retry(shell: Shell, arguments: argparse.Namespace) -> int:
    _due(shell, arguments.operation, "lease_until")
    print("A conductor carries it on at its next sweep.")
    return 0


def _unwind(shell: Shell, arguments: argparse.Namespace) -> int:
    _due(shell, arguments.operation, "deadline_at")
    print("A conductor ends it at its next sweep.")
    return 0
