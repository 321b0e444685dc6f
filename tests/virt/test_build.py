"""The driver that the configuration asks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from oslo_config import cfg

from pinfold.conf import virt
from pinfold.runtime import RealRuntime
from pinfold.virt.build import driver_from, machine_from
from pinfold.virt.faults import OrderedFault
from pinfold.virt.topology import default_machine
from tests.virt.conftest import spec


def configured(path: Path, **fake: object) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    virt.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override("state_path", str(path / "hypervisor"), group="fake")
    for name, value in fake.items():
        conf.set_override(name, value, group="fake")
    return conf


def test_each_host_has_a_folder_of_its_own(tmp_path: Path) -> None:
    conf = configured(tmp_path, disk_gb=9)
    for host in ("host-1", "host-2"):
        driver = driver_from(conf, RealRuntime(), host, [host])
        driver.spawn(spec("x", node=host), iter([b"x"]))
        assert (tmp_path / "hypervisor" / host / host / "guests" / "x" / "disk").exists()
        assert driver.inventory(host).disk_gb == 9
        assert driver.inventory(host).cells == default_machine().cells


def test_the_topology_and_fault_files_are_those_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "topology.json").write_text(json.dumps([{"id": 0, "pcpuset": [5], "memory": 100}]))
    (tmp_path / "faults.json").write_text(json.dumps([{"call": "list", "effect": "fail"}]))
    conf = configured(
        tmp_path, topology=str(tmp_path / "topology.json"), fault_file=str(tmp_path / "faults.json")
    )
    driver = driver_from(conf, RealRuntime(), "h", ["n"])
    assert driver.inventory("n").cells == machine_from(conf).cells
    assert machine_from(conf).dedicated == {5}
    with pytest.raises(OrderedFault):
        driver.list("n")


def test_every_option_says_what_it_is_for_and_when_to_change_it() -> None:
    for group, options in virt.OPTIONS.items():
        for option in options:
            assert len(option.help or "") > 80, f"[{group}] {option.name}"
