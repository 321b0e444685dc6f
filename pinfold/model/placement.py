"""A node that a server may go to, what keeps it from there, and the sentence that says why none is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from pinfold.model import groups
from pinfold.model import host as hosts
from pinfold.model.groups import GroupRule
from pinfold.model.host import NodeReport, NodeUsage
from pinfold.model.numa import Refusal
from pinfold.model.request import Demand

DOWN, DISABLED, NOT_CHOSEN, FAILED_BEFORE = "down", "disabled", "not-chosen", "failed-before"
OTHER_ZONE, NOT_THE_SAME, NOT_DIFFERENT = "other-zone", "not-same-host", "not-different-host"
ITS_OWN = "its-own-host"

_WORDS = {
    DOWN: "is down",
    DISABLED: "is disabled",
    NOT_CHOSEN: "is not the host that was asked for",
    FAILED_BEFORE: "could not start it",
    ITS_OWN: "is where it is now",
    OTHER_ZONE: "is not in its availability zone",
    NOT_THE_SAME: "has none of the servers that it is to be with",
    NOT_DIFFERENT: "has servers that it is to be away from",
    groups.AFFINITY: "has none of its server group",
    groups.ANTI_AFFINITY: "has as many of its server group as it may have",
    "memory_mb": "has too little free memory",
    "disk_gb": "has too little free disk",
    "shared_vcpus": "has too few free shared CPUs",
    "cells": "has too few NUMA cells",
    "cells-at-once": "has no place for all cells at once",
    "dedicated-cpus": "has too few dedicated CPUs in a cell",
    "free-dedicated-cpus": "has too few free dedicated CPUs in a cell",
    "dedicated-vcpus": "has no CPU for emulator threads beside them",
    "whole-free-cores": "has too few whole free cores in a cell",
    "sibling-threads": "has too few free sibling threads in a cell",
    "shared-cpus": "has too few shared CPUs in a cell",
    "shared-cpus-ratio": "has too few free shared CPUs in a cell",
    "memory": "has too little free memory in a cell",
    "memory-ratio": "has too little free memory in a cell",
    "pages": "has too few free pages of the size in a cell",
    "page-multiple": "has only page sizes that do not divide the memory",
}
_PLURAL = {"is": "are", "has": "have", "could": "could"}


class Candidate(msgspec.Struct, frozen=True):
    """A node as a scheduler sees it. ``state`` is None, or why it takes nothing (DOWN, DISABLED). ``zone`` is its
    host's availability zone."""

    node: str
    host: str
    report: NodeReport
    usage: NodeUsage
    state: str | None = None
    zone: str = ""


class Wish(msgspec.Struct, frozen=True):
    """What one placement asks beside its demand: a ``host`` or ``node``; nodes that ``failed`` are passed over.

    ``zone`` is the availability zone that the server is pinned to, ``group`` the rule of its server group. It is to
    be on one of the hosts ``same``, unless that is None, and on none of ``different``. ``leaves`` are the nodes
    that it is to be moved off, if any.
    """

    host: str | None = None
    node: str | None = None
    failed: tuple[str, ...] = ()
    zone: str | None = None
    same: frozenset[str] | None = None
    different: frozenset[str] = frozenset()
    group: GroupRule | None = None
    leaves: frozenset[str] = frozenset()


class HostRefusal(msgspec.Struct, frozen=True, gc=False):
    """Why a node was refused; ``reasons`` per cell."""

    host: str
    node: str
    reasons: tuple[Refusal, ...]


def barred(candidate: Candidate, wish: Wish) -> str | None:
    """What keeps the node from being considered at all, if anything."""
    if candidate.state is not None:
        return candidate.state
    if (wish.host or candidate.host) != candidate.host or (wish.node or candidate.node) != candidate.node:
        return NOT_CHOSEN
    if candidate.node in wish.leaves:
        return ITS_OWN
    if candidate.node in wish.failed:
        return FAILED_BEFORE
    if wish.zone not in (None, candidate.zone):
        return OTHER_ZONE
    if wish.same is not None and candidate.host not in wish.same:
        return NOT_THE_SAME
    if candidate.host in wish.different:
        return NOT_DIFFERENT
    return wish.group.barred(candidate.host) if wish.group else None


def explain(candidates: Iterable[Candidate], demand: Demand, wish: Wish) -> tuple[HostRefusal, ...]:
    """Why each node was refused, per cell; nodes that fit are left out."""
    found = []
    for candidate in candidates:
        bar = barred(candidate, wish)
        reasons = (
            (Refusal(None, bar, 0, 0),) if bar else hosts.explain(candidate.report, candidate.usage, demand)
        )
        if reasons:
            found.append(HostRefusal(candidate.host, candidate.node, reasons))
    return tuple(found)


def sentence(refusals: Collection[HostRefusal]) -> str:
    """How many hosts were refused for what, in one sentence for the user."""
    if not refusals:
        return "No valid host was found: there are no hosts."
    counts = Counter(_main_reason(refusal) for refusal in refusals)
    parts = [_words(constraint, count) for constraint, count in sorted(counts.items(), key=lambda kv: -kv[1])]
    total = len(refusals)
    return f"No valid host was found: of {total} host{'s' if total > 1 else ''}, {', '.join(parts)}."


def _main_reason(refusal: HostRefusal) -> str:
    """The host's own reason if it has one, else that of the cell that came nearest."""
    for reason in refusal.reasons:
        if reason.cell is None:
            return reason.constraint
    return min(refusal.reasons, key=lambda reason: reason.asked - reason.free).constraint


def _words(constraint: str, count: int) -> str:
    words = _WORDS.get(constraint, f"has too little of {constraint.replace('_', ' ').replace('-', ' ')}")
    verb, rest = words.split(" ", 1)
    return f"{count} {verb if count == 1 else _PLURAL[verb]} {rest}"
