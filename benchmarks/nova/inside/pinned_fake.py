"""A driver for Nova: its own fake one, with NUMA cells of dedicated CPUs to claim. Linked into nova/virt.

The shape is that of ``benchmarks/topology-128.json``, with which Pinfold is measured.
"""

from __future__ import annotations

import json
import os
import uuid
from typing import Any

from nova import objects
from nova.virt import fake

_NAMES = uuid.UUID("3c0f62f5-6a55-47f1-b1f1-0f6d5dca0c11")
with open(os.environ["PINFOLD_BENCH_TOPOLOGY"]) as _file:
    CELLS = json.load(_file)


class PinnedFakeDriver(fake.FakeDriver):
    """Nova's fake driver with dedicated CPUs, and with an id that outlives the process."""

    capabilities = {**fake.FakeDriver.capabilities, "supports_pcpus": True}
    vcpus = sum(len(cell["cpuset"]) for cell in CELLS)
    memory_mb = sum(cell["memory"] for cell in CELLS)
    local_gb = 100000

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        """What the fake driver reports, and the cells."""
        found: dict[str, Any] = super().get_available_resource(nodename)
        found["numa_topology"] = _topology()
        found["uuid"] = str(uuid.uuid5(_NAMES, nodename))
        return found

    def get_nodenames_by_uuid(self, refresh: bool = False) -> dict[str, str]:
        """Of the one node of this host."""
        return {str(uuid.uuid5(_NAMES, name)): name for name in self.get_available_nodes()}

    def update_provider_tree(self, provider_tree: Any, nodename: str, allocations: Any = None) -> None:
        """Placement also counts the dedicated CPUs."""
        super().update_provider_tree(provider_tree, nodename, allocations)
        inventory = dict(provider_tree.data(nodename).inventory)
        total = sum(len(cell["pcpuset"]) for cell in CELLS)
        inventory["PCPU"] = {
            "total": total, "min_unit": 1, "max_unit": total, "step_size": 1, "allocation_ratio": 1.0, "reserved": 0
        }  # fmt: skip
        provider_tree.update_inventory(nodename, inventory)


def _topology() -> str:
    cells = [
        objects.NUMACell(
            id=cell["id"],
            socket=cell["id"],
            cpuset=set(cell["cpuset"]),
            pcpuset=set(cell["pcpuset"]),
            memory=cell["memory"],
            cpu_usage=0,
            memory_usage=0,
            pinned_cpus=set(),
            siblings=[set(core) for core in cell["siblings"]],
            mempages=[objects.NUMAPagesTopology(size_kb=4, total=cell["memory"] * 256, used=0, reserved=0)],
            network_metadata=objects.NetworkMetadata(physnets=set(), tunneled=False),
        )
        for cell in CELLS
    ]
    text: str = objects.NUMATopology(cells=cells)._to_json()
    return text
