"""A node as its worker reports it, what claims hold of it, and whether a server fits.

``place`` is what the scheduler proposes with and the resource tracker commits with.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pinfold.model import errors, numa
from pinfold.model.numa import CellUsage, HostTopology, Limits, Placement, Refusal
from pinfold.model.request import Demand


class Hypervisor(msgspec.Struct, frozen=True):
    """What runs a node's guests. ``booted_at`` is in seconds since 1970, None where the hypervisor does not tell;
    ``cpu`` is what running guests see of its CPUs, in the hypervisor's own words."""

    type: str = "unknown"
    version: int = 0
    booted_at: float | None = None
    cpu: str = ""


class NodeReport(msgspec.Struct, frozen=True):
    """A node as its worker has it configured. ``memory_mb`` and ``disk_gb`` are before the ratios; ``address`` is
    where other hosts reach this one."""

    name: str
    topology: HostTopology
    memory_mb: int
    disk_gb: int
    cpu_ratio: float = 1.0
    memory_ratio: float = 1.0
    disk_ratio: float = 1.0
    pack: bool = False
    hypervisor: Hypervisor = Hypervisor()
    address: str | None = None

    @property
    def shared_cpus(self) -> int:
        """How many host CPUs guests may float over."""
        return sum(len(cell.shared) for cell in self.topology.cells)

    @property
    def limits(self) -> Limits:
        """The ratios as the fit function wants them."""
        return Limits(cpu_ratio=self.cpu_ratio, memory_ratio=self.memory_ratio)


class ClaimView(msgspec.Struct, frozen=True):
    """One claim of a node. ``operation`` is the one that made it; ``role`` is incoming, current, outgoing or
    leftover; ``placement`` is None for a server without NUMA demand (it counts in the totals alone)."""

    id: str
    instance: str
    role: str
    memory_mb: int
    disk_gb: int
    shared_vcpus: int
    placement: Placement | None = None
    operation: str | None = None


class NodeView(msgspec.Struct, frozen=True):
    """A node's claims in the book at one generation."""

    node: str
    generation: int
    claims: tuple[ClaimView, ...]


class NodeUsage(msgspec.Struct, frozen=True):
    """The sum of a node's claims: totals, and per cell."""

    memory_mb: int
    disk_gb: int
    shared_vcpus: int
    cells: tuple[CellUsage, ...]


class Place(msgspec.Struct, frozen=True):
    """Where on a node a server fits; ``placement`` is None when it has no NUMA demand."""

    placement: Placement | None = None


def usage_of(report: NodeReport, claims: Iterable[ClaimView]) -> NodeUsage:
    """The sum of ``claims``. Raises errors.AccountingError when two of them hold one CPU."""
    usage = NodeUsage(0, 0, 0, numa.empty_usage(report.topology))
    for claim in claims:
        usage = add(report, usage, claim)
    return usage


def add(report: NodeReport, usage: NodeUsage, claim: ClaimView) -> NodeUsage:
    """``usage`` with ``claim``. Raises errors.AccountingError when it takes what is taken."""
    cells = usage.cells
    if claim.placement is not None:
        cells = numa.add(cells, claim.placement, report.topology)
    return NodeUsage(
        usage.memory_mb + claim.memory_mb,
        usage.disk_gb + claim.disk_gb,
        usage.shared_vcpus + claim.shared_vcpus,
        cells,
    )


def release(report: NodeReport, usage: NodeUsage, claim: ClaimView) -> NodeUsage:
    """``usage`` without ``claim``: the inverse of ``add``. Raises errors.AccountingError for what is not held."""
    if (
        usage.memory_mb < claim.memory_mb
        or usage.disk_gb < claim.disk_gb
        or usage.shared_vcpus < claim.shared_vcpus
    ):
        raise errors.AccountingError(f"Claim {claim.id} holds more than all of its node's claims together.")
    cells = usage.cells
    if claim.placement is not None:
        cells = numa.release(cells, claim.placement, report.topology)
    return NodeUsage(
        usage.memory_mb - claim.memory_mb,
        usage.disk_gb - claim.disk_gb,
        usage.shared_vcpus - claim.shared_vcpus,
        cells,
    )


def _short(report: NodeReport, usage: NodeUsage, demand: Demand) -> list[Refusal]:
    """What the node has too little of as a whole; of what is not asked for, nothing is too little."""
    short = []
    if demand.memory_mb:
        free = int(report.memory_mb * report.memory_ratio) - usage.memory_mb
        if demand.memory_mb > free:
            short.append(Refusal(None, "memory_mb", demand.memory_mb, max(0, free)))
    if demand.disk_gb:
        free = int(report.disk_gb * report.disk_ratio) - usage.disk_gb
        if demand.disk_gb > free:
            short.append(Refusal(None, "disk_gb", demand.disk_gb, max(0, free)))
    if demand.shared_vcpus:
        free = int(report.shared_cpus * report.cpu_ratio) - usage.shared_vcpus
        if demand.shared_vcpus > free:
            short.append(Refusal(None, "shared_vcpus", demand.shared_vcpus, max(0, free)))
    return short


def place(report: NodeReport, usage: NodeUsage, demand: Demand) -> Place | None:
    """Where ``demand`` fits on the node, or None."""
    if _short(report, usage, demand):
        return None
    if demand.numa is None:
        return Place()
    placement = numa.fit(report.topology, usage.cells, demand.numa, report.limits, pack=report.pack)
    return None if placement is None else Place(placement)


def explain(report: NodeReport, usage: NodeUsage, demand: Demand) -> tuple[Refusal, ...]:
    """Why ``demand`` does not fit: the totals first, then each cell; empty when it fits."""
    totals = tuple(_short(report, usage, demand))
    if demand.numa is None:
        return totals
    return totals + numa.explain(report.topology, usage.cells, demand.numa, report.limits)
