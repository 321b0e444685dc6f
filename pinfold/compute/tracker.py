"""The resource tracker: what is taken on each node, and claims.

It is a cache of the book, never a book: a claim is made by the conductor, if nothing was taken since the generation
that it was planned on, and a reply that shows the cache to be old brings the fresh view. One fair lock per node is
held for arithmetic and for the one claim call; two nodes never wait for each other.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from pinfold.model import errors, host
from pinfold.model.host import ClaimView, NodeReport, NodeUsage, NodeView, Place
from pinfold.model.numa import Placement, Refusal
from pinfold.model.request import Demand
from pinfold.rpcapi.messages import Claimed, Refitted
from pinfold.runtime import Runtime

LOG = logging.getLogger(__name__)

INCOMING = "incoming"
_PAUSE = 0.05


class NoFit(errors.PinfoldError):
    """The node has no room; ``refusals`` say for what."""

    code = "no-fit"

    def __init__(self, message: str, refusals: tuple[Refusal, ...]) -> None:
        super().__init__(message)
        self.refusals = refusals


class ClaimRefused(errors.PinfoldError):
    """The operation is not this worker's any more."""

    code = "claim-refused"


class Wanted(msgspec.Struct, frozen=True):
    """What to claim. ``claim`` is the id that a new claim will have, the same at each try."""

    claim: str
    instance: str
    operation: str
    demand: Demand


class Proposal(msgspec.Struct, frozen=True):
    """A claim as planned on ``generation``, after ``waited`` seconds for the node's lock."""

    generation: int
    view: ClaimView
    waited: float = 0.0


class Held(msgspec.Struct, frozen=True):
    """A claim that the book has."""

    claim: str
    placement: Placement | None = None


class _Node:
    """One node's part of the cache; ``lock`` is held by the caller of everything but ``load``.

    All changes up to ``generation`` are known, and all that took something up to ``planned_on``: what others freed
    meanwhile takes no room away. Replies come in any order: ``ahead`` has, by generation, what changes after a gap
    made of a claim (None where it is gone).
    """

    def __init__(self, runtime: Runtime, report: NodeReport) -> None:
        self.report = report
        self.lock = runtime.lock()
        self.generation = -1
        self.planned_on = -1
        self.ahead: dict[int, tuple[str, ClaimView | None]] = {}
        self.claims: dict[str, ClaimView] = {}
        self.usage: NodeUsage = host.usage_of(report, ())
        self.stale = True
        #: Claims that a view of the book no longer had: word of their release may still be on its way.
        self.seen_gone: deque[str] = deque(maxlen=1000)

    def load(self, view: NodeView) -> None:
        """Take the book's view, unless it is older than what is known. Raises AccountingError."""
        # Summed up out of the lock: with hundreds of claims it takes its time.
        usage = host.usage_of(self.report, view.claims)
        claims = {claim.id: claim for claim in view.claims}
        with self.lock:
            self._put(view.generation, claims, usage)

    def load_at_once(self, view: NodeView | None) -> None:
        """As ``load``, by who has the lock: whoever waits for it plans on this view, not on the old one."""
        if view is not None:
            claims = {claim.id: claim for claim in view.claims}
            self._put(view.generation, claims, host.usage_of(self.report, view.claims))

    def _put(self, generation: int, claims: dict[str, ClaimView], usage: NodeUsage) -> None:
        if generation < self.generation:
            return
        for step in sorted(self.ahead):
            if step > generation:
                usage = self._changed(claims, usage, *self.ahead[step])
        for claim in claims.keys() & set(self.seen_gone):
            self.seen_gone.remove(claim)
        self.seen_gone.extend(self.claims.keys() - claims.keys())
        self.usage, self.claims = usage, claims
        self.generation, self.stale = generation, False
        self._close_gap()

    def _changed(
        self, claims: dict[str, ClaimView], usage: NodeUsage, identity: str, now: ClaimView | None
    ) -> NodeUsage:
        """Bring an older view up to what is known of one claim."""
        before = claims.pop(identity, None)
        if before is not None:
            usage = host.release(self.report, usage, before)
        if now is None:
            return usage
        claims[identity] = now
        return host.add(self.report, usage, now)

    def step_to(self, generation: int | None, claim: str) -> None:
        """A change of ours to ``claim``, which is noted, led to ``generation``: before others, perhaps, whose replies
        are still to come."""
        if generation is None:
            self.stale = True
        elif generation > self.generation:
            self.ahead[generation] = (claim, self.claims.get(claim))
            self._close_gap()

    def _close_gap(self) -> None:
        while self.generation + 1 in self.ahead:
            self.generation += 1
        self.ahead = {step: known for step, known in self.ahead.items() if step > self.generation}
        self.planned_on = max(self.planned_on, self.generation)

    def add(self, claim: ClaimView) -> None:
        if claim.id in self.claims:
            return
        try:
            self.usage = host.add(self.report, self.usage, claim)
        except errors.AccountingError as error:
            LOG.warning("The view of node %s is old: %s", self.report.name, error)
            self.stale = True
            return
        self.claims[claim.id] = claim

    def drop(self, claim: ClaimView) -> None:
        """Raises AccountingError, having changed nothing."""
        self.usage = host.release(self.report, self.usage, claim)
        del self.claims[claim.id]


class ResourceTracker:
    """The nodes of one worker.

    ``refresh`` reads a node's view from the book; ``waited`` is told of each claim how long it waited for the lock of
    its node. ``not_held`` counts releases of what was not held: they change nothing.
    """

    def __init__(
        self,
        runtime: Runtime,
        reports: Iterable[NodeReport],
        refresh: Callable[[str], NodeView],
        waited: Callable[[str, float], None] = lambda node, seconds: None,
    ) -> None:
        self._runtime = runtime
        self._nodes = {report.name: _Node(runtime, report) for report in reports}
        self._refresh = refresh
        self._waited = waited
        self.not_held = 0

    def load(self, view: NodeView) -> None:
        """Take a node's view from the book. Raises AccountingError when its claims cannot all be true."""
        self._nodes[view.node].load(view)

    def refresh(self, name: str) -> NodeView:
        """Read a node's view from the book and take it."""
        view = self._refresh(name)
        self.load(view)
        return view

    def view(self, name: str) -> NodeView:
        """What the tracker believes of one node."""
        node = self._nodes[name]
        with node.lock:
            return NodeView(name, node.generation, tuple(node.claims[claim] for claim in sorted(node.claims)))

    def generation(self, name: str) -> int:
        """Up to which generation of the node all is known."""
        return self._nodes[name].generation

    def current_view(self, name: str) -> NodeView:
        """What the tracker believes of one node, brought up to date first if the book has moved on."""
        book = self._refresh(name)
        believed = self.view(name)
        if book.generation <= believed.generation:
            return believed
        self.load(book)
        return self.view(name)

    def usage(self, name: str) -> NodeUsage:
        """What is taken on a node."""
        node = self._nodes[name]
        with node.lock:
            return node.usage

    def claim(
        self, name: str, wanted: Wanted, call: Callable[[Proposal], Claimed], give_up_at: float
    ) -> Held:
        """Find room and claim it: plan, ask the book by ``call``, and plan again where the plan was old.

        A claim that the same operation has on the node already is adopted, with its placement. Raises NoFit,
        ClaimRefused, what ``call`` raises, and Unavailable when others were faster until ``give_up_at``.
        """
        return self._planned(name, lambda node, fresh: self._try(node, wanted, call, fresh), give_up_at)

    def refit(
        self, name: str, wanted: Wanted, call: Callable[[Proposal], Refitted], give_up_at: float
    ) -> Held:
        """Plan the claim of id ``wanted.claim`` anew, as if it held nothing, and have the book write that.

        What the book then has is read again before the next plan. Raises as ``claim``.
        """
        return self._planned(name, lambda node, fresh: _try_anew(node, wanted, call, fresh), give_up_at)

    def outdated(self, name: str) -> None:
        """The book has changed a claim: read it again before anything is planned."""
        node = self._nodes[name]
        with node.lock:
            node.stale = True

    def _planned(
        self, name: str, attempt: Callable[[_Node, bool], Held | NodeView | None], give_up_at: float
    ) -> Held:
        node = self._nodes[name]
        fresh = node.stale
        if fresh:
            self.refresh(name)
        while True:
            planned_on = node.planned_on
            outcome = attempt(node, fresh)
            if isinstance(outcome, Held):
                return outcome
            if outcome is None:
                self.refresh(name)
            fresh = True
            if self._runtime.monotonic() > give_up_at:
                raise errors.Unavailable(f"The claims of node {name} changed too fast to plan on.")
            if outcome is None or outcome.generation > planned_on:
                continue
            if outcome.generation < planned_on:
                # a book only goes on
                raise errors.Unavailable(
                    f"The database is at generation {outcome.generation} of node {name}, and was at {planned_on}: it "
                    "is an older copy, and nothing is placed there."
                )
            self._runtime.sleep(_PAUSE)

    def _try(
        self, node: _Node, wanted: Wanted, call: Callable[[Proposal], Claimed], fresh: bool
    ) -> Held | NodeView | None:
        """Plan and claim, under the node's lock. The claim; or the view to plan on instead, None if it is to be read.

        Raises NoFit when there is no room and what is known is ``fresh``, and ClaimRefused.
        """
        began = self._runtime.monotonic()
        with node.lock:
            waited = self._runtime.monotonic() - began
            self._waited(node.report.name, waited)
            proposal = _plan(node, wanted, waited)
            if proposal is None:
                if fresh:
                    raise _no_fit(node, wanted, node.usage)
                return None
            answer = call(proposal)
            if answer.outcome == "accepted":
                return _taken(node, proposal, answer)
            node.load_at_once(answer.view)
        if answer.outcome == "refused":
            raise ClaimRefused(f"Operation {wanted.operation} is no longer this worker's.")
        return answer.view

    def changed_role(self, name: str, claim: str, role: str, generation: int | None) -> None:
        """The book has given a claim another role."""
        node = self._nodes[name]
        with node.lock:
            known = node.claims.get(claim)
            if known is not None:
                node.claims[claim] = msgspec.structs.replace(known, role=role)
            node.step_to(generation, claim)

    def released(self, name: str | None, claim: str, generation: int | None) -> bool:
        """The book has freed a claim. False, counted and logged, when it was not held here: nothing changes."""
        node = self._nodes.get(name or "")
        if node is None:
            return self._was_not_held(f"node {name}, which is not one of this worker's", claim)
        with node.lock:
            known = node.claims.get(claim)
            if claim in node.seen_gone:
                node.seen_gone.remove(claim)
                node.step_to(generation, claim)
                return True
            if known is not None:
                try:
                    node.drop(known)
                except errors.AccountingError as error:
                    LOG.error("Claim %s on node %s cannot be released: %s", claim, name, error)
                    node.stale = True
                    known = None
            node.step_to(generation, claim)
        if known is None:
            return self._was_not_held(f"node {name}", claim)
        return True

    def _was_not_held(self, where: str, claim: str) -> bool:
        self.not_held += 1
        LOG.warning("Claim %s was released on %s, where it was not held; nothing changed.", claim, where)
        return False


def _try_anew(
    node: _Node, wanted: Wanted, call: Callable[[Proposal], Refitted], fresh: bool
) -> Held | NodeView | None:
    """As ``_try``, for a claim that is there."""
    with node.lock:
        own = node.claims.get(wanted.claim)
        if own is None and fresh:
            raise ClaimRefused(f"Node {node.report.name} has no claim {wanted.claim} any more.")
        if own is None:
            return None
        usage = host.release(node.report, node.usage, own)
        place = host.place(node.report, usage, wanted.demand)
        if place is None:
            if fresh:
                raise _no_fit(node, wanted, usage)
            return None
        answer = call(Proposal(node.generation, _view(wanted, own.role, place)))
        if answer.outcome == "accepted":
            node.stale = True
            return Held(wanted.claim, answer.placement)
        node.load_at_once(answer.view)
    if answer.outcome == "refused":
        raise ClaimRefused(f"Operation {wanted.operation} is no longer this worker's.")
    return answer.view


def _plan(node: _Node, wanted: Wanted, waited: float) -> Proposal | None:
    """A claim for what is wanted, or the one that the operation has already."""
    for known in node.claims.values():
        if known.operation == wanted.operation and known.role == INCOMING:
            return Proposal(node.planned_on, known, waited)
    place = host.place(node.report, node.usage, wanted.demand)
    return None if place is None else Proposal(node.planned_on, _view(wanted, INCOMING, place), waited)


def _view(wanted: Wanted, role: str, place: Place) -> ClaimView:
    demand = wanted.demand
    return ClaimView(
        id=wanted.claim,
        instance=wanted.instance,
        role=role,
        memory_mb=demand.memory_mb,
        disk_gb=demand.disk_gb,
        shared_vcpus=demand.shared_vcpus,
        placement=place.placement,
        operation=wanted.operation,
    )


def _taken(node: _Node, proposal: Proposal, answer: Claimed) -> Held:
    """Note the claim as the book has it: it may be that of an earlier try, whose plan was another."""
    held = Held(answer.claim or proposal.view.id, answer.placement)
    node.add(msgspec.structs.replace(proposal.view, id=held.claim, placement=held.placement))
    node.step_to(answer.generation, held.claim)
    if answer.generation is not None:
        # nobody else had taken anything since it was planned
        node.planned_on = max(node.planned_on, answer.generation)
    return held


def _no_fit(node: _Node, wanted: Wanted, usage: NodeUsage) -> NoFit:
    refusals = host.explain(node.report, usage, wanted.demand)
    return NoFit(f"Node {node.report.name} has no room for the server.", refusals)
