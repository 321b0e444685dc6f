"""Names and values of extra specs, as the flavor API checks them."""

from __future__ import annotations

import pytest

from pinfold.model.errors import InvalidRequest
from pinfold.model.request import unknown_extra_specs, validate_extra_specs


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hw:cpu_policy", "mixed"),
        ("hw:cpu_dedicated_mask", "^0-1"),
        ("hw:numa_nodes", "2"),
        ("hw:numa_cpus.11", "0-3,^1"),
        ("hw:numa_mem.0", "512"),
        ("hw:mem_page_size", "2MB"),
        ("hw:cpu_realtime", "True"),
        ("hw:watchdog_action", "poweroff"),
        ("hw:serial_port_count", "0"),
        ("hw_rng:allowed", "false"),
        ("os:secure_boot", "required"),
        ("resources:PCPU", "4"),
        ("resources1:CUSTOM_THING", "0"),
        ("trait:HW_CPU_HYPERTHREADING", "forbidden"),
        ("trait_group:CUSTOM_FAST", "required"),
        ("quota:cpu_shares", "anything"),
        ("capabilities:cpu_info:arch", "x86_64"),
        ("mine", "x"),
        ("mine:own", "x"),
    ],
)
def test_what_is_known_or_the_operators_own_is_accepted(name: str, value: str) -> None:
    validate_extra_specs({name: value})
    assert unknown_extra_specs({name: value}) == ()


@pytest.mark.parametrize(
    "name",
    [
        "hw:cpu_polciy",
        "hw:numa_cpus",
        "hw:numa_cpus.x",
        "hw:pmem",
        "hw_rng:x",
        "os:x",
        "trait:lower",
        "resources:",
    ],
)
def test_a_name_that_is_unknown_in_a_known_namespace_is_refused(name: str) -> None:
    assert unknown_extra_specs({name: "1", "hw:numa_nodes": "1"}) == (name,)
    with pytest.raises(InvalidRequest, match=name) as refused:
        validate_extra_specs({name: "1"})
    assert refused.value.code == "unknown-extra-spec"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hw:cpu_policy", "dedicatd"),
        ("hw:cpu_dedicated_mask", "x"),
        ("hw:numa_nodes", "0"),
        ("hw:numa_cpus.0", "3-1"),
        ("hw:numa_mem.0", "0"),
        ("hw:mem_page_size", "2M"),
        ("hw:cpu_realtime", "maybe"),
        ("hw:serial_port_count", "-1"),
        ("hw:redirected_usb_ports", "16"),
        ("resources:PCPU", "four"),
        ("trait:HW_CPU_HYPERTHREADING", "wanted"),
    ],
)
def test_a_value_that_a_name_does_not_take_is_refused_with_both(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        validate_extra_specs({name: value})
    assert name in refused.value.message
    assert value in refused.value.message


def test_nothing_is_wrong_with_no_extra_specs() -> None:
    validate_extra_specs({})
    assert unknown_extra_specs({}) == ()
