"""Carries out the steps that ``model.states`` declares for a kind, in order, and takes them back on failure.

Every step but those that claim for themselves is begun in the book first, so that a late or doubled message is
refused before it acts. Once ``finish`` has been sent, a guest is removed only on the answer "refused".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from pinfold.compute.calls import NoAnswer
from pinfold.compute.fence import Ended
from pinfold.compute.operations.attempt import Attempt, Failed, Refused, Tools
from pinfold.model import states
from pinfold.model.work import Work
from pinfold.rpcapi import messages
from pinfold.rpcapi.context import Context

LOG = logging.getLogger(__name__)


class Deed(msgspec.Struct, frozen=True):
    """How a step is done and taken back; both may be repeated. ``begins``: it is begun in the book first."""

    do: Callable[[Attempt], None]
    undo: Callable[[Attempt], None] | None = None
    begins: bool = True


class Plan(msgspec.Struct, frozen=True):
    """A kind of operation on the worker's side: a deed for each of its compute steps.

    ``power_state`` is what the server has once all are done. Of a kind with legs, a plan is about one ``leg``.
    ``remove`` takes away what a plan with a claim of its own has made, and says whether it is gone; ``becomes`` is
    the role of that claim after it.
    """

    kind: str
    deeds: Mapping[str, Deed]
    power_state: int
    leg: str = ""
    remove: Callable[[Attempt], bool] = Attempt.remove_guest
    becomes: str = "current"

    @property
    def steps(self) -> Sequence[states.Step]:
        """The steps that a worker does."""
        steps = states.KINDS[self.kind].steps
        return [step for step in steps if step.where == "compute" and step.leg == self.leg]

    @property
    def places(self) -> bool:
        """Whether it has a claim of its own, beside that of the server."""
        return states.KINDS[self.kind].places and self.leg in ("", states.CLAIM, states.RECEIVE)

    def from_step(self, recorded: str | None) -> Sequence[states.Step]:
        """The steps still to do; the recorded one is done again. A claim is always asked for again."""
        names = [step.name for step in self.steps]
        first = names.index(recorded) if recorded in names and not self.places else 0
        return self.steps[first:]

    def before(self, step: str) -> Sequence[states.Step]:
        """The steps before this one."""
        names = [step.name for step in self.steps]
        return self.steps[: names.index(step)]


def plan_key(kind: str, leg: str) -> str:
    """Under which plans are kept."""
    return f"{kind}/{leg}" if leg else kind


class Runner:
    """Runs attempts, one at a time for each instance (the caller sees to that)."""

    def __init__(self, tools: Tools, plans: Mapping[str, Plan]) -> None:
        self._tools = tools
        self._plans = plans

    def run(self, context: Context, work: Work, deadline: float, *, queued: float = 0.0) -> None:
        """Carry out ``work`` until it is finished, aborted, refused, or given up for the sweeper to find. It has
        waited ``queued`` seconds for its turn."""
        plan = self._plans[plan_key(work.kind, work.leg)]
        attempt = Attempt(self._tools, self._tools.conductor.with_context(context), work, deadline, queued)
        self._tools.metrics.queue_wait.labels(self._tools.settings.host, work.kind).observe(queued)
        LOG.info("%s begins", attempt)
        try:
            self._carry_out(attempt, plan)
        except (NoAnswer, Ended) as error:
            LOG.warning("%s is left to the sweeper: %s", attempt, error)

    def _carry_out(self, attempt: Attempt, plan: Plan) -> None:
        step = plan.steps[0].name
        try:
            for declared in plan.from_step(attempt.work.step):
                step = declared.name
                with self._measured(attempt, step):
                    goes_on = self._do(attempt, plan.deeds[step], step)
                if not goes_on:
                    break
        except Refused as refused:
            self._refused(attempt, plan, step, refused)
        except Failed as failed:
            self._failed(attempt, plan, step, failed)
        else:
            self._finish(attempt, plan)

    @contextmanager
    def _measured(self, attempt: Attempt, step: str) -> Iterator[None]:
        began, result = self._tools.runtime.monotonic(), "failed"
        try:
            yield
            result = "done"
        finally:
            labels = self._tools.settings.host, attempt.work.kind, step, result
            self._tools.metrics.steps.labels(*labels).observe(self._tools.runtime.monotonic() - began)

    def _do(self, attempt: Attempt, deed: Deed, step: str) -> bool:
        """Do one step; False when the operation goes no further than this."""
        offload = True
        if deed.begins:
            begun = attempt.begin(step)
            offload = begun.offload or step != "record"
        elif self._tools.jobs.is_refused(attempt.key):
            raise Refused("the conductor has given it to somebody else")
        LOG.debug("%s: %s", attempt, step)
        deed.do(attempt)
        return offload

    def _refused(self, attempt: Attempt, plan: Plan, step: str, refused: Refused) -> None:
        """Somebody else has the operation, or it has ended: take away what nobody will ask for."""
        LOG.info("%s: %s", attempt, refused)
        if plan.places:
            self._remove_refused(attempt, plan)
        elif refused.undo and attempt.accepted:
            begun = (states.KINDS[plan.kind].step(step),) if attempt.step == step else ()
            self._undo(attempt, plan, (*plan.before(step), *begun))

    def _remove_refused(self, attempt: Attempt, plan: Plan) -> None:
        """The claim was this attempt's, and the lane still is, so that the guest can be no other's."""
        if attempt.held is None:
            return
        if plan.remove(attempt):
            attempt.release(attempt.held.claim)

    def _failed(self, attempt: Attempt, plan: Plan, step: str, failed: Failed) -> None:
        LOG.warning("%s: %s failed: %s %s", attempt, step, failed.message, failed.details)
        begun = (*plan.before(step), states.KINDS[plan.kind].step(step))
        if plan.places:
            clean = self._clean_away(attempt, plan)
        else:
            clean = not any(declared.forward for declared in begun)
            if clean:
                self._undo(attempt, plan, begun)
            clean = clean or failed.gone
        self._abort(attempt, step, failed, clean)

    def _clean_away(self, attempt: Attempt, plan: Plan) -> bool:
        """Whether nothing of this operation is left. Without a claim of its own a guest may be somebody's, so it
        is only looked for."""
        if attempt.held is None and plan.leg != states.CLAIM:
            return not attempt.guest_is_listed()
        return plan.remove(attempt)

    def _undo(self, attempt: Attempt, plan: Plan, steps: Sequence[states.Step]) -> None:
        for declared in reversed(steps):
            undo = plan.deeds[declared.name].undo
            if undo is None:
                continue
            LOG.info("%s: %s", attempt, declared.undo)
            try:
                undo(attempt)
            except (Failed, NoAnswer) as error:
                LOG.warning("%s: %s failed: %s", attempt, declared.undo, error)

    def _abort(self, attempt: Attempt, step: str, failed: Failed, clean: bool) -> None:
        work, tools = attempt.work, self._tools
        record = messages.Abort(
            operation=work.operation,
            attempt=work.attempt,
            host=tools.settings.host,
            incarnation=tools.incarnation,
            node=work.node,
            step=step,
            code=failed.code,
            message=failed.message,
            details=failed.details,
            clean=clean,
            refusals=failed.refusals,
        )
        aborted = tools.calls.always(attempt.conductor.abort, record)
        if aborted.released is not None:
            tools.tracker.released(work.node, aborted.released, aborted.generation)
        elif attempt.held is None:
            return
        elif aborted.accepted:
            tools.tracker.changed_role(work.node, attempt.held.claim, "leftover", aborted.generation)
        elif clean:
            attempt.release(attempt.held.claim)

    def _finish(self, attempt: Attempt, plan: Plan) -> None:
        work, tools = attempt.work, self._tools
        record = messages.Finish(
            work.operation, work.attempt, tools.settings.host, tools.incarnation, work.node, plan.power_state
        )
        finished = tools.calls.always(attempt.conductor.finish, record)
        if not finished.done:
            self._refused_at_the_end(attempt, plan, finished)
            return
        LOG.info("%s is done", attempt)
        if finished.released is not None:
            tools.tracker.released(work.node, finished.released, finished.generation)
        elif attempt.held is not None and finished.generation is not None:
            tools.tracker.changed_role(work.node, attempt.held.claim, plan.becomes, finished.generation)
        elif finished.generation is not None:
            tools.tracker.outdated(work.node)

    def _refused_at_the_end(self, attempt: Attempt, plan: Plan, finished: messages.Finished) -> None:
        LOG.info("%s: its end was refused", attempt)
        if plan.places:
            self._remove_refused(attempt, plan)
        elif finished.undo and not any(step.forward for step in plan.steps):
            self._undo(attempt, plan, plan.steps)
