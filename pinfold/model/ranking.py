"""The order in which nodes are proposed, kept up node by node: a choice among many looks at few."""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from pinfold.model import host as hosts
from pinfold.model.placement import Candidate, Wish, barred
from pinfold.model.request import Demand

# Free CPUs and free memory, both negative, so that the freest is first; then the node's name.
_Rank = tuple[float, float, str]


class _Ranked(msgspec.Struct, frozen=True, gc=False):
    """``largest``: the most free dedicated CPUs in one cell."""

    candidate: Candidate
    largest: int
    pinned: _Rank
    floating: _Rank


class Ranking:
    """Nodes by free dedicated CPUs, or for servers that float by free shared CPUs; then by free memory.

    Not thread-safe.
    """

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self._nodes: dict[str, _Ranked] = {}
        self._hosts: dict[str, set[str]] = {}
        for candidate in candidates:
            self._nodes[candidate.node] = _ranked(candidate)
            self._hosts.setdefault(candidate.host, set()).add(candidate.node)
        self._pinned = sorted(ranked.pinned for ranked in self._nodes.values())
        self._floating = sorted(ranked.floating for ranked in self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Candidate]:
        return (ranked.candidate for ranked in self._nodes.values())

    def __getitem__(self, node: str) -> Candidate:
        return self._nodes[node].candidate

    def put(self, candidate: Candidate) -> None:
        """Take a node in, or take it as it is now."""
        self.drop(candidate.node)
        self._nodes[candidate.node] = ranked = _ranked(candidate)
        self._hosts.setdefault(candidate.host, set()).add(candidate.node)
        insort(self._pinned, ranked.pinned)
        insort(self._floating, ranked.floating)

    def drop(self, node: str) -> None:
        """Forget a node, if it is known."""
        ranked = self._nodes.pop(node, None)
        if ranked is None:
            return
        self._hosts[ranked.candidate.host].discard(node)
        del self._pinned[bisect_left(self._pinned, ranked.pinned)]
        del self._floating[bisect_left(self._floating, ranked.floating)]

    def choose(self, demand: Demand, wish: Wish, rng: random.Random, most: int) -> list[Candidate]:
        """At most ``most`` nodes that ``demand`` fits, best first.

        What a soft policy of the server's group would rather have comes before all else. Among the equally good (as
        many free CPUs, and less memory between them than is asked for) the first is drawn by lot, so that schedulers
        that decide at once do not all choose one node.
        """
        found: list[Candidate] = []
        for candidate in self._in_order(demand, wish, rng):
            if barred(candidate, wish) is not None:
                continue
            if hosts.place(candidate.report, candidate.usage, demand) is not None:
                found.append(candidate)
                if len(found) == most:
                    break
        return found

    def _in_order(self, demand: Demand, wish: Wish, rng: random.Random) -> Iterator[Candidate]:
        weights = {host: wish.group.weight(host) for host in wish.group.members} if wish.group else {}

        def on(hosts_: Iterable[str]) -> list[Candidate]:
            return sorted(self._on(hosts_, demand), key=lambda candidate: weights.get(candidate.host, 0))

        only = wish.same if wish.host is None else (wish.host,)
        if only is not None:
            yield from on(only)
            return
        yield from on(host for host, weight in weights.items() if weight < 0)
        for candidate in self._all(demand, rng):
            if not weights.get(candidate.host):
                yield candidate
        yield from on(host for host, weight in weights.items() if weight > 0)

    def _on(self, on: Iterable[str], demand: Demand) -> Iterator[Candidate]:
        """The nodes of these hosts, best first."""
        ranked = [self._nodes[node] for host in on for node in self._hosts.get(host, ())]
        order = sorted(each.floating if demand.numa is None else each.pinned for each in ranked)
        return (self._nodes[name].candidate for *_, name in order)

    def _all(self, demand: Demand, rng: random.Random) -> Iterator[Candidate]:
        """All nodes but those that have too few free CPUs for sure; each run of equals from anywhere in it, and then
        around."""
        order = self._floating if demand.numa is None else self._pinned
        cells = [len(cell.dedicated) for cell in demand.numa.cells] if demand.numa else [0]
        asked, in_one = sum(cells) if demand.numa else demand.shared_vcpus, max(cells)
        at = 0
        while at < len(order):
            cpus, memory, _ = order[at]
            if asked > 0 and -cpus < asked:
                return
            end = bisect_left(order, (cpus, memory + max(1, demand.memory_mb), ""))
            start = rng.randrange(at, end)
            for index in chain(range(start, end), range(at, start)):
                ranked = self._nodes[order[index][2]]
                if ranked.largest >= in_one:
                    yield ranked.candidate
            at = end


def _ranked(candidate: Candidate) -> _Ranked:
    report, usage = candidate.report, candidate.usage
    dedicated = {cell.id: len(cell.dedicated) for cell in report.topology.cells}
    pinned = {cell.cell: len(cell.pinned) for cell in usage.cells}
    free = [count - pinned.get(cell, 0) for cell, count in dedicated.items()]
    memory = usage.memory_mb - report.memory_mb * report.memory_ratio
    floating = usage.shared_vcpus - report.shared_cpus * report.cpu_ratio
    return _Ranked(
        candidate,
        max(free, default=0),
        (-sum(free), memory, candidate.node),
        (floating, memory, candidate.node),
    )
