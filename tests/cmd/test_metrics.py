"""A process without an HTTP API shows its numbers at an address of its own."""

from __future__ import annotations

import httpx
import pytest
from oslo_config import cfg
from prometheus_client import CollectorRegistry

from pinfold.cmd.assembly.metrics import MetricsService
from pinfold.conf import metrics
from pinfold.metrics import ApiMetrics, ConductorMetrics, WorkerMetrics
from pinfold.model import errors
from tests.servers import free_ports


def configured(port: int) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    metrics.register(conf)
    conf([], project="pinfold")
    conf.set_override("port", port, group="metrics")
    return conf


def test_they_are_shown_while_it_runs() -> None:
    (port,), registry = free_ports(1), CollectorRegistry()
    ConductorMetrics(registry).lease_losses.labels("create").inc()
    service = MetricsService(configured(port), registry)
    service.start()
    try:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    finally:
        service.stop()
    assert 'pinfold_lease_losses_total{kind="create"} 1.0' in text
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/metrics")


def test_without_a_port_nothing_listens_and_a_stop_is_harmless() -> None:
    service = MetricsService(configured(0), CollectorRegistry())
    service.start()
    service.stop()
    service.stop()


def test_a_port_that_is_taken_is_named() -> None:
    (port,) = free_ports(1)
    first, second = (MetricsService(configured(port), CollectorRegistry()) for _ in range(2))
    first.start()
    try:
        with pytest.raises(errors.ConfigurationError, match=rf"\[metrics\] .* port = {port}"):
            second.start()
    finally:
        first.stop()


def test_all_of_them_go_into_one_registry() -> None:
    registry = CollectorRegistry()
    for kind in (ApiMetrics, ConductorMetrics, WorkerMetrics):
        kind(registry)
    names = {family.name for family in registry.collect()}
    assert len(names) > 10
    assert all(name.startswith("pinfold_") for name in names)


def test_nothing_is_counted_in_a_global_place() -> None:
    from prometheus_client import REGISTRY

    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("pinfold")]
