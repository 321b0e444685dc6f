"""Runs operations: finds a place for those that need one, casts, and rings after each commit."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa
from oslo_log import log
from sqlalchemy.orm import Session

from pinfold.conductor.operations import PLANS
from pinfold.conductor.operations.base import Deed
from pinfold.conductor.scheduler import Proposal, Scheduler
from pinfold.conductor.settings import Settings
from pinfold.conductor.wishes import wish_for
from pinfold.db import claims as book_claims
from pinfold.db import operations, quick
from pinfold.db.models import Instance, Operation
from pinfold.db.operations import Fault
from pinfold.db.session import Book
from pinfold.image.store import ImageNotFound, Store
from pinfold.metrics import ConductorMetrics
from pinfold.model import errors, placement, states
from pinfold.model.work import Bell
from pinfold.rpcapi import wire
from pinfold.rpcapi.clients import ComputeClient
from pinfold.rpcapi.context import Context, stand_in_logs, standing
from pinfold.rpcapi.messages import Abort, Echo, Heartbeat

LOG = log.getLogger(__name__)
# The operation names so many of the hosts that refused; its sentence counts all.
_NAMED = 500


_OPEN = (
    sa.select(Operation, Instance)
    .join(Instance, Instance.id == Operation.instance_id)
    .where(Operation.id == sa.bindparam("id", type_=sa.String()), Operation.open_key.is_not(None))
)


def stand_for(operation: Operation) -> None:
    """From here on, log lines name the request that asked for the operation."""
    stand_in_logs(
        Context(operation.request_id, operation.user_id, operation.project_id), operation=operation.id
    )


class Runner:
    """Carries operations on, as far as a conductor can."""

    def __init__(
        self,
        book: Book,
        compute: ComputeClient,
        images: Store,
        scheduler: Scheduler,
        settings: Settings,
        metrics: ConductorMetrics | None = None,
    ) -> None:
        self._book = book
        self._compute = compute
        self._images = images
        self._scheduler = scheduler
        self._settings = settings
        self._metrics = metrics or ConductorMetrics()

    def ring(self, bell: Bell) -> None:
        """Send what a transaction that has committed asks for; what does not get through is swept."""
        for work in bell.work:
            # the request that the operation was asked for in, or at least the operation
            context = standing() or Context(request_id=f"op-{work.operation}")
            LOG.info(
                "Operation %s (%s, attempt %d) of server %s: to host %s",
                *(work.operation, work.kind, work.attempt, work.instance, work.host),
            )
            try:
                self._compute.with_context(context).perform(work.host, work)
            except wire.Undeliverable as error:
                LOG.warning("Operation %s was not delivered to %s: %s", work.operation, work.host, error)
        for operation in bell.run:
            self.run(operation)

    def echo(self, beat: Heartbeat) -> bool:
        """Send a worker its echo, the way that its work goes; False if that cannot be tried."""
        assert beat.echo is not None
        try:
            self._compute.echo(beat.host, Echo(beat.incarnation, beat.echo))
        except wire.NobodyListens as error:
            LOG.warning("The worker of host %s cannot be reached: %s", beat.host, error)
        except (wire.Undeliverable, errors.Conflict) as error:
            LOG.debug("No echo for host %s: %s", beat.host, error)
            return False
        return True

    def run(self, operation_id: str) -> None:
        """Find a place for the operation and cast to its worker; safe to call at any time, by any number."""
        seen = self._book.read(lambda session: self._look(session, operation_id))
        if seen is None:
            return
        operation, instance = seen
        stand_for(operation)
        if operation.kind == "unshelve" and not self._has_image(operation, instance):
            return
        with self._metrics.placements.time():
            proposal = self._book.read(
                lambda session: self._scheduler.choose(
                    session,
                    operations.demand_of(operation, instance),
                    wish_for(
                        session, operation, instance, same_host=self._settings.allow_resize_to_same_host
                    ),
                    self._settings.max_attempts,
                    anew=bool(operation.attempt or operation.refusals),
                )
            )
        self.ring(
            self._book.write(lambda session: self._decide(session, operation_id, operation.attempt, proposal))
        )

    @staticmethod
    def _look(session: Session, operation_id: str) -> tuple[Operation, Instance] | None:
        row = quick.first(session, _OPEN, id=operation_id)
        if row is None or not states.KINDS[row[0].kind].places:
            return None
        return row[0], row[1]

    def _has_image(self, operation: Operation, instance: Instance) -> bool:
        """Look for the image before any host is troubled; without it the operation ends here."""
        image = instance.shelved_image
        try:
            if image is None:
                raise ImageNotFound("The server has no shelved image.")
            self._images.get(image)
        except ImageNotFound:
            message = f"The server cannot be unshelved: its image {image} is gone."
            self._book.write(lambda session: self._image_gone(session, operation.id, message))
            return False
        return True

    def _image_gone(self, session: Session, operation_id: str, message: str) -> None:
        deed = self.deed(session, operation_id)
        if deed is None or deed.operation.open_key is None or book_claims.holding(deed.claims):
            return
        abort = Abort(operation_id, deed.operation.attempt, "", "", "", "schedule", "image-gone", message)
        PLANS[deed.operation.kind].abort(deed, abort)

    def _decide(self, session: Session, operation_id: str, attempt: int, proposal: Proposal) -> Bell:
        """Write the choice, if nobody has carried the operation on since it was looked at."""
        deed = self.deed(session, operation_id)
        if deed is None or deed.operation.open_key is None or deed.operation.attempt != attempt:
            return Bell()
        if attempt and deed.claim(book_claims.INCOMING) is not None:
            # a worker that it was cast to before has claimed meanwhile
            return Bell()
        operations.enter(deed.operation, "schedule", None, deed.at)
        if not proposal.places:
            LOG.info("Operation %s (%s): no node has a place", operation_id, deed.operation.kind)
            deed.operation.refusals = [msgspec.to_builtins(refusal) for refusal in proposal.refusals[:_NAMED]]
            last = f" The last error was: {deed.operation.error}" if deed.operation.error else ""
            deed.close(states.FAILED, Fault(placement.sentence(proposal.refusals) + last))
            return Bell()
        deed.operation.targets = [place.name for place in proposal.places]
        return deed.cast(proposal.places[0], None)

    def deed(self, session: Session, operation_id: str) -> Deed | None:
        """The operation and its instance, locked in this order; None if there is no such operation."""
        found = operations.locked_with_instance(session, operation_id)
        return None if found is None else Deed(session, *found, self._settings)
