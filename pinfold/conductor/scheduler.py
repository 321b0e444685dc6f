"""The scheduler: a view of all nodes, kept up by what changed, and a choice among them.

The choice is a proposal: the worker fits again with the same function, and the book has the last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db import hosts
from pinfold.db.aggregates import zones
from pinfold.db.models import Base, Claim
from pinfold.model import host, placement
from pinfold.model.host import NodeReport, NodeUsage
from pinfold.model.placement import Candidate, HostRefusal, Wish
from pinfold.model.request import Demand
from pinfold.runtime import Runtime

_nodes, _services = (Base.metadata.tables[name] for name in ("nodes", "services"))
_NODES = (
    sa.select(
        _nodes.c.id,
        _nodes.c.name,
        _nodes.c.host,
        _nodes.c.generation,
        _nodes.c.updated_at,
        hosts.is_up(sa.bindparam("service_down", type_=sa.Double())).label("up"),
        _services.c.disabled,
        zones.c.zone,
    )
    .select_from(
        _nodes.outerjoin(
            _services, sa.and_(_services.c.binary == hosts.COMPUTE, _services.c.host == _nodes.c.host)
        ).outerjoin(zones, zones.c.host == _nodes.c.host)
    )
    .order_by(_nodes.c.id)
)


class _Known(msgspec.Struct, frozen=True):
    generation: int
    updated_at: float
    report: NodeReport
    usage: NodeUsage


def _is_known(known: _Known | None, row: sa.Row[Any]) -> bool:
    return known is not None and (known.generation, known.updated_at) == (row.generation, row.updated_at)


def _state(row: sa.Row[Any]) -> str | None:
    if not row.up:
        return placement.DOWN
    return placement.DISABLED if row.disabled else None


class Place(msgspec.Struct, frozen=True):
    """A node, by name, and its host."""

    host: str
    name: str


class Proposal(msgspec.Struct, frozen=True):
    """Where a server may go, best first; or, where it may go nowhere, why."""

    places: tuple[Place, ...] = ()
    refusals: tuple[HostRefusal, ...] = ()


class Scheduler:
    """Proposes nodes. Thread-safe: what it knows is replaced whole, never changed in place."""

    def __init__(self, runtime: Runtime, service_down: float, default_zone: str) -> None:
        self._runtime = runtime
        self._service_down = service_down
        self._default_zone = default_zone
        self._known: dict[str, _Known] = {}

    def candidates(self, session: Session) -> list[Candidate]:
        """All nodes as they stand in the book; only those whose generation moved are read again.

        ::

            SELECT nodes.id, name, host, generation, updated_at, up, disabled, zone FROM nodes
            LEFT JOIN services ON host LEFT JOIN (<zones>) ON host
            SELECT id, report FROM nodes WHERE id IN (:reported anew)
            SELECT * FROM claims WHERE node_id IN (:moved)
        """
        rows = session.execute(_NODES, {"service_down": self._service_down}).all()
        known = self._known
        moved = [row for row in rows if not _is_known(known.get(row.name), row)]
        if moved:
            known = {**known, **self._read(session, moved)}
            self._known = known
        return [
            Candidate(
                row.name,
                row.host,
                known[row.name].report,
                known[row.name].usage,
                _state(row),
                row.zone or self._default_zone,
            )
            for row in rows
            if row.name in known
        ]

    def _read(self, session: Session, moved: Sequence[sa.Row[Any]]) -> dict[str, _Known]:
        """What the nodes hold now; a report only where it is not the one that is known."""
        known = self._known
        anew = [row.id for row in moved if getattr(known.get(row.name), "updated_at", None) != row.updated_at]
        reports: dict[int, NodeReport] = {}
        if anew:
            found = session.execute(sa.select(_nodes.c.id, _nodes.c.report).where(_nodes.c.id.in_(anew)))
            reports = {row.id: row.report for row in found}
        claims: dict[int, list[host.ClaimView]] = {}
        for claim in session.scalars(sa.select(Claim).where(Claim.node_id.in_([row.id for row in moved]))):
            claims.setdefault(claim.node_id, []).append(hosts.claim_view(claim))
        read: dict[str, _Known] = {}
        for row in moved:
            if row.id in reports or row.id not in anew:
                report = reports.get(row.id) or known[row.name].report
                usage = host.usage_of(report, claims.get(row.id, []))
                read[row.name] = _Known(row.generation, row.updated_at, report, usage)
        return read

    def choose(self, session: Session, demand: Demand, wish: Wish, most: int) -> Proposal:
        """At most ``most`` nodes, best first; where there is none, why each was refused."""
        candidates = self.candidates(session)
        choice = placement.choose(candidates, demand, wish, self._runtime.random(), most)
        if not choice.nodes:
            return Proposal(refusals=placement.explain(candidates, demand, wish))
        hosts_of = {candidate.node: candidate.host for candidate in candidates}
        return Proposal(places=tuple(Place(hosts_of[node], node) for node in choice.nodes))
