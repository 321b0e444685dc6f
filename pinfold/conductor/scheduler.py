"""The scheduler: a view of all nodes, kept up by what changed, and a choice among them.

The choice is a proposal: the worker fits again with the same function, and the book has the last word.
"""

from __future__ import annotations

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db import hosts
from pinfold.db.aggregates import zones
from pinfold.db.models import Claim, Node, Service
from pinfold.model import host, placement
from pinfold.model.host import NodeReport, NodeUsage
from pinfold.model.placement import Candidate, HostRefusal, Wish
from pinfold.model.request import Demand
from pinfold.runtime import Runtime


class _Known(msgspec.Struct, frozen=True):
    generation: int
    report: NodeReport
    usage: NodeUsage


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

            SELECT nodes.id, name, host, generation, up, disabled, zone FROM nodes
            LEFT JOIN services ON host LEFT JOIN (<zones>) ON host
            SELECT * FROM nodes WHERE id IN (:moved)
            SELECT * FROM claims WHERE node_id IN (:moved)
        """
        rows = session.execute(
            sa.select(
                Node.id,
                Node.name,
                Node.host,
                Node.generation,
                hosts.is_up(self._service_down).label("up"),
                Service.disabled,
                sa.func.coalesce(zones.c.zone, self._default_zone).label("zone"),
            )
            .outerjoin(Service, sa.and_(Service.binary == hosts.COMPUTE, Service.host == Node.host))
            .outerjoin(zones, zones.c.host == Node.host)
            .order_by(Node.id)
        ).all()
        known = self._known
        moved = [row.id for row in rows if getattr(known.get(row.name), "generation", -1) != row.generation]
        if moved:
            known = {**known, **self._read(session, moved)}
            self._known = known
        return [
            Candidate(
                row.name,
                row.host,
                known[row.name].report,
                known[row.name].usage,
                placement.DOWN if not row.up else placement.DISABLED if row.disabled else None,
                row.zone,
            )
            for row in rows
            if row.name in known
        ]

    @staticmethod
    def _read(session: Session, moved: list[int]) -> dict[str, _Known]:
        nodes = {node.id: node for node in session.scalars(sa.select(Node).where(Node.id.in_(moved)))}
        claims: dict[int, list[host.ClaimView]] = {}
        for claim in session.scalars(sa.select(Claim).where(Claim.node_id.in_(moved))):
            claims.setdefault(claim.node_id, []).append(hosts.claim_view(claim))
        return {
            node.name: _Known(
                node.generation, node.report, host.usage_of(node.report, claims.get(node.id, []))
            )
            for node in nodes.values()
        }

    def choose(self, session: Session, demand: Demand, wish: Wish, most: int) -> Proposal:
        """At most ``most`` nodes, best first; where there is none, why each was refused."""
        candidates = self.candidates(session)
        choice = placement.choose(candidates, demand, wish, self._runtime.random(), most)
        if not choice.nodes:
            return Proposal(refusals=placement.explain(candidates, demand, wish))
        hosts_of = {candidate.node: candidate.host for candidate in candidates}
        return Proposal(places=tuple(Place(hosts_of[node], node) for node in choice.nodes))
