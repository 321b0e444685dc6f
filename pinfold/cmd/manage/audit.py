"""pinfold-manage audit: does every worker's tracker say what the book says?

A worker is asked by a row in the book, which a conductor casts on; its answer is a row as well, so this
works wherever the database can be reached.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.cmd.manage.shared import Shell, as_json
from pinfold.conf import operations as conf_operations
from pinfold.db import hosts, schema
from pinfold.db.models import Node, Report, Service
from pinfold.db.types import epoch
from pinfold.model import errors
from pinfold.model.host import ClaimView, NodeView

_PATIENCE = 10.0
_ASKS = 3


class Difference(msgspec.Struct, frozen=True):
    """One thing on which two books do not agree."""

    node: str
    what: str
    cure: str


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``audit``."""
    audit = commands.add_parser("audit", help="compare the book with what the workers' trackers hold")
    audit.add_argument("--node", metavar="N", help="this node only")
    audit.add_argument(
        "--heal", action="store_true", help="have workers reload what differs, then look again"
    )
    audit.add_argument("--json", action="store_true")
    audit.set_defaults(run=_audit)


def _audit(shell: Shell, arguments: argparse.Namespace) -> int:
    schema.require(shell.book.engine)
    down = conf_operations.times(shell.conf).service_down
    nodes = shell.book.read(lambda session: _nodes(session, arguments.node, down))
    differences = _look(shell, nodes)
    if differences and arguments.heal:
        hosts_to_heal = {host for name, host, up in nodes if up and any(d.node == name for d in differences)}
        _ask(shell, hosts_to_heal, "reload")
        differences = _look(shell, nodes)
    _print(differences, len(nodes), json=arguments.json)
    return 1 if differences else 0


def _print(differences: list[Difference], nodes: int, *, json: bool) -> None:
    if json:
        print(as_json({"nodes": nodes, "differences": differences}))
        return
    for difference in differences:
        print(f"{difference.node}: {difference.what} Cure: {difference.cure}")
    print(f"{nodes} nodes, {len(differences)} differences")


def _nodes(session: Session, only: str | None, down: float) -> list[tuple[str, str, bool]]:
    query = (
        sa.select(Node.name, Node.host, hosts.is_up(down))
        .outerjoin(Service, sa.and_(Service.binary == hosts.COMPUTE, Service.host == Node.host))
        .order_by(Node.name)
    )
    if only is not None:
        query = query.where(Node.name == only)
    found = [(name, host, bool(up)) for name, host, up in session.execute(query)]
    if only is not None and not found:
        raise errors.NotFound(f"There is no node {only}.")
    return found


def _look(shell: Shell, nodes: list[tuple[str, str, bool]]) -> list[Difference]:
    """Compare until both sides are of one generation: a cloud at work moves on between two looks."""
    differences = [
        Difference("book", f"{torn}.", "restore the database from a backup; no release writes this")
        for torn in shell.book.read(hosts.torn_claims)
    ]
    pending = {name: host for name, host, up in nodes if up}
    left: list[Difference] = []
    for _round in range(_ASKS):
        answers = _ask(shell, set(pending.values()), "tracker")
        left = []
        for name, host in sorted(pending.items()):
            found = _compare(shell, name, answers.get(host))
            left.extend(found)
        pending = {difference.node: pending[difference.node] for difference in left}
        if not pending:
            break
    return differences + left


def _compare(shell: Shell, name: str, answer: list[NodeView] | None) -> list[Difference]:
    if answer is None:
        return [
            Difference(
                name,
                f"its worker did not answer within {_PATIENCE:.0f} s.",
                "see its log; restart it",
            )
        ]
    tracker = next((view for view in answer if view.node == name), None)
    book = shell.book.read(lambda session: _book_view(session, name))
    if tracker is None or book is None:
        return [
            Difference(name, "its worker does not know it.", "check [compute] nodes and restart the worker")
        ]
    cure = "audit --heal, or restart the worker"
    if tracker.generation != book.generation:
        what = f"its tracker is at generation {tracker.generation}, the book at {book.generation}."
        return [Difference(name, what, cure)]
    return [Difference(name, what, cure) for what in _differences(tracker.claims, book.claims)]


def _differences(tracker: Iterable[ClaimView], book: Iterable[ClaimView]) -> Iterable[str]:
    mine = {claim.id: claim for claim in tracker}
    theirs = {claim.id: claim for claim in book}
    for claim_id in sorted(mine.keys() | theirs.keys()):
        if claim_id not in theirs:
            yield f"its tracker holds claim {claim_id} of server {mine[claim_id].instance}, the book does not."
        elif claim_id not in mine:
            yield f"the book holds claim {claim_id} of server {theirs[claim_id].instance}, its tracker does not."
        elif _amounts(mine[claim_id]) != _amounts(theirs[claim_id]):
            yield f"claim {claim_id} of server {mine[claim_id].instance} is of another size in its tracker."


def _amounts(claim: ClaimView) -> tuple[object, ...]:
    return claim.instance, claim.memory_mb, claim.disk_gb, claim.shared_vcpus, claim.placement


def _book_view(session: Session, name: str) -> NodeView | None:
    node = hosts.node_by_name(session, name)
    return None if node is None else hosts.node_view(session, node)


def _ask(shell: Shell, asked: set[str], kind: str) -> dict[str, list[NodeView]]:
    """The answers of the hosts that answered in time."""
    reports = {shell.runtime.new_id(): host for host in sorted(asked)}
    if not reports:
        return {}
    shell.book.write(lambda session: _write(session, reports, kind))
    return {
        reports[report]: msgspec.convert(answer, list[NodeView], strict=False)
        for report, answer in _wait(shell, list(reports)).items()
    }


def _write(session: Session, reports: dict[str, str], kind: str) -> None:
    for report, host in reports.items():
        session.execute(sa.insert(Report).values(id=report, kind=kind, host=host, asked_at=epoch()))


def _wait(shell: Shell, reports: list[str]) -> dict[str, object]:
    until = shell.runtime.monotonic() + _PATIENCE
    while True:
        rows = shell.book.read(
            lambda session: session.execute(
                sa.select(Report.id, Report.answer).where(
                    Report.id.in_(reports), Report.answered_at.is_not(None)
                )
            ).all()
        )
        if len(rows) == len(reports) or shell.runtime.monotonic() > until:
            return {row.id: row.answer for row in rows}
        shell.runtime.sleep(0.1)
