"""The NUMA cells and pages of a request."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TypeVar

from pinfold.model import cpuset
from pinfold.model.errors import InvalidRequest
from pinfold.model.numa_types import ANY, LARGE, SMALL, GuestCell
from pinfold.model.request_cpus import CpuPolicies
from pinfold.model.request_props import Props, boolean, cpu_list, integer, refusal

MAX_CELLS = 128

_T = TypeVar("_T")

_PCI_POLICIES = ("legacy", "preferred", "required", "socket")
_PAGE_NAMES = {"small": SMALL, "large": LARGE, "any": ANY}
_PAGE_SIZE = re.compile(r"([0-9]{0,9}\.?[0-9]{1,9})([KMGT]i?)?(b|bit|B)", re.ASCII)
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def cells(props: Props, vcpus: int, memory_mb: int, cpus: CpuPolicies) -> tuple[GuestCell, ...] | None:
    """The guest's cells, or None where nothing asks for any: no count, no page size, no dedicated CPU (and no
    persistent memory, which Pinfold does not have, but which makes a cell for Nova)."""
    nodes = _nodes(props)
    page_size = _page_size(props)
    _check_locked_memory(props)
    if nodes is None and page_size is None and not cpus.dedicated and props.flavor("pmem") is None:
        return None
    lists = _per_cell(props, "numa_cpus", cpu_list)
    sizes = _per_cell(props, "numa_mem", _memory)
    nodes = nodes or 1
    if lists is None and sizes is None:
        parts = _even(nodes, vcpus, memory_mb)
    else:
        parts = _explicit(nodes, vcpus, memory_mb, lists or [], sizes or [])
    return tuple(
        GuestCell(
            id=index,
            shared=vcpu_set - cpus.dedicated,
            dedicated=vcpu_set & cpus.dedicated,
            memory_mb=memory,
            page_size=page_size,
        )
        for index, (vcpu_set, memory) in enumerate(parts)
    )


def _nodes(props: Props) -> int | None:
    """How many cells the flavor or the image asks for; not both may."""
    flavor, image = props.flavor("numa_nodes"), props.image("numa_nodes")
    nodes = _count("hw_numa_nodes", image) if image else None
    if flavor and image:
        raise _image_forbidden("numa_nodes", image)
    return _count("hw:numa_nodes", flavor) if flavor else nodes


def _count(name: str, value: str) -> int:
    """A number of cells; Nova takes no other spelling of it, such as '02'."""
    code = "invalid-numa-nodes-number"
    nodes = integer(name, value, code)
    if str(nodes) != value:
        raise refusal(code, f"'{name}' is '{value}'; write it as '{nodes}'.")
    if nodes > MAX_CELLS:
        raise refusal(code, f"'{name}' is '{value}'; it must be at most {MAX_CELLS}.")
    return nodes


def _image_forbidden(key: str, value: str) -> InvalidRequest:
    return refusal(
        "image-numa-topology-forbidden",
        f"The image's 'hw_{key}' is '{value}', but the flavor sets 'hw:{key}' already: only one of them may.",
    )


def _memory(name: str, value: str) -> int:
    return integer(name, value, "image-numa-topology-memory-out-of-range")


def _per_cell(props: Props, key: str, read: Callable[[str, str], _T]) -> list[_T] | None:
    """The values of ``key.0``, ``key.1`` and so on, of the flavor or of the image, but not of both."""
    flavor = _numbered(props.extra_specs, f"hw:{key}.", read)
    image = _numbered(props.image_properties, f"hw_{key}.", read)
    if flavor is not None and image is not None:
        raise _image_forbidden(f"{key}.0", props.image_properties[f"hw_{key}.0"])
    return image if flavor is None else flavor


def _numbered(values: Mapping[str, str], prefix: str, read: Callable[[str, str], _T]) -> list[_T] | None:
    names = {name for name in values if name.startswith(prefix)}
    if not names:
        return None
    wanted = [f"{prefix}{index}" for index in range(len(names))]
    for name in wanted:
        if name not in names:
            raise refusal(
                "image-numa-topology-incomplete",
                f"'{min(names - set(wanted))}' is set, but '{name}' is not: number the cells from 0 on"
                " without gaps.",
            )
    return [read(name, values[name]) for name in wanted]


def _even(nodes: int, vcpus: int, memory_mb: int) -> list[tuple[frozenset[int], int]]:
    """Equal cells, with consecutive vCPUs."""
    if vcpus % nodes or memory_mb % nodes:
        raise refusal(
            "image-numa-topology-asymmetric",
            f"'hw:numa_nodes' is {nodes}, which does not divide {vcpus} vCPUs and {memory_mb} MB evenly: set"
            " 'hw:numa_cpus.N' and 'hw:numa_mem.N' for each cell, or another number.",
        )
    each = vcpus // nodes
    return [(frozenset(range(node * each, node * each + each)), memory_mb // nodes) for node in range(nodes)]


def _explicit(
    nodes: int, vcpus: int, memory_mb: int, lists: list[frozenset[int]], sizes: list[int]
) -> list[tuple[frozenset[int], int]]:
    """Cells as listed; together they must be all vCPUs, each once, and all memory."""
    if len(lists) != nodes or len(sizes) != nodes:
        raise refusal(
            "image-numa-topology-incomplete",
            f"'hw:numa_nodes' is {nodes}, with {len(lists)} 'hw:numa_cpus.N' and {len(sizes)}"
            f" 'hw:numa_mem.N': set both for each of the {nodes} cells, or neither.",
        )
    unassigned = set(range(vcpus))
    for node, cpus in enumerate(lists):
        if wrong := sorted(cpu for cpu in cpus if cpu >= vcpus):
            raise refusal(
                "image-numa-topology-cpu-out-of-range",
                f"'hw:numa_cpus.{node}' has vCPU {wrong[0]}, but the flavor's vCPUs are 0 to {vcpus - 1}.",
            )
        if twice := cpus - unassigned:
            raise refusal(
                "image-numa-topology-cpu-duplicates",
                f"'hw:numa_cpus.{node}' has vCPUs {cpuset.render(twice)} of another cell: list each once.",
            )
        unassigned -= cpus
    if unassigned:
        raise refusal(
            "image-numa-topology-cpus-unassigned",
            f"'hw:numa_cpus.N' leave out vCPUs {cpuset.render(unassigned)}: list each in one cell.",
        )
    if sum(sizes) != memory_mb:
        raise refusal(
            "image-numa-topology-memory-out-of-range",
            f"'hw:numa_mem.N' add up to {sum(sizes)} MB, but the flavor has {memory_mb} MB: they must be"
            " equal.",
        )
    return list(zip(lists, sizes, strict=True))


def _page_size(props: Props) -> int | None:
    """The page size in KiB, or SMALL, LARGE or ANY; None where nothing is asked.

    The image may choose only where the flavor says ``any`` or ``large``. A size of 0 means none, as for Nova.
    """
    flavor, image = props.flavor("mem_page_size"), props.image("mem_page_size")
    if flavor is None:
        if image is not None:
            raise _page_size_forbidden(image, "does not set 'hw:mem_page_size'")
        return None
    size = parse_page_size("hw:mem_page_size", flavor)
    if image is not None:
        if size not in (ANY, LARGE):
            raise _page_size_forbidden(image, f"sets 'hw:mem_page_size' to '{flavor}'")
        size = parse_page_size("hw_mem_page_size", image)
    return size or None


def _page_size_forbidden(image: str, flavor: str) -> InvalidRequest:
    return refusal(
        "memory-page-size-forbidden",
        f"The image's 'hw_mem_page_size' is '{image}', but the flavor {flavor}: it must be 'any' or 'large'.",
    )


def parse_page_size(name: str, value: str) -> int:
    """A page size in KiB, or SMALL, LARGE or ANY.

    A bare number is KiB. Units are powers of 1024 and end in ``B`` (bytes) or ``b`` (bits), as in ``2MB``,
    ``2MiB`` and ``2048KB``; ``1Gb`` is a gigabit, 131072 KiB.
    """
    if value in _PAGE_NAMES:
        return _PAGE_NAMES[value]
    if value.isascii() and value.isdigit() and len(value) < 13:
        return int(value)
    if match := _PAGE_SIZE.fullmatch(value):
        number, prefix, unit = match.groups()
        size = Fraction(number) * 1024 ** _UNITS[(prefix or "")[:1]] / 1024
        if unit != "B":
            size /= 8
        if size.denominator == 1 and size > 0:
            return int(size)
    raise refusal(
        "memory-page-size-invalid",
        f"'{name}' is '{value}'; it must be 'small', 'large', 'any', a number of KiB, or a size such as"
        " '2MB'.",
    )


def _check_locked_memory(props: Props) -> None:
    """Locked memory needs a page size; the image may not differ from the flavor."""
    flavor = boolean("hw:locked_memory", props.flavor("locked_memory"))
    image = boolean("hw_locked_memory", props.image("locked_memory"))
    if flavor is not None and image is not None and flavor != image:
        raise refusal(
            "flavor-image-locked-memory-conflict",
            f"The flavor's 'hw:locked_memory' is {flavor}, and the image's 'hw_locked_memory' {image}: they"
            " must be equal, or one of them absent.",
        )
    if (flavor or image) and not (props.flavor("mem_page_size") or props.image("mem_page_size")):
        raise refusal(
            "lock-memory-forbidden",
            "'hw:locked_memory' is on without 'hw:mem_page_size': set a page size as well.",
        )


def check_pci_affinity(props: Props) -> None:
    """The PCI affinity policy is known, and the image does not differ from the flavor."""
    flavor, image = props.choice("pci_numa_affinity_policy", _PCI_POLICIES, "invalid-pci-numa-affinity")
    if flavor and image and flavor != image:
        raise refusal(
            "image-pci-numa-policy-forbidden",
            f"The image's 'hw_pci_numa_affinity_policy' is '{image}', and the flavor's"
            f" 'hw:pci_numa_affinity_policy' '{flavor}': they must be equal, or one of them absent.",
        )
