"""pinfold-manage audit: book, tracker and hypervisor of each node compared; --heal puts right what is safe.

A worker is asked by a row in the book, which a conductor casts on; its answer is a row as well, so this works
wherever the database can be reached. What is healed is healed by the node's own worker, which looks again first.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.cmd.manage.shared import Shell, as_json
from pinfold.compute.audit import decide
from pinfold.conductor import workers
from pinfold.conf import operations as conf_operations
from pinfold.db import claims, consistency, hosts, schema
from pinfold.db.models import Node, Report, Service
from pinfold.db.types import epoch
from pinfold.model import differences, errors
from pinfold.model.differences import Difference
from pinfold.model.host import ClaimView, NodeView
from pinfold.rpcapi.messages import GuestView
from pinfold.virt.driver import Guest

T = TypeVar("T")
_PATIENCE = 10.0
_HEALING = 60.0
_LOOKS = 3


class _Asked(msgspec.Struct, frozen=True):
    """A node, and whether its worker is up."""

    name: str
    host: str
    up: bool


class _Answers(msgspec.Struct, frozen=True):
    """What the worker of a host says of its nodes; None is no answer in time."""

    trackers: list[NodeView] | None
    guests: list[Guest] | None


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``audit``."""
    audit = commands.add_parser("audit", help="compare the book with workers' trackers and their hypervisors")
    audit.add_argument("--node", metavar="N", help="this node only")
    audit.add_argument(
        "--heal",
        action="store_true",
        help="have workers put right what can be put right safely, tell what they did, and look again",
    )
    audit.add_argument("--json", action="store_true")
    audit.set_defaults(run=_audit)


def _audit(shell: Shell, arguments: argparse.Namespace) -> int:
    schema.require(shell.book.engine)
    down = conf_operations.times(shell.conf).service_down
    nodes = shell.book.read(lambda session: _nodes(session, arguments.node, down))
    found = _look(shell, nodes)
    healed: list[Difference] = []
    wanted = _healable(nodes, found) if arguments.heal else {}
    if wanted:
        healed = _heal(shell, wanted)
        found = _look(shell, nodes)
    _print(found, healed, len(nodes), json=arguments.json)
    return 1 if found else 0


def _print(found: list[Difference], healed: list[Difference], nodes: int, *, json: bool) -> None:
    if json:
        told = {"nodes": nodes, "differences": [_fields(difference) for difference in found]}
        print(as_json({**told, "healed": [_fields(difference) for difference in healed]}))
        return
    for difference in healed:
        print(f"{difference.node}: {difference}")
    for difference in found:
        print(f"{difference.node}: {difference}")
    print(f"{nodes} nodes, {len(found)} differences" + (f", {len(healed)} healed" if healed else ""))


def _fields(difference: Difference) -> dict[str, Any]:
    return {**msgspec.to_builtins(difference), "cause": difference.cause, "cure": difference.cure}


def _nodes(session: Session, only: str | None, down: float) -> list[_Asked]:
    query = (
        sa.select(Node.name, Node.host, hosts.is_up(down))
        .outerjoin(Service, sa.and_(Service.binary == hosts.COMPUTE, Service.host == Node.host))
        .order_by(Node.name)
    )
    if only is not None:
        query = query.where(Node.name == only)
    found = [_Asked(name, host, bool(up)) for name, host, up in session.execute(query)]
    if only is not None and not found:
        raise errors.NotFound(f"There is no node {only}.")
    return found


# --- looking -----------------------------------------------------------------------------------


def _look(shell: Shell, nodes: list[_Asked]) -> list[Difference]:
    """What differs at every one of a few looks: a cloud at work moves on between two of them."""
    found = shell.book.snapshot(lambda session: list(_book_alone(session, nodes)))
    pending = [node for node in nodes if node.up]
    left: dict[tuple[str, str, str | None], Difference] = {}
    for look in range(_LOOKS):
        answers = _ask_all(shell, {node.host for node in pending})
        seen = {
            (difference.node, difference.kind, difference.server): difference
            for node in pending
            for difference in _compare(shell, node, answers[node.host])
        }
        left = {key: seen[key] for key in seen if look == 0 or key in left}
        pending = [node for node in pending if any(node.name == name for name, _, _ in left)]
        if not pending:
            break
    return [*found, *left.values()]


def _book_alone(session: Session, nodes: list[_Asked]) -> Iterator[Difference]:
    """What the book itself says is wrong, and what waits for a worker that is down."""
    for torn in (*hosts.torn_claims(session), *consistency.lost_claims(session)):
        yield Difference("book", "torn-claim", torn)
    for node in nodes:
        row = None if node.up else hosts.node_by_name(session, node.name)
        for claim in hosts.node_view(session, row).claims if row else ():
            if claim.role == claims.LEFTOVER:
                yield Difference(
                    node.name, "leftover", "a leftover waits for its worker, which is down", claim.instance
                )


def _compare(shell: Shell, node: _Asked, answers: _Answers) -> Iterator[Difference]:
    if answers.trackers is None:
        yield Difference(node.name, "no-answer", f"its worker did not answer within {_PATIENCE:.0f} s")
        return
    tracker = next((view for view in answers.trackers if view.node == node.name), None)
    read = shell.book.snapshot(lambda session: _book_view(session, node.name))
    if tracker is None or read is None:
        yield Difference(node.name, "unknown-node", "its worker does not know it")
        return
    book, views = read
    if tracker.generation > book.generation:
        what = f"the book is at generation {book.generation}, and its tracker at {tracker.generation}"
        yield Difference(node.name, "mass", f"{what}: an older copy of it?")
        return
    yield from _compare_tracker(tracker, book)
    if answers.guests is None:
        yield Difference(node.name, "no-listing", "its worker does not say what guests it has")
        return
    guests = {guest.instance: guest for guest in answers.guests if guest.node == node.name}
    yield from _compare_guests(shell, book, views, guests)


def _compare_tracker(tracker: NodeView, book: NodeView) -> Iterator[Difference]:
    node = book.node
    if tracker.generation != book.generation:
        what = f"its tracker is at generation {tracker.generation}, the book at {book.generation}"
        yield Difference(node, "tracker", what)
        return
    mine = {claim.id: claim for claim in tracker.claims}
    theirs = {claim.id: claim for claim in book.claims}
    for claim_id in sorted(mine.keys() | theirs.keys()):
        if claim_id not in theirs:
            yield Difference(
                node,
                "tracker",
                f"its tracker holds claim {claim_id}, the book does not",
                mine[claim_id].instance,
            )
        elif claim_id not in mine:
            yield Difference(
                node,
                "tracker",
                f"the book holds claim {claim_id}, its tracker does not",
                theirs[claim_id].instance,
            )
        elif _amounts(mine[claim_id]) != _amounts(theirs[claim_id]):
            yield Difference(
                node,
                "tracker",
                f"claim {claim_id} is of another size in its tracker",
                mine[claim_id].instance,
            )


def _amounts(claim: ClaimView) -> tuple[object, ...]:
    return claim.instance, claim.memory_mb, claim.disk_gb, claim.shared_vcpus, claim.placement


def _compare_guests(
    shell: Shell, book: NodeView, views: Mapping[str, GuestView], guests: Mapping[str, Guest]
) -> Iterator[Difference]:
    """Judge as the worker's own audit does. What an operation is under way for is left to that."""
    strays = shell.book.read(
        lambda session: {
            instance: _stray_view(session, book.node, instance)
            for instance in guests
            if instance not in views
        }
    )
    idle = {instance: view for instance, view in {**views, **strays}.items() if view.open_operation is None}
    homes = [
        instance
        for instance, view in idle.items()
        if any(claim.role == claims.CURRENT for claim in view.claims)
    ]
    wrong = differences.mass(homes, guests, [instance for instance in strays if instance in idle])
    if wrong is not None:
        yield Difference(book.node, "mass", wrong)
        return
    for instance, view in sorted(idle.items()):
        decision = decide(view, guests.get(instance))
        if decision.action != "nothing":
            yield Difference(book.node, decision.kind, decision.why, instance)


def _book_view(session: Session, name: str) -> tuple[NodeView, dict[str, GuestView]] | None:
    """The claims of a node, and what should be there of each server that has one."""
    node = hosts.node_by_name(session, name)
    if node is None:
        return None
    views = workers.guests(session, node, forced_down=hosts.is_forced_down(session, node.host))
    return hosts.node_view(session, node), {view.instance: view for view in views}


def _stray_view(session: Session, name: str, instance: str) -> GuestView:
    node = hosts.node_by_name(session, name)
    found = workers.guests(session, node, only=instance) if node is not None else []
    return found[0] if found else GuestView(instance, name, None)


# --- healing -----------------------------------------------------------------------------------


def _healable(nodes: list[_Asked], found: list[Difference]) -> dict[str, list[str]]:
    """The nodes, by host, where something can be healed by a worker that is up, and nothing differs as a whole."""
    wrong = {difference.node for difference in found if difference.kind == "mass"}
    wanted = {difference.node for difference in found if difference.heals} - wrong
    by_host: dict[str, list[str]] = {}
    for node in nodes:
        if node.up and node.name in wanted:
            by_host.setdefault(node.host, []).append(node.name)
    return by_host


def _heal(shell: Shell, wanted: Mapping[str, list[str]]) -> list[Difference]:
    """Have the workers audit these nodes now; what they did."""
    questions: dict[tuple[str, str], dict[str, Any]] = {
        (host, "heal"): {"nodes": names} for host, names in wanted.items()
    }
    healed = []
    for answer in _ask(shell, questions, _HEALING).values():
        told = msgspec.convert(answer, list[Difference], strict=False)
        healed += [difference for difference in told if difference.did]
    return healed


# --- asking workers ----------------------------------------------------------------------------


def _ask_all(shell: Shell, asked: Iterable[str]) -> dict[str, _Answers]:
    """What the worker of each host says of its nodes, by its tracker and by its hypervisor."""
    names = sorted(asked)
    questions: dict[tuple[str, str], dict[str, Any]] = {
        (host, kind): {} for host in names for kind in ("tracker", "guests")
    }
    answers = _ask(shell, questions, _PATIENCE)
    return {
        host: _Answers(
            _as(answers.get((host, "tracker")), list[NodeView]),
            _as(answers.get((host, "guests")), list[Guest]),
        )
        for host in names
    }


def _as(answer: object, kind: type[T]) -> T | None:
    return None if answer is None else msgspec.convert(answer, kind, strict=False)


def _ask(
    shell: Shell, questions: Mapping[tuple[str, str], dict[str, Any]], patience: float
) -> dict[tuple[str, str], object]:
    """The answers, by host and kind, that came in time. ``questions`` have their arguments."""
    reports = {shell.runtime.new_id(): question for question in questions}
    if not reports:
        return {}
    shell.book.write(lambda session: _write(session, reports, questions))
    return {reports[report]: answer for report, answer in _wait(shell, list(reports), patience).items()}


def _write(
    session: Session,
    reports: Mapping[str, tuple[str, str]],
    questions: Mapping[tuple[str, str], dict[str, Any]],
) -> None:
    for report, (host, kind) in reports.items():
        arguments = questions[host, kind] or None
        session.execute(
            sa.insert(Report).values(id=report, kind=kind, host=host, arguments=arguments, asked_at=epoch())
        )


def _wait(shell: Shell, reports: list[str], patience: float) -> dict[str, object]:
    until = shell.runtime.monotonic() + patience
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
