"""The RPC face of the conductor, thin: fences, and hands on to the operation's plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from oslo_db import exception as db_errors
from oslo_log import log
from sqlalchemy.orm import Session

from pinfold.conductor import rules
from pinfold.conductor.operations import PLANS
from pinfold.conductor.operations.base import Deed, finish_key
from pinfold.conductor.runner import Runner
from pinfold.conductor.settings import Settings
from pinfold.conductor.workers import Workers
from pinfold.db import claims as book_claims
from pinfold.db import hosts, operations
from pinfold.db.models import Node, Report
from pinfold.db.session import Book
from pinfold.db.types import epoch
from pinfold.metrics import ConductorMetrics
from pinfold.model import states
from pinfold.model.host import ClaimView, NodeView
from pinfold.model.rebuild import Sizes, both
from pinfold.model.work import Bell
from pinfold.rpcapi import messages
from pinfold.rpcapi.context import Context
from pinfold.rpcapi.messages import from_wire, to_wire
from pinfold.rpcapi.wire import exported
from pinfold.runtime import Event

LOG = log.getLogger(__name__)

T = TypeVar("T")
_REFUSED = (messages.Claimed("refused"), Bell())


class Manager:
    """Every method is idempotent by (operation, attempt, step): a call whose reply was lost is made again."""

    def __init__(
        self,
        book: Book,
        runner: Runner,
        workers: Workers,
        settings: Settings,
        outbox_bell: Event,
        metrics: ConductorMetrics | None = None,
    ) -> None:
        self._book = book
        self._runner = runner
        self._workers = workers
        self._settings = settings
        self._outbox_bell = outbox_bell
        self._metrics = metrics or ConductorMetrics()

    def _write(self, work: Callable[[Session], T]) -> T:
        """Write, and wake whoever does what the outbox then holds."""

        def and_tell(session: Session) -> tuple[T, bool]:
            return work(session), bool(session.info.get(operations.POSTED))

        result, posted = self._book.write(and_tell)
        if posted:
            self._outbox_bell.set()
        return result

    @exported
    def run(self, context: Context, operation: str) -> None:
        """Carry an operation on."""
        self._runner.run(operation)

    @exported
    def register(self, context: Context, record: Any) -> Any:
        """A worker starts."""
        return to_wire(self._workers.register(from_wire(record, messages.Register)))

    @exported
    def heartbeat(self, context: Context, record: Any) -> Any:
        """A worker lives. What it hears of its echo tells it whether messages reach it."""
        beat = from_wire(record, messages.Heartbeat)
        heard = self._workers.heartbeat(beat)
        if beat.deaf and not heard.superseded:
            self._metrics.deaf.labels(beat.host).inc()
            LOG.error(
                "The worker of host %s takes nothing from its queue: no message has come for %.0f s. It counts as "
                "down and ends, for its supervisor to start it again",
                *(beat.host, beat.unheard),
            )
        elif beat.echo is not None and not heard.superseded:
            heard = msgspec.structs.replace(heard, echoed=self._runner.echo(beat))
        return to_wire(heard)

    @exported
    def release(self, context: Context, record: Any) -> Any:
        """A worker has removed what was left over."""
        return to_wire(self._workers.release(from_wire(record, messages.Release)))

    @exported
    def node_view(self, context: Context, node: str, host: str) -> Any:
        """The claims of a node."""
        return to_wire(self._workers.node_view(node, host))

    @exported
    def guest(self, context: Context, record: Any) -> Any:
        """What the book says of one server."""
        return to_wire(self._workers.guest(from_wire(record, messages.GuestRequest)))

    @exported
    def guests(self, context: Context, record: Any) -> Any:
        """What the book says of all servers of a node."""
        return to_wire(self._workers.guests(from_wire(record, messages.GuestsRequest)))

    @exported
    def power_seen(self, context: Context, record: Any) -> None:
        """A worker has found a guest that does not do what the book says."""
        self._runner.ring(
            self._workers.power_seen(from_wire(record, messages.PowerSeen), self._settings.times)
        )

    @exported
    def answer(self, context: Context, record: Any) -> None:
        """A worker's answer to a report."""
        answer = from_wire(record, messages.Answer)
        self._book.write(
            lambda session: session.execute(
                sa.update(Report)
                .where(Report.id == answer.request, Report.host == answer.host)
                .values(answer=answer.payload, answered_at=epoch())
            )
        )

    @exported
    def begin(self, context: Context, record: Any) -> Any:
        """A worker is about to do a step: accepted only for the operation's present attempt."""
        begin = from_wire(record, messages.Begin)
        return to_wire(self._book.write(lambda session: self._begin(session, begin)))

    def _begin(self, session: Session, begin: messages.Begin) -> messages.Begun:
        deed = self._runner.deed(session, begin.operation)
        if deed is None or not _is_open(deed, begin.attempt):
            return messages.Begun(accepted=False, undo=deed is not None and _unrecorded_end(deed))
        operations.enter(deed.operation, begin.step, begin.host, deed.at, begin.waits)
        self._lease(deed, begin.host, begin.incarnation)
        offload = PLANS[deed.operation.kind].entered(deed, begin.step)
        return messages.Begun(accepted=True, offload=offload)

    def _lease(self, deed: Deed, host: str, incarnation: str) -> None:
        until = deed.at + self._settings.times.lease
        operations.lease(deed.session, deed.operation, host, incarnation, until)

    @exported
    def claim(self, context: Context, record: Any) -> Any:
        """A worker's claim: written if the operation is its own and the node is as it was planned on."""
        claim = from_wire(record, messages.Claim)
        try:
            claimed, bell = self._book.write(lambda session: self._claim(session, claim))
        except (book_claims.StaleGeneration, db_errors.DBDuplicateEntry):
            view = self._book.read(lambda session: _view(session, claim.node))
            self._metrics.claims.labels("stale").inc()
            return to_wire(messages.Claimed("stale", view=view))
        self._metrics.claims.labels(claimed.outcome).inc()
        self._runner.ring(bell)
        return to_wire(claimed)

    def _claim(self, session: Session, claim: messages.Claim) -> tuple[messages.Claimed, Bell]:
        deed = self._runner.deed(session, claim.operation)
        if deed is None or not _is_open(deed, claim.attempt) or deed.operation.left_leftover:
            return _REFUSED
        held = deed.claim(book_claims.INCOMING)
        node = hosts.node_by_name(session, claim.node, lock=True)
        if node is None or node.host != claim.host:
            return _REFUSED
        barred = rules.barred(session, deed.instance, node, self._settings.default_zone)
        if held is None and PLANS[deed.operation.kind].may_claim(deed):
            if barred is not None:
                return messages.Claimed("refused"), rules.misplaced(deed, node, barred)
            view = _incoming(deed, claim)
            generation = book_claims.take(session, node, claim.generation, view, deed.claims)
            self._claimed(deed, claim, node)
            return messages.Claimed("accepted", claim.claim, generation, claim.placement), Bell()
        if held is None or held[1].id != node.id or held[0].operation_id != deed.operation.id:
            return _REFUSED
        self._claimed(deed, claim, node)
        # of an earlier try: what else was taken since, the worker is to read
        return messages.Claimed("accepted", held[0].id, None, held[0].placement), Bell()

    def _claimed(self, deed: Deed, claim: messages.Claim, node: Node) -> None:
        operations.enter(deed.operation, "claim", claim.host, deed.at, claim.waits)
        if states.has_step(deed.operation.kind, "spawn"):
            # an accepted claim is the leave to spawn: what follows is the spawn's time
            operations.enter(deed.operation, "spawn", claim.host, deed.at)
        operations.set_arguments(deed.operation, target=[node.host, node.name])
        if "source" in deed.operation.arguments:
            operations.set_arguments(deed.operation, target_address=node.report.address)
        self._lease(deed, claim.host, claim.incarnation)

    @exported
    def refit(self, context: Context, record: Any) -> Any:
        """A worker has planned a rebuilt server's place anew: written if the node is as it was planned on."""
        refit = from_wire(record, messages.Refit)
        try:
            return to_wire(self._book.write(lambda session: self._refit(session, refit)))
        except (book_claims.StaleGeneration, db_errors.DBDuplicateEntry):
            view = self._book.read(lambda session: _view(session, refit.node))
            return to_wire(messages.Refitted("stale", view=view))

    def _refit(self, session: Session, refit: messages.Refit) -> messages.Refitted:
        deed = self._runner.deed(session, refit.operation)
        if deed is None or not _is_open(deed, refit.attempt) or operations.is_recorded(deed.operation):
            return messages.Refitted("refused")
        rebuild, held = operations.rebuild_of(deed.operation), deed.claim(book_claims.CURRENT)
        if rebuild is None or held is None or (held[0].id, held[1].name) != (refit.claim, refit.node):
            return messages.Refitted("refused")
        self._lease(deed, refit.host, refit.incarnation)
        if rebuild.after is not None:
            return messages.Refitted("accepted", rebuild.after.placement)
        before = book_claims.sizes_of(held[0])
        after = Sizes(refit.memory_mb, refit.disk_gb, refit.shared_vcpus, refit.placement)
        book_claims.change(session, *held, both(before, after), refit.generation)
        told = msgspec.structs.replace(rebuild, before=before, after=after)
        operations.save_rebuild(deed.operation, told)
        return messages.Refitted("accepted", after.placement)

    @exported
    def finish(self, context: Context, record: Any) -> Any:
        """A worker has done all its steps; answered "done" for ever once it was."""
        finish = from_wire(record, messages.Finish)
        finished, bell = self._write(lambda session: self._finish(session, finish))
        LOG.info(
            "Operation %s: the end of its steps at host %s is %s",
            *(finish.operation, finish.host, "recorded" if finished.done else "refused"),
        )
        self._runner.ring(bell)
        return to_wire(finished)

    def _finish(self, session: Session, finish: messages.Finish) -> tuple[messages.Finished, Bell]:
        deed = self._runner.deed(session, finish.operation)
        if deed is None:
            return messages.Finished(done=False), Bell()
        operation = deed.operation
        known = operation.finishes.get(finish_key(finish.attempt, finish.node))
        if known is not None:
            return from_wire(known, messages.Finished), Bell()
        if not _is_open(deed, finish.attempt):
            return messages.Finished(done=False, undo=_unrecorded_end(deed)), Bell()
        freed = PLANS[operation.kind].finish(deed, finish.node)
        return deed.answered(finish.node, finish.attempt, freed), freed.bell

    @exported
    def abort(self, context: Context, record: Any) -> Any:
        """A worker could not do a step, and has undone what it made."""
        abort = from_wire(record, messages.Abort)
        aborted, bell = self._write(lambda session: self._abort(session, abort))
        LOG.info(
            "Operation %s: %s has failed at host %s (%s): %s",
            *(abort.operation, abort.step, abort.host, abort.code, abort.message),
        )
        self._runner.ring(bell)
        return to_wire(aborted)

    def _abort(self, session: Session, abort: messages.Abort) -> tuple[messages.Aborted, Bell]:
        deed = self._runner.deed(session, abort.operation)
        if deed is None or not _is_open(deed, abort.attempt):
            return messages.Aborted(accepted=False), Bell()
        freed, bell = PLANS[deed.operation.kind].abort(deed, abort)
        return messages.Aborted(True, freed.claim, freed.generation), bell


def _is_open(deed: Deed, attempt: int) -> bool:
    return deed.operation.open_key is not None and deed.operation.attempt == attempt


def _unrecorded_end(deed: Deed) -> bool:
    """Whether the operation ended without what the worker made being recorded: then it is to be undone."""
    ended_badly = deed.operation.result in (operations.FAILED, operations.SUPERSEDED)
    return ended_badly and not operations.is_recorded(deed.operation)


def _incoming(deed: Deed, claim: messages.Claim) -> ClaimView:
    return ClaimView(
        id=claim.claim,
        instance=deed.instance.id,
        role=book_claims.INCOMING,
        memory_mb=claim.memory_mb,
        disk_gb=claim.disk_gb,
        shared_vcpus=claim.shared_vcpus,
        placement=claim.placement,
        operation=deed.operation.id,
    )


def _view(session: Session, name: str) -> NodeView | None:
    node: Node | None = hosts.node_by_name(session, name)
    return None if node is None else hosts.node_view(session, node)
