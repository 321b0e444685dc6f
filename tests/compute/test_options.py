"""The options become the worker's settings."""

from __future__ import annotations

from pathlib import Path

from oslo_config import cfg

from pinfold.cmd.assembly.compute import build, settings_from
from pinfold.conf import compute, image, rpc, service, virt
from pinfold.metrics import WorkerMetrics
from pinfold.rpcapi.local import Hub, LocalTransport
from pinfold.runtime import RealRuntime


def _conf(folder: Path, text: str) -> cfg.ConfigOpts:
    path = folder / "compute.conf"
    path.write_text(text)
    conf = cfg.ConfigOpts()
    for module in (service, rpc, compute, image, virt):
        module.register(conf)
    conf(["--config-file", str(path)], project="pinfold")
    return conf


def test_one_node_named_as_the_host_is_the_default(tmp_path: Path) -> None:
    settings = settings_from(_conf(tmp_path, "[DEFAULT]\nhost = host-7\n"))
    assert (settings.host, settings.nodes) == ("host-7", ("host-7",))
    assert settings.partition.cpu_shared_set is None
    assert settings.partition.reserved_huge_pages == ()


def test_what_stands_in_a_file_arrives(tmp_path: Path) -> None:
    text = """
[DEFAULT]
host = host-1
[compute]
nodes = a, b
cpu_shared_set = 0,8
cpu_dedicated_set = 1-7,9-15
cpu_allocation_ratio = 2.0
reserved_huge_pages = node:0,size:2048,count:64
reserved_huge_pages = node:1,size:2048,count:32
packing_host_numa_cells_allocation_strategy = true
heartbeat = 1.5
"""
    settings = settings_from(_conf(tmp_path, text))
    assert settings.nodes == ("a", "b")
    assert settings.partition.cpu_dedicated_set == "1-7,9-15"
    assert settings.partition.reserved_huge_pages == (
        "node:0,size:2048,count:64",
        "node:1,size:2048,count:32",
    )
    assert settings.partition.pack
    assert settings.heartbeat == 1.5


def test_one_of_several_workers_of_a_process_has_a_host_and_node_of_its_own(tmp_path: Path) -> None:
    conf = _conf(tmp_path, "[DEFAULT]\nhost = all\n[compute]\nnodes = host-1,host-2\n")
    settings = settings_from(conf, "host-2")
    assert (settings.host, settings.nodes) == ("host-2", ("host-2",))


def test_a_worker_is_built_from_its_file(tmp_path: Path) -> None:
    text = f"""
[DEFAULT]
host = host-1
[compute]
state_path = {tmp_path}/state
[fake]
state_path = {tmp_path}/hypervisor
[image]
path = {tmp_path}/images
"""
    runtime = RealRuntime()
    transport = LocalTransport(Hub(runtime))
    service = build(
        _conf(tmp_path, text), runtime, transport, lambda why, replace=False: None, WorkerMetrics()
    )
    service.stop()
    assert service.incarnation
