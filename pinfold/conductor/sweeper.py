"""What every conductor does again and again: operations that nobody ends, the outbox, reports, late offloads.

Any number of conductors sweep side by side: each thing is taken up in a transaction that looks at it
again under its lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import sqlalchemy as sa
from oslo_log import log
from sqlalchemy import orm
from sqlalchemy.orm import Session

from pinfold.conductor.operations import PLANS
from pinfold.conductor.operations.base import Deed
from pinfold.conductor.runner import Runner, stand_for
from pinfold.conductor.settings import Settings
from pinfold.db import hosts, moves, operations, starts
from pinfold.db.models import Instance, Operation, Outbox, Report
from pinfold.db.session import Book
from pinfold.db.types import epoch
from pinfold.image.store import Store, delete_unfinished
from pinfold.metrics import ConductorMetrics
from pinfold.model import errors, states
from pinfold.model.work import Bell
from pinfold.rpcapi import wire
from pinfold.rpcapi.clients import ComputeClient
from pinfold.rpcapi.context import Context, leave_logs, stand_in_logs
from pinfold.rpcapi.messages import ReportRequest
from pinfold.runtime import Event, Runtime

LOG = log.getLogger(__name__)
_BATCH = 100
_REPORT_KEPT = 3600.0
_GATHERED = 0.3

# Whether there is anything to do: asked again and again, so by one statement and no transaction.
_DUE = sa.select(Outbox.id).where(Outbox.due_at <= epoch()).limit(1)
_LATE = (
    sa.select(Operation.id)
    .where(Operation.open_key >= "", sa.or_(Operation.lease_until < epoch(), Operation.deadline_at < epoch()))
    .order_by(Operation.lease_until)
    .limit(_BATCH)
)
_ASKED = (
    sa.select(Report.id)
    .where(sa.or_(Report.cast_at.is_(None), Report.cast_at < epoch() - _REPORT_KEPT))
    .limit(1)
)


class _Deed(msgspec.Struct, frozen=True):
    id: int
    kind: str
    subject: str
    tries: int


class Sweeper:
    """Two threads: one for the outbox, which others wake, and one for all else."""

    def __init__(
        self,
        book: Book,
        runner: Runner,
        compute: ComputeClient,
        images: Store,
        runtime: Runtime,
        settings: Settings,
        stop: Event,
        outbox_bell: Event,
        metrics: ConductorMetrics | None = None,
    ) -> None:
        self._book = book
        self._runner = runner
        self._compute = compute
        self._images = images
        self._runtime = runtime
        self._settings = settings
        self._stop = stop
        self._outbox_bell = outbox_bell
        self._metrics = metrics or ConductorMetrics()
        self._left: dict[str, dict[str, str]] = {}

    def run(self) -> None:
        """Sweep until told to stop."""
        while not self._stop.wait(self._settings.sweep_interval):
            for sweep in (self.operations, self.reports, self.offloads, self.reclaims, self.confirmations):
                self._guarded(sweep)

    def run_outbox(self) -> None:
        """Do what is in the outbox, at once when woken, until told to stop."""
        while not self._stop.is_set():
            if self._outbox_bell.wait(self._settings.sweep_interval):
                # others may follow, and nobody waits for what is done here
                self._stop.wait(_GATHERED)
            self._outbox_bell.clear()
            self._guarded(self.outbox)

    def _guarded(self, sweep: Callable[[], int]) -> None:
        """A sweep that fails is tried again at the next; the others go on."""
        name, result = sweep.__name__, "failed"
        try:
            self._metrics.swept.labels(name).inc(sweep())
            result = "done"
        except errors.Unavailable as error:
            LOG.warning("Cannot sweep now: %s", error)
        except Exception:
            LOG.exception("A sweep failed")
        self._metrics.sweeps.labels(name, result).inc()
        leave_logs()

    def operations(self) -> int:
        """Carry on, or unwind, the open operations whose lease or time has run out; how many there were.

        ::

            SELECT id FROM operations WHERE open_key >= '' AND (lease_until < now OR deadline_at < now)

        ``>= ''`` is as good as IS NOT NULL, for which SQLite would look at all operations there ever were.
        """
        due = self._book.rows(_LATE)
        for (operation_id,) in due:
            self._runner.ring(self._book.write(partial(self._resume, operation_id)))
        return len(due)

    def _resume(self, operation_id: str, session: Session) -> Bell:
        deed = self._runner.deed(session, operation_id)
        if deed is None or deed.operation.open_key is None:
            return Bell()
        if deed.operation.lease_until > deed.at and not deed.past_deadline:
            return Bell()
        stand_for(deed.operation)
        self._count(deed)
        LOG.info(
            "Sweeping operation %s (%s, step %s, attempt %s)",
            operation_id,
            deed.operation.kind,
            deed.operation.step,
            deed.operation.attempt,
        )
        self._outbox_bell.set()
        return PLANS[deed.operation.kind].resume(deed)

    def _count(self, deed: Deed) -> None:
        if deed.past_deadline:
            self._metrics.deadlines.labels(deed.operation.kind).inc()
        elif deed.operation.owner_incarnation is not None:
            # no incarnation: nobody has taken it up yet, so that there was no lease to lose
            self._metrics.lease_losses.labels(deed.operation.kind).inc()

    def outbox(self) -> int:
        """Do what is due outside the database; how many were done."""
        if not self._book.rows(_DUE):
            return 0
        done = [
            (deed.id, deed.subject) for deed in self._book.write(self._take_outbox) if self._perform(deed)
        ]
        if done:
            # SQLite gives a number again once its row is gone: this may be run twice, and the number be another's
            rows = sa.tuple_(Outbox.id, Outbox.subject).in_(done)
            self._book.write(lambda session: session.execute(sa.delete(Outbox).where(rows)))
        return len(done)

    @staticmethod
    def _take_outbox(session: Session) -> list[_Deed]:
        """Take what is due, putting off the next try of each: a conductor that dies here loses nothing."""
        rows = session.scalars(
            sa.select(Outbox)
            .where(Outbox.due_at <= epoch())
            .order_by(Outbox.id)
            .limit(_BATCH)
            .with_for_update(skip_locked=True)
        ).all()
        for row in rows:
            session.execute(
                sa.update(Outbox)
                .where(Outbox.id == row.id)
                .values(tries=Outbox.tries + 1, due_at=epoch() + min(300.0, 5.0 * 2 ** min(row.tries, 10)))
            )
        return [_Deed(row.id, row.kind, row.subject, row.tries) for row in rows]

    def _perform(self, deed: _Deed) -> bool:
        try:
            if deed.kind == operations.DELETE_IMAGE:
                self._images.delete(deed.subject)
            elif deed.kind == operations.DELETE_UNFINISHED_IMAGE:
                delete_unfinished(self._images, deed.subject)
            else:
                LOG.error("The outbox holds a deed of unknown kind %s", deed.kind)
                return False
        except errors.Forbidden as error:
            LOG.warning("Image %s is kept: the store refuses to delete it: %s", deed.subject, error)
        except errors.PinfoldError as error:
            LOG.warning("%s of %s failed (try %d): %s", deed.kind, deed.subject, deed.tries + 1, error)
            return False
        return True

    def reports(self) -> int:
        """Cast the questions to workers that nobody has cast yet, and drop old ones; how many were cast."""
        if not self._book.rows(_ASKED):
            return 0
        asked = self._book.write(self._take_reports)
        for host, request in asked:
            try:
                self._compute.report(host, request)
            except wire.Undeliverable as error:
                LOG.warning("Report %s was not delivered to %s: %s", request.request, host, error)
        return len(asked)

    @staticmethod
    def _take_reports(session: Session) -> list[tuple[str, ReportRequest]]:
        rows = session.scalars(
            sa.select(Report).where(Report.cast_at.is_(None)).limit(_BATCH).with_for_update(skip_locked=True)
        ).all()
        if rows:
            session.execute(
                sa.update(Report).where(Report.id.in_([row.id for row in rows])).values(cast_at=epoch())
            )
        session.execute(sa.delete(Report).where(Report.cast_at < epoch() - _REPORT_KEPT))
        return [(row.host, ReportRequest(row.id, row.kind, row.arguments or {})) for row in rows]

    def offloads(self) -> int:
        """Open the offload of servers that have been shelved long enough; how many there were."""
        after = self._settings.shelved_offload_time
        if after <= 0:
            return 0
        return self._open_each(starts.shelve_offload, self._due(states.SHELVED, Instance.shelved_at, after))

    def reclaims(self) -> int:
        """Delete for good the servers that have been soft-deleted long enough; how many there were."""
        after = self._settings.times.keep_deleted
        if after <= 0:
            return 0
        return self._open_each(
            starts.reclaim, self._due(states.SOFT_DELETED, Instance.soft_deleted_at, after)
        )

    def confirmations(self) -> int:
        """Confirm the moves that nobody has confirmed or reverted in time; how many there were."""
        after = self._settings.resize_confirm_window
        if after <= 0:
            return 0
        due = self._book.read(lambda session: moves.to_confirm(session, after, _BATCH))
        return self._open_each(moves.confirm, due)

    def _due(
        self, vm_state: str, since: orm.InstrumentedAttribute[float | None], after: float
    ) -> Sequence[Sequence[Any]]:
        """Servers that have been in ``vm_state`` for longer than ``after`` seconds: id, project and user."""
        return self._book.read(
            lambda session: session.execute(
                sa.select(Instance.id, Instance.project_id, Instance.user_id)
                .outerjoin(Operation, Operation.open_key == Instance.id)
                .where(
                    Instance.vm_state == vm_state,
                    since < epoch() - after,
                    Instance.deleted_at.is_(None),
                    Operation.id.is_(None),
                )
                .limit(_BATCH)
            ).all()
        )

    def _open_each(self, start: Callable[..., Bell], due: Sequence[Sequence[Any]]) -> int:
        left: dict[str, str] = {}
        for instance_id, project_id, user_id in due:
            why = self._open(start, instance_id, project_id, user_id)
            if why is None:
                continue
            left[instance_id] = why
            # said once, and not by every sweep until it can be done
            if self._left.get(start.__name__, {}).get(instance_id) != why:
                LOG.info("Server %s is left as it is for now: %s", instance_id, why)
        self._left[start.__name__] = left
        return len(due)

    def _open(
        self, start: Callable[..., Bell], instance_id: str, project_id: str, user_id: str
    ) -> str | None:
        """Open an operation that nobody has asked for, in the name of the server's owner; or say why it cannot be."""
        requester = operations.Requester(f"req-{self._runtime.new_id()}", project_id, user_id)
        operation_id = self._runtime.new_id()
        try:
            bell = self._book.write(
                lambda session: start(
                    session, instance_id, requester, self._settings.times, operation_id=operation_id
                )
            )
        except (errors.Conflict, errors.NotFound, errors.InvalidRequest) as error:
            return str(error)
        stand_in_logs(Context(requester.request_id, user_id, project_id), operation_id)
        self._outbox_bell.set()
        self._runner.ring(bell)
        return None

    def heartbeat(self, incarnation: str) -> None:
        """Note in the book that this conductor lives, until told to stop."""
        service_id = self._runtime.new_id()

        def beat() -> int:
            self._book.write(
                lambda session: hosts.seen(
                    session, "pinfold-conductor", self._settings.host, incarnation, new_id=service_id
                )
            )
            return 1

        self._guarded(beat)
        while not self._stop.wait(self._settings.heartbeat):
            self._guarded(beat)
