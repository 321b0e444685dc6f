"""What a flavor and an image ask of a host: extra specs and image properties become a :class:`Demand`.

Names, values and precedence are Nova's (``hw:*`` extra specs, their ``hw_*`` twins, ``resources:PCPU`` and
``trait:HW_CPU_HYPERTHREADING``). What contradicts itself, or could never run, raises InvalidRequest before
any host is looked at; its ``code`` is Nova's name for the error in kebab-case, its text names the property,
the value and what would be right.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pinfold.model import request_cells, request_cpus
from pinfold.model.extra_specs import unknown_extra_specs, validate_extra_specs
from pinfold.model.numa_types import GuestTopology
from pinfold.model.request_cpus import CpuTopology
from pinfold.model.request_props import Props

__all__ = [
    "CpuTopology",
    "Demand",
    "demand_for",
    "unknown_extra_specs",
    "validate_extra_specs",
]


class Demand(msgspec.Struct, frozen=True):
    """What a server asks of a node: MB of memory, GB of disk, and vCPUs of which ``shared_vcpus`` float.

    ``numa`` is None where the guest does not care about cells, CPUs or pages; it then counts in the node's
    totals alone. ``cpu_topology`` is how the guest sees its CPUs, or None for the default (a socket for
    each).
    """

    vcpus: int
    memory_mb: int
    disk_gb: int
    shared_vcpus: int
    numa: GuestTopology | None = None
    cpu_topology: CpuTopology | None = None


def demand_for(
    *,
    vcpus: int,
    memory_mb: int,
    disk_gb: int,
    extra_specs: Mapping[str, str],
    image_properties: Mapping[str, str],
) -> Demand:
    """The demand of a flavor with an image. Raises InvalidRequest for what can never be."""
    props = Props(extra_specs, image_properties)
    cpus = request_cpus.policies(props, vcpus)
    cells = request_cells.cells(props, vcpus, memory_mb, cpus)
    topology = request_cpus.cpu_topology(props, vcpus)
    request_cells.check_pci_affinity(props)
    if cells is None:
        return Demand(vcpus, memory_mb, disk_gb, shared_vcpus=vcpus, cpu_topology=topology)
    numa = GuestTopology(
        cells=cells,
        cpu_policy=cpus.policy,
        thread_policy=cpus.threads,
        emulator_policy=cpus.emulator,
        realtime=cpus.realtime,
    )
    floating = vcpus - len(cpus.dedicated)
    return Demand(vcpus, memory_mb, disk_gb, floating, numa, topology)
