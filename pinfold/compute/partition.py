"""The partition of a node's CPUs as equations, and what the worker reports of the node.

For every node::

    shared    = the CPUs of [compute] cpu_shared_set
    dedicated = the CPUs of [compute] cpu_dedicated_set
    reserved  = machine - shared - dedicated           (for the host itself)

    shared & dedicated == {}           no CPU is promised to one guest and lent to others
    shared | dedicated <= machine      nothing is promised that is not there

With only one of the two options set, the other set is empty. With none of them, all CPUs are shared and none is
dedicated: Nova's legacy rule, by which every CPU is both, would let a floating guest run on a CPU that another
guest has to itself. Guests with dedicated CPUs are then refused, with the reason, until cpu_dedicated_set is set.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from pinfold.compute.settings import Partition
from pinfold.conf import checks
from pinfold.conf.checks import DEDICATED, SHARED
from pinfold.model import cpuset
from pinfold.model.errors import ConfigurationError
from pinfold.model.host import NodeReport
from pinfold.model.numa import HostCell, HostPages, HostTopology
from pinfold.virt.driver import Inventory, MachineCell

LOG = logging.getLogger(__name__)

HUGE_PAGES = "[compute] reserved_huge_pages"


class ReservedPages(msgspec.Struct, frozen=True):
    """``count`` pages of ``size_kb`` KiB on cell ``node`` that guests do not get."""

    node: int
    size_kb: int
    count: int


def node_report(inventory: Inventory, options: Partition) -> NodeReport:
    """The node as it is configured. Raises ConfigurationError that names the option, and what to do."""
    machine = frozenset().union(*(cell.cpus for cell in inventory.cells))
    shared, dedicated = _sets(machine, options, inventory.node)
    pages = _reserved_pages(inventory, options.reserved_huge_pages)
    cells = tuple(
        _host_cell(cell, shared, dedicated, pages)
        for cell in sorted(inventory.cells, key=lambda cell: cell.id)
    )
    return NodeReport(
        name=inventory.node,
        topology=HostTopology(cells),
        memory_mb=_left(
            inventory, "memory_mb", sum(cell.memory_mb for cell in cells), options.reserved_memory_mb
        ),
        disk_gb=_left(inventory, "disk_gb", inventory.disk_gb, options.reserved_disk_gb),
        cpu_ratio=options.cpu_allocation_ratio,
        memory_ratio=options.memory_allocation_ratio,
        disk_ratio=options.disk_allocation_ratio,
        pack=options.pack,
        hypervisor=inventory.hypervisor,
        address=options.address,
    )


def _sets(machine: frozenset[int], options: Partition, node: str) -> tuple[frozenset[int], frozenset[int]]:
    """(shared, dedicated), for which the equations hold."""
    shared, dedicated = checks.cpu_sets(options.cpu_shared_set, options.cpu_dedicated_set)
    if shared is None and dedicated is None:
        LOG.warning(
            "Neither %s nor %s is set: all CPUs of node %s are shared, and guests with dedicated CPUs are refused.",
            SHARED,
            DEDICATED,
            node,
        )
        return machine, frozenset()
    shared, dedicated = shared or frozenset(), dedicated or frozenset()
    for option, cpus in ((SHARED, shared), (DEDICATED, dedicated)):
        if absent := cpus - machine:
            raise ConfigurationError(
                f"{option} names CPUs {cpuset.render(absent)}, which node {node} does not have online; it has "
                f"{cpuset.render(machine)}. Take them out, or bring them online."
            )
    return shared, dedicated


def _left(inventory: Inventory, what: str, total: int, reserved: int) -> int:
    if reserved > total:
        raise ConfigurationError(
            f"[compute] reserved_{what} = {reserved}, but node {inventory.node} has only {total}: lower it."
        )
    return total - reserved


def _host_cell(
    cell: MachineCell,
    shared: frozenset[int],
    dedicated: frozenset[int],
    reserved: Sequence[ReservedPages],
) -> HostCell:
    usable = cell.cpus & (shared | dedicated)
    cores = (core & usable for core in cell.siblings)
    return HostCell(
        id=cell.id,
        shared=cell.cpus & shared,
        dedicated=cell.cpus & dedicated,
        siblings=tuple(core for core in cores if core),
        memory_mb=cell.memory_mb,
        pages=tuple(_with_reserved(cell.id, pages, reserved) for pages in cell.pages),
        socket=cell.socket,
    )


def _with_reserved(cell: int, pages: HostPages, reserved: Sequence[ReservedPages]) -> HostPages:
    kept = sum(entry.count for entry in reserved if (entry.node, entry.size_kb) == (cell, pages.size_kb))
    if pages.reserved + kept > pages.total:
        raise ConfigurationError(
            f"{HUGE_PAGES} keeps {pages.reserved + kept} pages of {pages.size_kb} KiB on NUMA cell {cell}, which has "
            f"{pages.total}: lower it, or give the cell more pages."
        )
    return HostPages(pages.size_kb, pages.total, pages.reserved + kept)


def _reserved_pages(inventory: Inventory, texts: Sequence[str]) -> list[ReservedPages]:
    """The option's entries, each of a cell and a page size that the node has."""
    entries = [_entry(text) for text in texts]
    known = {(cell.id, pages.size_kb) for cell in inventory.cells for pages in cell.pages}
    for entry in entries:
        if (entry.node, entry.size_kb) not in known:
            has = ", ".join(f"node:{cell},size:{size}" for cell, size in sorted(known)) or "none"
            raise ConfigurationError(
                f"{HUGE_PAGES} names node:{entry.node},size:{entry.size_kb}, but node {inventory.node} has no such "
                f"pages; it has {has}."
            )
    return entries


def _entry(text: str) -> ReservedPages:
    """``node:0,size:2048,count:64`` as a record."""
    parts = dict.fromkeys(("node", "size", "count"), -1)
    for part in text.split(","):
        key, mark, value = (piece.strip() for piece in part.partition(":"))
        if not mark or parts.get(key) != -1 or not (value.isascii() and value.isdigit()):
            raise _bad_entry(text)
        parts[key] = int(value)
    if -1 in parts.values():
        raise _bad_entry(text)
    return ReservedPages(parts["node"], parts["size"], parts["count"])


def _bad_entry(text: str) -> ConfigurationError:
    return ConfigurationError(
        f"{HUGE_PAGES} = {text} is not of the form node:0,size:2048,count:64 (size in KiB)."
    )
