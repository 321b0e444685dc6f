"""The process of the worker of one host."""

from __future__ import annotations

import os
from functools import partial

from oslo_config import cfg
from oslo_utils import netutils
from prometheus_client import CollectorRegistry

from pinfold.cmd.assembly import broker
from pinfold.cmd.assembly.metrics import MetricsService
from pinfold.cmd.service import OnEnd, Program, Service
from pinfold.compute.service import ComputeService
from pinfold.compute.settings import Partition, Settings
from pinfold.conf import compute, image, virt
from pinfold.conf import metrics as conf_metrics
from pinfold.image.build import store_from
from pinfold.metrics import WorkerMetrics
from pinfold.rpcapi import wire
from pinfold.rpcapi.clients import CONDUCTOR_TOPIC, ConductorClient
from pinfold.rpcapi.context import Context
from pinfold.runtime import Runtime
from pinfold.virt.build import driver_from


def settings_from(conf: cfg.ConfigOpts, host: str | None = None) -> Settings:
    """The options as a record. ``host`` is one worker of a process that has several: its node has its name, and so
    has its folder in ``state_path``."""
    group = conf.compute
    nodes = tuple(group.nodes) or (conf.host,)
    return Settings(
        host=host or conf.host,
        nodes=(host,) if host else nodes,
        state_path=os.path.join(group.state_path, host) if host else group.state_path,
        partition=Partition(
            cpu_shared_set=group.cpu_shared_set,
            cpu_dedicated_set=group.cpu_dedicated_set,
            cpu_allocation_ratio=group.cpu_allocation_ratio,
            memory_allocation_ratio=group.memory_allocation_ratio,
            disk_allocation_ratio=group.disk_allocation_ratio,
            reserved_memory_mb=group.reserved_memory_mb,
            reserved_disk_gb=group.reserved_disk_gb,
            reserved_huge_pages=tuple(group.reserved_huge_pages),
            pack=group.packing_host_numa_cells_allocation_strategy,
            address=group.my_ip or netutils.get_my_ipv4(),
        ),
        heartbeat=group.heartbeat,
        audit_interval=group.audit_interval,
        max_operations=group.max_operations,
        start_wait=group.start_wait,
        stop_wait=group.stop_wait,
        patience=group.image_patience,
        destroy_tries=group.destroy_tries,
    )


def build(
    conf: cfg.ConfigOpts,
    runtime: Runtime,
    transport: wire.Transport,
    on_end: OnEnd,
    metrics: WorkerMetrics,
    host: str | None = None,
) -> ComputeService:
    """The worker as the configuration has it; ``on_end`` as in ``ComputeService``, ``host`` as in ``settings_from``.

    Raises errors.ConfigurationError.
    """
    settings = settings_from(conf, host)
    context = Context(request_id=f"req-compute-{settings.host}")
    pin = conf.upgrade_levels.conductor

    def conductor(timeout: float) -> ConductorClient:
        return ConductorClient(transport, context, pin=pin, timeout=timeout)

    return ComputeService(
        runtime=runtime,
        settings=settings,
        driver=driver_from(
            conf,
            runtime,
            settings.host,
            settings.nodes,
            memory_ratio=settings.partition.memory_allocation_ratio,
        ),
        store=store_from(conf, runtime),
        transport=transport,
        conductor=conductor(conf.rpc.response_timeout),
        heartbeats=conductor(min(conf.rpc.response_timeout, max(1.0, settings.heartbeat))),
        on_end=on_end,
        on_deaf=partial(on_end, replace=True),
        metrics=metrics,
    )


def _build(conf: cfg.ConfigOpts, runtime: Runtime, on_end: OnEnd) -> list[Service]:
    own = broker.connect(conf, runtime, host=conf.host)
    own.warm_up(CONDUCTOR_TOPIC)
    registry = CollectorRegistry()
    return [MetricsService(conf, registry), build(conf, runtime, own, on_end, WorkerMetrics(registry))]


PROGRAM = Program(
    (compute.register, image.register, conf_metrics.register, virt.register, broker.register), _build
)
