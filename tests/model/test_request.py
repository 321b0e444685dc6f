"""From a flavor and an image to a demand, or a refusal that says what would be right."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.model.errors import InvalidRequest
from pinfold.model.numa import ANY, LARGE, SMALL, GuestCell
from pinfold.model.request import CpuTopology, Demand, demand_for

Properties = Mapping[str, str]


def ask(
    flavor: Properties, image: Properties | None = None, *, vcpus: int = 4, memory_mb: int = 512
) -> Demand:
    return demand_for(
        vcpus=vcpus, memory_mb=memory_mb, disk_gb=1, extra_specs=flavor, image_properties=image or {}
    )


def refusal(flavor: Properties, image: Properties | None = None, *, vcpus: int = 4) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refused:
        ask(flavor, image, vcpus=vcpus)
    return refused.value


def guest_cells(demand: Demand) -> tuple[GuestCell, ...]:
    assert demand.numa
    return demand.numa.cells


def cell(id_: int, shared: str, dedicated: str, memory_mb: int, page_size: int | None = None) -> GuestCell:
    return GuestCell(id_, frozenset(map(int, shared)), frozenset(map(int, dedicated)), memory_mb, page_size)


DEDICATED = {"hw:cpu_policy": "dedicated"}
SHARED = {"hw:cpu_policy": "shared"}
MIXED = {"hw:cpu_policy": "mixed"}
MASK = {"hw:cpu_dedicated_mask": "2-3"}
REALTIME = {"hw:cpu_realtime": "yes"}
TWO_CELLS = {"hw:numa_nodes": "2"}


# What is asked for


@pytest.mark.parametrize("flavor", [{}, SHARED, {"hw:numa_cpus.0": "0-3"}, {"hw:mem_page_size": "0"}])
def test_a_flavor_without_numa_needs_floats_over_the_node(flavor: Properties) -> None:
    assert ask(flavor) == Demand(4, 512, 1, shared_vcpus=4)


def test_a_dedicated_guest_has_one_cell_and_floats_nowhere() -> None:
    demand = ask(DEDICATED)
    assert guest_cells(demand) == (cell(0, "", "0123", 512),)
    assert demand.shared_vcpus == 0


def test_cells_share_vcpus_and_memory_evenly() -> None:
    assert guest_cells(ask(TWO_CELLS)) == (cell(0, "01", "", 256), cell(1, "23", "", 256))


def test_cells_may_be_listed_one_by_one() -> None:
    lists = {"hw:numa_cpus.0": "0", "hw:numa_mem.0": "128", "hw:numa_cpus.1": "1-3", "hw:numa_mem.1": "384"}
    demand = ask(DEDICATED | TWO_CELLS | lists)
    assert guest_cells(demand) == (cell(0, "", "0", 128), cell(1, "", "123", 384))


def test_an_image_may_list_the_cells_too() -> None:
    lists = {"hw_numa_cpus.0": "0", "hw_numa_mem.0": "128", "hw_numa_cpus.1": "1-3", "hw_numa_mem.1": "384"}
    demand = ask({}, {"hw_numa_nodes": "2"} | lists)
    assert guest_cells(demand) == (cell(0, "0", "", 128), cell(1, "123", "", 384))


@pytest.mark.parametrize(
    ("mask", "pinned"), [("2-3", "23"), ("^0-1", "23"), ("0,^0,3", "3"), ("^0", "123"), ("1,3", "13")]
)
def test_a_mask_says_which_vcpus_of_a_mixed_guest_are_pinned(mask: str, pinned: str) -> None:
    demand = ask(MIXED | {"hw:cpu_dedicated_mask": mask})
    assert guest_cells(demand)[0].dedicated == set(map(int, pinned))
    assert demand.shared_vcpus == 4 - len(pinned)


def test_a_realtime_mask_pins_the_vcpus_of_a_mixed_guest() -> None:
    demand = ask(MIXED | REALTIME | {"hw:cpu_realtime_mask": "^0"})
    assert guest_cells(demand) == (cell(0, "0", "123", 512),)
    assert demand.numa
    assert demand.numa.realtime == {1, 2, 3}


def test_the_images_realtime_mask_goes_before_the_flavors() -> None:
    flavor = DEDICATED | REALTIME | {"hw:cpu_realtime_mask": "^0"}
    demand = ask(flavor, {"hw_cpu_realtime_mask": "3"})
    assert demand.numa
    assert demand.numa.realtime == {3}


def test_all_vcpus_may_be_realtime_with_an_emulator_policy() -> None:
    demand = ask(DEDICATED | REALTIME | {"hw:emulator_threads_policy": "share"})
    assert demand.numa
    assert demand.numa.realtime == {0, 1, 2, 3}


def test_realtime_that_is_off_is_as_if_it_were_not_there() -> None:
    assert ask({"hw:cpu_realtime": "no", "hw:cpu_realtime_mask": "^0"}).numa is None


# Flavor against image


@pytest.mark.parametrize(
    ("flavor", "image", "policy"),
    [
        ("dedicated", "shared", "dedicated"),
        ("dedicated", "mixed", "dedicated"),
        ("dedicated", None, "dedicated"),
        (None, "dedicated", "dedicated"),
        ("mixed", "shared", "mixed"),
        ("shared", "shared", "shared"),
        (None, "shared", "shared"),
    ],
)
def test_the_flavors_cpu_policy_wins_or_the_images_counts(
    flavor: str | None, image: str | None, policy: str
) -> None:
    extra = {"hw:cpu_policy": flavor} if flavor else {}
    extra |= MASK if policy == "mixed" else {}
    demand = ask(TWO_CELLS | extra, {"hw_cpu_policy": image} if image else {})
    assert demand.numa
    assert demand.numa.cpu_policy == policy


@pytest.mark.parametrize(
    ("flavor", "image"), [("shared", "dedicated"), ("shared", "mixed"), ("mixed", "dedicated")]
)
def test_an_image_cannot_take_more_than_the_flavor_gives(flavor: str, image: str) -> None:
    error = refusal({"hw:cpu_policy": flavor}, {"hw_cpu_policy": image})
    assert error.code == "image-cpu-pinning-forbidden"
    assert "'hw_cpu_policy' is '" + image in error.message


@pytest.mark.parametrize(
    ("flavor", "image", "policy"),
    [
        (None, "require", "require"),
        ("prefer", "require", "prefer"),
        ("prefer", "isolate", "prefer"),
        ("isolate", "isolate", "isolate"),
        ("require", None, "require"),
    ],
)
def test_the_flavors_thread_policy_wins_even_if_it_is_prefer(
    flavor: str | None, image: str | None, policy: str
) -> None:
    extra = {"hw:cpu_thread_policy": flavor} if flavor else {}
    demand = ask(DEDICATED | extra, {"hw_cpu_thread_policy": image} if image else {})
    assert demand.numa
    assert demand.numa.thread_policy == policy


@pytest.mark.parametrize(
    ("flavor", "image", "size"),
    [("any", "2048", 2048), ("large", "1GB", 1 << 20), ("any", "small", SMALL), ("any", None, ANY)],
)
def test_an_image_chooses_pages_where_the_flavor_lets_it(flavor: str, image: str | None, size: int) -> None:
    demand = ask({"hw:mem_page_size": flavor}, {"hw_mem_page_size": image} if image else {})
    assert guest_cells(demand)[0].page_size == size


# Page sizes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("small", SMALL),
        ("large", LARGE),
        ("any", ANY),
        ("4", 4),
        ("2048", 2048),
        ("2MB", 2048),
        ("2MiB", 2048),
        ("2048KB", 2048),
        ("1GB", 1 << 20),
        ("1GiB", 1 << 20),
        ("0.5MB", 512),
        ("2097152B", 2048),
        ("1Gb", 131072),
        ("8Kbit", 1),
    ],
)
def test_page_sizes_are_kib_or_have_units(text: str, size: int) -> None:
    assert guest_cells(ask({"hw:mem_page_size": text}))[0].page_size == size


@pytest.mark.parametrize(
    "text", ["1G", "2M", "3072kB", "-1", "bogus", "1.5", "1500B", "0MB", "2 MB", "٢", "9" * 40, "2MBx", "1e3"]
)
def test_a_page_size_that_is_none_is_refused(text: str) -> None:
    """F118."""
    error = refusal({"hw:mem_page_size": text})
    assert error.code == "memory-page-size-invalid"
    assert f"'hw:mem_page_size' is '{text}'" in error.message


def test_a_page_size_of_zero_is_none_at_all() -> None:
    """F118. As Nova has it: with another need the guest has a cell, and no page size."""
    assert guest_cells(ask(DEDICATED | {"hw:mem_page_size": "0"}))[0].page_size is None


# Other spellings


def test_pcpu_resources_mean_dedicated() -> None:
    demand = ask({"resources:PCPU": "4"})
    assert demand.numa
    assert demand.numa.cpu_policy == "dedicated"


def test_with_an_emulator_cpu_there_is_one_pcpu_more() -> None:
    flavor = {"hw:emulator_threads_policy": "isolate"}
    assert ask(flavor | {"resources1:PCPU": "5"}).numa
    assert "must be 5" in refusal(flavor | {"resources1:PCPU": "4"}).message


def test_vcpu_resources_mean_shared() -> None:
    assert ask({"resources:VCPU": "4"}).numa is None
    error = refusal({"resources:VCPU": "4", "hw:cpu_thread_policy": "require"})
    assert "'shared'" in error.message


@pytest.mark.parametrize(("trait", "policy"), [("required", "require"), ("forbidden", "isolate")])
def test_the_hyperthreading_trait_is_a_thread_policy(trait: str, policy: str) -> None:
    demand = ask(DEDICATED | {"trait:HW_CPU_HYPERTHREADING": trait})
    assert demand.numa
    assert demand.numa.thread_policy == policy


def test_an_image_may_require_the_hyperthreading_trait() -> None:
    demand = ask(DEDICATED, {"trait:HW_CPU_HYPERTHREADING": "required"})
    assert demand.numa
    assert demand.numa.thread_policy == "require"


# How the guest sees its CPUs


@pytest.mark.parametrize(
    ("flavor", "image", "topology"),
    [
        ({}, {}, None),
        ({"hw:cpu_cores": "2"}, {}, (2, 2, 1)),
        ({"hw:cpu_threads": "2"}, {}, (2, 1, 2)),
        ({"hw:cpu_sockets": "1"}, {}, (1, 4, 1)),
        ({"hw:cpu_sockets": "1", "hw:cpu_cores": "2", "hw:cpu_threads": "2"}, {}, (1, 2, 2)),
        ({"hw:cpu_max_sockets": "2"}, {}, (2, 2, 1)),
        ({"hw:cpu_max_sockets": "2", "hw:cpu_max_cores": "1"}, {}, (2, 1, 2)),
        ({"hw:cpu_max_sockets": "4"}, {"hw_cpu_max_sockets": "1"}, (1, 4, 1)),
        ({"hw:cpu_sockets": "4"}, {"hw_cpu_max_sockets": "2"}, (2, 2, 1)),
        ({"hw:cpu_sockets": "4"}, {"hw_cpu_cores": "4"}, (1, 4, 1)),
        ({"hw:cpu_cores": "3"}, {}, (4, 1, 1)),
    ],
)
def test_the_guest_sees_sockets_cores_and_threads(
    flavor: Properties, image: Properties, topology: tuple[int, int, int] | None
) -> None:
    assert ask(flavor, image).cpu_topology == (topology and CpuTopology(*topology))


# Refusals


@pytest.mark.parametrize(
    ("code", "flavor", "named"),
    [
        ("invalid-cpu-allocation-policy", {"hw:cpu_policy": "dedicatd"}, "'dedicatd'"),
        ("invalid-cpu-thread-allocation-policy", DEDICATED | {"hw:cpu_thread_policy": "avoid"}, "'avoid'"),
        ("invalid-emulator-threads-policy", DEDICATED | {"hw:emulator_threads_policy": "none"}, "'none'"),
        ("cpu-thread-policy-configuration-invalid", SHARED | {"hw:cpu_thread_policy": "prefer"}, "'prefer'"),
        ("cpu-thread-policy-configuration-invalid", {"trait:HW_CPU_HYPERTHREADING": "required"}, "'require'"),
        ("bad-requirement-emulator-threads-policy", {"hw:emulator_threads_policy": "isolate"}, "'isolate'"),
        ("realtime-configuration-invalid", REALTIME | {"hw:cpu_realtime_mask": "^0"}, "hw:cpu_realtime"),
        ("realtime-mask-not-found-or-invalid", DEDICATED | REALTIME, "absent"),
        (
            "realtime-mask-not-found-or-invalid",
            DEDICATED | REALTIME | {"hw:cpu_realtime_mask": "2-4"},
            "'2-4'",
        ),
        (
            "realtime-mask-not-found-or-invalid",
            DEDICATED | REALTIME | {"hw:cpu_realtime_mask": "^0-3"},
            "'^0-3'",
        ),
        ("required-mixed-or-realtime-cpu-mask", MIXED, "no mask"),
        (
            "required-mixed-or-realtime-cpu-mask",
            MIXED | MASK | REALTIME | {"hw:cpu_realtime_mask": "^0"},
            "two masks",
        ),
        ("required-mixed-instance-policy", DEDICATED | MASK, "'2-3'"),
        ("required-mixed-instance-policy", MASK, "'2-3'"),
        ("invalid-mixed-instance-dedicated-mask", MIXED | {"hw:cpu_dedicated_mask": "0-3"}, "'0-3'"),
        ("invalid-mixed-instance-dedicated-mask", MIXED | {"hw:cpu_dedicated_mask": "3-4"}, "'3-4'"),
        ("invalid-mixed-instance-dedicated-mask", MIXED | {"hw:cpu_dedicated_mask": "^0-3"}, "'^0-3'"),
        ("invalid-cpu-list", MIXED | {"hw:cpu_dedicated_mask": "3-1"}, "hw:cpu_dedicated_mask"),
        ("invalid-boolean", DEDICATED | {"hw:cpu_realtime": "maybe"}, "'maybe'"),
        ("lock-memory-forbidden", {"hw:locked_memory": "true"}, "hw:mem_page_size"),
        ("invalid-pci-numa-affinity", {"hw:pci_numa_affinity_policy": "near"}, "'near'"),
        ("invalid-request", DEDICATED | {"resources:PCPU": "4"}, "resources:PCPU"),
        ("invalid-request", {"resources:PCPU": "4", "resources:VCPU": "1"}, "resources:VCPU"),
        ("invalid-request", {"resources:PCPU": "3"}, "must be 4"),
        ("invalid-request", {"resources:PCPU": "x"}, "'x'"),
        (
            "invalid-request",
            DEDICATED | {"hw:cpu_thread_policy": "isolate", "trait:HW_CPU_HYPERTHREADING": "forbidden"},
            "trait:HW_CPU_HYPERTHREADING",
        ),
        ("invalid-request", DEDICATED | {"trait:HW_CPU_HYPERTHREADING": "maybe"}, "'maybe'"),
        ("invalid-request", {"hw:cpu_cores": "two"}, "hw:cpu_cores"),
        (
            "image-vcpu-limits-range-impossible",
            {"hw:cpu_max_sockets": "1", "hw:cpu_max_cores": "1", "hw:cpu_max_threads": "2"},
            "hw:cpu_max_threads=2",
        ),
    ],
)
def test_what_can_never_be_is_refused_by_name(code: str, flavor: Properties, named: str) -> None:
    """F118."""
    error = refusal(flavor)
    assert error.code == code
    assert named in error.message


@pytest.mark.parametrize("nodes", ["0", "-1", "x", "1.5", "129", "²", "02", " 2", "+2"])
def test_a_number_of_cells_that_is_none_is_refused(nodes: str) -> None:
    """F118."""
    error = refusal({"hw:numa_nodes": nodes})
    assert error.code == "invalid-numa-nodes-number"
    assert f"'hw:numa_nodes' is '{nodes}'" in error.message


@pytest.mark.parametrize(
    ("code", "lists"),
    [
        ("asymmetric", {}),
        ("incomplete", {"cpus.0": "0", "cpus.1": "1,2"}),
        ("incomplete", {"cpus.0": "0", "mem.0": "512"}),
        ("incomplete", {"cpus.0": "0", "cpus.2": "1,2", "mem.0": "256", "mem.1": "256"}),
        ("incomplete", {"cpus.1": "0-2"}),
        ("cpu-duplicates", {"cpus.0": "0,1", "cpus.1": "1,2", "mem.0": "256", "mem.1": "256"}),
        ("cpu-out-of-range", {"cpus.0": "0,1", "cpus.1": "2,9", "mem.0": "256", "mem.1": "256"}),
        ("cpus-unassigned", {"cpus.0": "0", "cpus.1": "1", "mem.0": "256", "mem.1": "256"}),
        ("memory-out-of-range", {"cpus.0": "0", "cpus.1": "1,2", "mem.0": "256", "mem.1": "128"}),
        ("memory-out-of-range", {"cpus.0": "0", "cpus.1": "1,2", "mem.0": "-256", "mem.1": "768"}),
        ("memory-out-of-range", {"cpus.0": "0", "cpus.1": "1,2", "mem.0": "x", "mem.1": "512"}),
    ],
)
def test_cells_that_do_not_tile_the_flavor_are_refused(code: str, lists: Properties) -> None:
    """F118."""
    error = refusal(TWO_CELLS | {f"hw:numa_{name}": value for name, value in lists.items()}, vcpus=3)
    assert error.code == f"image-numa-topology-{code}"
    assert "hw:numa_" in error.message


@pytest.mark.parametrize(
    ("code", "flavor", "image"),
    [
        ("image-numa-topology-forbidden", TWO_CELLS, {"hw_numa_nodes": "2"}),
        (
            "image-numa-topology-forbidden",
            {"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-3", "hw:numa_mem.0": "512"},
            {"hw_numa_cpus.0": "0-3"},
        ),
        (
            "image-cpu-thread-policy-forbidden",
            DEDICATED | {"hw:cpu_thread_policy": "isolate"},
            {"hw_cpu_thread_policy": "require"},
        ),
        ("memory-page-size-forbidden", {}, {"hw_mem_page_size": "2048"}),
        ("memory-page-size-forbidden", {"hw:mem_page_size": "2048"}, {"hw_mem_page_size": "2048"}),
        ("memory-page-size-invalid", {"hw:mem_page_size": "any"}, {"hw_mem_page_size": "2M"}),
        (
            "flavor-image-locked-memory-conflict",
            {"hw:locked_memory": "true", "hw:mem_page_size": "any"},
            {"hw_locked_memory": "false"},
        ),
        (
            "image-pci-numa-policy-forbidden",
            {"hw:pci_numa_affinity_policy": "legacy"},
            {"hw_pci_numa_affinity_policy": "socket"},
        ),
        ("image-vcpu-limits-range-exceeded", {"hw:cpu_max_cores": "2"}, {"hw_cpu_max_cores": "4"}),
        ("image-vcpu-topology-range-exceeded", {"hw:cpu_max_cores": "2"}, {"hw_cpu_cores": "4"}),
        ("invalid-cpu-allocation-policy", {}, {"hw_cpu_policy": "foo"}),
        ("invalid-numa-nodes-number", {}, {"hw_numa_nodes": "0"}),
    ],
)
def test_an_image_that_contradicts_its_flavor_is_refused(
    code: str, flavor: Properties, image: Properties
) -> None:
    error = refusal(flavor, image)
    assert error.code == code
    assert "hw_" in error.message or "hw:" in error.message


def test_locked_memory_with_a_page_size_is_fine() -> None:
    assert ask({"hw:locked_memory": "true", "hw:mem_page_size": "any"}).numa


def test_a_cell_for_persistent_memory_is_made_as_by_nova() -> None:
    assert guest_cells(ask({"hw:pmem": "label"})) == (cell(0, "0123", "", 512),)


# Whatever is written

_WORDS = st.sampled_from(
    [
        "dedicated",
        "shared",
        "mixed",
        "isolate",
        "require",
        "2",
        "0-1",
        "^0",
        "0",
        "yes",
        "any",
        "2MB",
        "-1",
        "x",
        "",
    ]
)
_NAMES = [
    *("cpu_policy", "cpu_thread_policy", "cpu_dedicated_mask", "cpu_realtime", "cpu_realtime_mask"),
    *("emulator_threads_policy", "numa_nodes", "numa_cpus.0", "numa_cpus.1", "numa_mem.0", "numa_mem.1"),
    *("mem_page_size", "locked_memory", "cpu_sockets", "cpu_max_cores", "pci_numa_affinity_policy"),
]


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([f"hw:{name}" for name in _NAMES]), _WORDS | st.text(max_size=4), max_size=6
    ),
    st.dictionaries(st.sampled_from([f"hw_{name}" for name in _NAMES]), _WORDS, max_size=3),
    st.integers(1, 6),
)
def test_every_request_is_a_demand_that_adds_up_or_a_refusal(
    flavor: Properties, image: Properties, vcpus: int
) -> None:
    try:
        demand = ask(flavor, image, vcpus=vcpus)
    except InvalidRequest:
        return
    if demand.numa:
        cells = demand.numa.cells
        assert sum(len(each.shared) for each in cells) == demand.shared_vcpus
        assert sum(len(each.shared | each.dedicated) for each in cells) == vcpus
        assert sum(each.memory_mb for each in cells) == demand.memory_mb
    else:
        assert demand.shared_vcpus == vcpus
