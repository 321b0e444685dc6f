"""The scheduler: a picture of all nodes, kept up by what changed, and a choice among them.

The choice is a proposal: the worker fits again with the same function, and the book has the last word. So a picture
that is behind may cost another try, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db import hosts
from pinfold.db.aggregates import zone_of_node, zones
from pinfold.db.models import Base
from pinfold.db.types import epoch
from pinfold.model import host, placement
from pinfold.model.host import ClaimView, NodeReport
from pinfold.model.placement import Candidate, HostRefusal, Wish
from pinfold.model.ranking import Ranking
from pinfold.model.request import Demand
from pinfold.runtime import Runtime

_nodes, _services, _claims = (Base.metadata.tables[name] for name in ("nodes", "services", "claims"))

# So many nodes are read in the time that it takes to ask for their news.
_FEW = 100
# Seconds: whatever news is lost (a worker that fell silent writes none), it is known by then.
_TRUSTED = 30.0
# Seconds that a transaction may take between its change of a node and its commit, to be among the news for sure.
_LATE = 3.0
_TRIES = 3
_AT_ONCE = 500

_SINCE: sa.BindParameter[float] = sa.bindparam("since", type_=sa.Double())
_NAMES: sa.BindParameter[str] = sa.bindparam("names", expanding=True)
_IDS: sa.BindParameter[int] = sa.bindparam("ids", expanding=True)


def _rows(zone: sa.ColumnElement[Any], tables: sa.FromClause) -> sa.Select[Any]:
    return sa.select(
        _nodes.c.id,
        _nodes.c.name,
        _nodes.c.host,
        _nodes.c.generation,
        _nodes.c.updated_at,
        hosts.is_up(sa.bindparam("service_down", type_=sa.Double())).label("up"),
        _services.c.disabled,
        zone.label("zone"),
        epoch().label("at"),
    ).select_from(tables)


_WITH_SERVICE = _nodes.outerjoin(
    _services, sa.and_(_services.c.binary == hosts.COMPUTE, _services.c.host == _nodes.c.host)
)
_ALL = _rows(zones.c.zone, _WITH_SERVICE.outerjoin(zones, zones.c.host == _nodes.c.host))
_SOME = _rows(zone_of_node(_nodes.c.host), _WITH_SERVICE)
_NEWS = _SOME.where(_nodes.c.changed_at > _SINCE)
_NAMED = _SOME.where(_nodes.c.name.in_(_NAMES))
_REPORTS = sa.select(_nodes.c.id, _nodes.c.report).where(_nodes.c.id.in_(_IDS))
_HELD = sa.select(
    _claims.c.node_id,
    _claims.c.id,
    _claims.c.instance_id,
    _claims.c.role,
    _claims.c.memory_mb,
    _claims.c.disk_gb,
    _claims.c.shared_vcpus,
    _claims.c.placement,
).where(_claims.c.node_id.in_(_IDS))


class _Known(msgspec.Struct, frozen=True, gc=False):
    """The row that a candidate was made from, as far as it says whether it is still so."""

    id: int
    generation: int
    updated_at: float


class Place(msgspec.Struct, frozen=True):
    """A node, by name, and its host."""

    host: str
    name: str


class Proposal(msgspec.Struct, frozen=True):
    """Where a server may go, best first; or, where it may go nowhere, why."""

    places: tuple[Place, ...] = ()
    refusals: tuple[HostRefusal, ...] = ()


class Scheduler:
    """Proposes nodes. Thread-safe: one choice at a time.

    Of up to ``few`` nodes, each choice reads all. Of more it reads those whose ``changed_at`` is new, and looks again
    at those that it has chosen. All are read when a while has passed, when the caller says that the picture was not
    good enough, and before it says that there is no place.
    """

    def __init__(self, runtime: Runtime, service_down: float, default_zone: str, few: int = _FEW) -> None:
        self._runtime = runtime
        self._service_down = service_down
        self._default_zone = default_zone
        self._few = few
        self._lock = runtime.lock()
        self._known: dict[str, _Known] = {}
        self._ranking = Ranking()
        self._heard_at = 0.0
        self._looked_at: float | None = None

    def choose(
        self, session: Session, demand: Demand, wish: Wish, most: int, *, anew: bool = False
    ) -> Proposal:
        """At most ``most`` nodes, best first; where there is none, why each was refused. ``anew``: what was proposed
        before could not be had."""
        # its connection first: whoever has the lock waits for nothing that others have
        session.connection()
        rng = self._runtime.random()
        with self._lock:
            if not anew and self._is_trusted():
                self._hear(session)
                for _ in range(_TRIES):
                    chosen = self._ranking.choose(demand, wish, rng, most)
                    if not chosen:
                        break
                    if self._still_so(session, chosen):
                        return _proposal(chosen)
            self._look(session)
            chosen = self._ranking.choose(demand, wish, rng, most)
            if chosen:
                return _proposal(chosen)
            return Proposal(refusals=placement.explain(self._ranking, demand, wish))

    def ranking(self, session: Session) -> Ranking:
        """All nodes as they stand in the book, for the caller alone."""
        with self._lock:
            self._look(session)
            return Ranking(self._ranking)

    def _is_trusted(self) -> bool:
        looked_at = self._looked_at
        if looked_at is None or len(self._ranking) <= self._few:
            return False
        return self._runtime.monotonic() - looked_at < _TRUSTED

    def _look(self, session: Session) -> None:
        """Read every node's row, and the claims of those whose generation moved.

        ::

            SELECT nodes.id, name, host, generation, updated_at, up, disabled, zone, <clock> FROM nodes
            LEFT JOIN services ON host LEFT JOIN (<zones>) ON host
        """
        began = self._runtime.monotonic()
        rows = session.execute(_ALL, {"service_down": self._service_down}).all()
        for name in self._known.keys() - {row.name for row in rows}:
            self._forget(name)
        self._take_in(session, rows)
        self._looked_at = began

    def _hear(self, session: Session) -> None:
        """Read the nodes that have changed.

        ::

            SELECT nodes.id, name, ... FROM nodes LEFT JOIN services ON host WHERE changed_at > :since
        """
        since = self._heard_at - _LATE
        rows = session.execute(_NEWS, {"service_down": self._service_down, "since": since}).all()
        self._take_in(session, rows)

    def _still_so(self, session: Session, chosen: Sequence[Candidate]) -> bool:
        """Whether the nodes are as they were chosen; else they are taken in as they are."""
        names = [candidate.node for candidate in chosen]
        rows = session.execute(_NAMED, {"service_down": self._service_down, "names": names}).all()
        for name in set(names) - {row.name for row in rows}:
            self._forget(name)
        self._take_in(session, rows, heard=False)
        return all(self._knows(candidate) for candidate in chosen)

    def _knows(self, candidate: Candidate) -> bool:
        return candidate.node in self._known and self._ranking[candidate.node] is candidate

    def _forget(self, name: str) -> None:
        del self._known[name]
        self._ranking.drop(name)

    def _take_in(self, session: Session, rows: Sequence[Sequence[Any]], *, heard: bool = True) -> None:
        moved: list[Sequence[Any]] = []
        for row in rows:
            id_, name, _, generation, updated_at, up, disabled, zone, at = row
            if self._known.get(name) != _Known(id_, generation, updated_at):
                moved.append(row)
                continue
            candidate = self._ranking[name]
            state, zone = _state(up, disabled), zone or self._default_zone
            if (candidate.state, candidate.zone) != (state, zone):
                self._ranking.put(msgspec.structs.replace(candidate, state=state, zone=zone))
        for first in range(0, len(moved), _AT_ONCE):
            self._read(session, moved[first : first + _AT_ONCE])
        if heard and rows:
            self._heard_at = at

    def _read(self, session: Session, moved: Sequence[Sequence[Any]]) -> None:
        """Take in what the nodes hold now; a report is read only where it is not the one that is known."""
        anew = [
            id_ for id_, name, _, _, updated_at, *_ in moved if not self._has_report(name, id_, updated_at)
        ]
        found = session.execute(_REPORTS, {"ids": anew}) if anew else ()
        reports: dict[int, NodeReport] = {row.id: row.report for row in found}
        claims: dict[int, list[ClaimView]] = {}
        for node, *fields in session.execute(_HELD, {"ids": [row[0] for row in moved]}):
            claims.setdefault(node, []).append(ClaimView(*fields))
        for id_, name, host_name, generation, updated_at, up, disabled, zone, _ in moved:
            report = reports.get(id_)
            if report is None:
                if id_ in anew:
                    continue  # deleted meanwhile
                report = self._ranking[name].report
            usage = host.usage_of(report, claims.get(id_, ()))
            self._known[name] = _Known(id_, generation, updated_at)
            self._ranking.put(
                Candidate(name, host_name, report, usage, _state(up, disabled), zone or self._default_zone)
            )

    def _has_report(self, name: str, id_: int, updated_at: float) -> bool:
        known = self._known.get(name)
        return known is not None and (known.id, known.updated_at) == (id_, updated_at)


def _state(up: bool | None, disabled: bool | None) -> str | None:
    if not up:
        return placement.DOWN
    return placement.DISABLED if disabled else None


def _proposal(chosen: Sequence[Candidate]) -> Proposal:
    return Proposal(places=tuple(Place(each.host, each.node) for each in chosen))
