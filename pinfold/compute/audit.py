"""Book, tracker and hypervisor compared, and what follows from a difference.

Per server, inside its lane, with the book and the hypervisor read there:

=====================  =================  ====================================================================
claim here             guest here         what is done
=====================  =================  ====================================================================
none, or a leftover    yes                it is destroyed; then the leftover is released
leftover               no                 the leftover is released
incoming               any                nothing: its operation is carried on, or makes it a leftover
current                off, should run    at the worker's start it is started
current                other than the     the conductor is told, which stops it by an operation, or only notes it
                       book says          (``model.power``)
current                no                 reported only: there is nothing that could be done without its disk
one, and an older      any                the guest put aside by a move on this node is removed; then the leftover
leftover                                  is released
one, and a newer       any                the guest put aside takes its place again; then the leftover is released
leftover
=====================  =================  ====================================================================

With a leftover beside another claim, nothing is done while an operation of the server is open.

Nothing is started, stopped or told while an operation is open, or where the guest may run elsewhere
(``resume.is_allowed``). A guest that is off when its worker starts was stopped with its host; later, its user has
shut it down.

A guest that the book has never heard of is reported only. Where a hypervisor and the book differ as a whole
(``model.differences.mass``), nothing is changed at all and the log has an error: then the database or the hypervisor
is more likely the wrong one than everything is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Literal

import msgspec

from pinfold.compute import resume
from pinfold.compute.calls import NoAnswer
from pinfold.compute.fence import Ended
from pinfold.compute.operations.attempt import Tools
from pinfold.model import differences, errors, power, states
from pinfold.model.differences import Difference
from pinfold.model.host import ClaimView, NodeView
from pinfold.rpcapi import messages
from pinfold.runtime import Event
from pinfold.virt.driver import Guest

LOG = logging.getLogger(__name__)

_HOLDING = ("incoming", "current", "outgoing")
_SECONDS = 60.0

Action = Literal["nothing", "destroy", "release", "power_on", "tell", "report", "keep_new", "keep_old"]


class Decision(msgspec.Struct, frozen=True):
    """What to do about one server on one node, and why; ``kind`` is one of ``model.differences``."""

    action: Action
    why: str = ""
    kind: str = ""


_NOTHING = Decision("nothing")
_DID = {
    "destroy": "its guest was removed, and with it any leftover",
    "release": "its leftover was released",
    "power_on": "its guest was started",
    "tell": "a conductor was told, which follows it",
    "keep_new": "the guest put aside was removed, and its leftover released",
    "keep_old": "the guest put aside took its place again, and its leftover was released",
    "report": "",
}


def decide(view: messages.GuestView, guest: Guest | None, *, starting: bool = False) -> Decision:
    """What follows from what the book says and what the hypervisor shows; ``starting``: at the worker's start."""
    leftovers = [claim for claim in view.claims if claim.role == resume.LEFTOVER]
    if any(claim.role in _HOLDING for claim in view.claims):
        return _beside_leftovers(view) if leftovers else _with_claim(view, guest, starting=starting)
    if guest is None:
        return Decision("release", "no guest is behind its leftover", "leftover") if leftovers else _NOTHING
    if view.vm_state is None:
        return Decision(
            "report", "the hypervisor has a guest of a server that the book does not know", "unknown-guest"
        )
    if leftovers:
        return Decision("destroy", "its guest is a leftover", "leftover")
    return Decision("destroy", "its guest has no claim here", "stray-guest")


def _beside_leftovers(view: messages.GuestView) -> Decision:
    """A move on one node that its worker could not end: which of its two guests stays is which claim does."""
    if view.open_operation is not None:
        return _NOTHING
    # oldest first
    if view.claims[0].role == resume.LEFTOVER:
        return Decision("keep_new", "its old place here is a leftover", "leftover")
    return Decision("keep_old", "its new place here is a leftover", "leftover")


def _with_claim(view: messages.GuestView, guest: Guest | None, *, starting: bool) -> Decision:
    if all(claim.role == "incoming" for claim in view.claims):
        return _NOTHING
    if guest is None:
        return Decision("report", "it has a claim, but the hypervisor has no guest of it", "missing-guest")
    if view.vm_state is None or not (resume.is_allowed(view) or _is_resized_here(view)):
        return _NOTHING
    if starting and view.vm_state == states.ACTIVE and guest.power_state in power.OFF:
        return Decision("power_on", "its guest is off and should run", "power-state")
    follow = power.follow(view.vm_state, guest.power_state)
    if follow == "stop" or view.power_state not in (None, guest.power_state):
        return Decision(
            "tell",
            f"it is {view.vm_state}, and its guest is in power state {guest.power_state}",
            "power-state",
        )
    if follow == "report":
        return Decision(
            "report",
            f"it is {view.vm_state}, but its guest is in power state {guest.power_state}",
            "power-state",
        )
    return _NOTHING


def _is_resized_here(view: messages.GuestView) -> bool:
    """Its guest is here for good or not, as its owner decides by what they see of it."""
    roles = [claim.role for claim in view.claims]
    return view.vm_state == states.RESIZED and view.open_operation is None and roles == [resume.CURRENT]


class Audit:
    """``differences`` are those of each node's last look, with what was done about each."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self.differences: dict[str, list[Difference]] = {}

    def look(self, node: str, *, starting: bool = False) -> list[Event]:
        """Compare one node, and settle what differs where nothing is under way; each event is set once its
        server is settled. ``starting``: this is the worker's first look. Raises NoAnswer, DriverError."""
        found: list[Difference] = []
        self.differences[node] = found
        tools = self._tools
        known = tools.tracker.view(node).generation
        view = tools.calls.always(lambda name: tools.conductor.node_view(name, tools.settings.host), node)
        guests = {guest.instance: guest for guest in tools.driver.list(node)}
        wrong: str | None
        if view.generation < known:
            # A book only goes on. One that was restored knows nothing of guests that came later.
            wrong = f"the book is at generation {view.generation}, and was at {known}: an older copy of it?"
        else:
            self._compare_tracker(view, found)
            wrong = self._differ_as_a_whole(view, guests)
        if wrong is not None:
            self._report(found, Difference(node, "mass", f"{wrong}: nothing is changed"), logging.ERROR)
            return []
        settled = []
        for instance in _suspects(view, guests, self._told(node), starting=starting):
            settle = partial(self._settle, node, instance, found, starting=starting)
            done = tools.jobs.try_submit(instance, settle, seconds=_SECONDS)
            if done is not None:
                settled.append(done)
        return settled

    def _compare_tracker(self, view: NodeView, found: list[Difference]) -> None:
        """Replace what the tracker believes by the book's view; at the same generation they must be equal."""
        tracker = self._tools.tracker
        believed = tracker.view(view.node)
        if believed.generation == view.generation and _what(believed) != _what(view):
            what = f"the tracker differs from the book at generation {view.generation}"
            self._report(found, Difference(view.node, "tracker", what, did="it was loaded anew"))
        tracker.load(view)

    def _differ_as_a_whole(self, view: NodeView, guests: Mapping[str, Guest]) -> str | None:
        is_busy = self._tools.jobs.is_busy
        homes = {
            claim.instance
            for claim in view.claims
            if claim.role == resume.CURRENT and not is_busy(claim.instance)
        }
        known = {claim.instance for claim in view.claims}
        strays = [instance for instance in guests if instance not in known and not is_busy(instance)]
        return differences.mass(homes, guests, strays)

    def _told(self, node: str) -> dict[str, messages.GuestView]:
        """What the book says of each server of the node; nothing where the conductors are too old to be asked."""
        tools = self._tools
        record = messages.GuestsRequest(tools.settings.host, tools.incarnation, node)
        try:
            guests = tools.calls.until(
                tools.runtime.monotonic() + _SECONDS, tools.conductor.guests, record
            ).guests
        except (NoAnswer, errors.Conflict) as error:
            LOG.warning("What guests of node %s should do is not known: %s", node, error)
            return {}
        return {view.instance: view for view in guests}

    def _settle(self, node: str, instance: str, found: list[Difference], *, starting: bool) -> None:
        """Look again, inside the server's lane, and act on what is seen there."""
        tools = self._tools
        difference: Difference | None = None
        record = messages.GuestRequest(tools.settings.host, tools.incarnation, node, instance)
        try:
            view = tools.calls.until(tools.runtime.monotonic() + _SECONDS, tools.conductor.guest, record)
            guest = next((guest for guest in tools.driver.list(node) if guest.instance == instance), None)
            decision = decide(view, guest, starting=starting)
            if decision.action == "nothing":
                return
            difference = Difference(node, decision.kind, decision.why, instance)
            LOG.info("Audit of node %s: server %s: %s: %s", node, instance, decision.why, decision.action)
            tools.fence.wait(tools.runtime.monotonic() + _SECONDS)
            self._act(decision, view, guest)
            difference = msgspec.structs.replace(difference, did=_DID[decision.action])
        except (NoAnswer, Ended, errors.PinfoldError) as error:
            LOG.warning("Server %s on node %s is left to the next audit: %s", instance, node, error)
        if difference is not None:
            self._report(found, difference)

    def _act(self, decision: Decision, view: messages.GuestView, guest: Guest | None) -> None:
        driver = self._tools.driver
        if decision.action == "power_on":
            driver.power_on(view.node, view.instance)
        elif decision.action == "tell" and guest is not None:
            self._tell(view, guest)
        elif decision.action != "report":
            if decision.action == "destroy":
                driver.destroy(view.node, view.instance)
            elif decision.action == "keep_new":
                driver.confirm_migration(view.node, view.instance, same_node=True)
            elif decision.action == "keep_old":
                driver.revert_migration(view.node, view.instance)
            for claim in view.claims:
                if claim.role == resume.LEFTOVER:
                    self._release(view.node, claim)

    def _tell(self, view: messages.GuestView, guest: Guest) -> None:
        tools = self._tools
        seen = messages.PowerSeen(
            tools.settings.host,
            tools.incarnation,
            view.node,
            view.instance,
            view.vm_state or "",
            guest.power_state,
        )
        tools.calls.until(tools.runtime.monotonic() + _SECONDS, tools.conductor.power_seen, seen)

    def _release(self, node: str, claim: ClaimView) -> None:
        tools = self._tools
        record = messages.Release(tools.settings.host, tools.incarnation, node, claim.id)
        released = tools.calls.always(tools.conductor.release, record)
        if released.released:
            tools.tracker.released(node, claim.id, released.generation)

    def _report(self, found: list[Difference], difference: Difference, level: int = logging.WARNING) -> None:
        LOG.log(level, "Audit of node %s: %s", difference.node, difference)
        labels = self._tools.settings.host, difference.node, difference.kind
        self._tools.metrics.differences.labels(*labels).inc()
        found.append(difference)


def _suspects(
    view: NodeView,
    guests: Mapping[str, Guest],
    told: Mapping[str, messages.GuestView],
    *,
    starting: bool,
) -> list[str]:
    """Servers that may differ, by a look from outside their lanes."""
    roles: dict[str, set[str]] = {}
    for claim in view.claims:
        roles.setdefault(claim.instance, set()).add(claim.role)
    suspects = []
    for instance in sorted(roles.keys() | guests.keys()):
        held, guest = roles.get(instance, set()), guests.get(instance)
        missing = guest is None and bool(held - {"incoming"})
        stray = guest is not None and not held & set(_HOLDING)
        odd = instance in told and decide(told[instance], guest, starting=starting) != _NOTHING
        if missing or stray or odd or resume.LEFTOVER in held:
            suspects.append(instance)
    return suspects


def _what(view: NodeView) -> dict[str, ClaimView]:
    """A view's claims by id, roles left out: the book may change those without asking the worker."""
    return {claim.id: msgspec.structs.replace(claim, role="") for claim in view.claims}
