"""The process of a conductor."""

from __future__ import annotations

from oslo_config import cfg
from prometheus_client import CollectorRegistry

from pinfold.cmd.assembly import book, broker
from pinfold.cmd.assembly.metrics import MetricsService
from pinfold.cmd.service import OnEnd, Program, Service
from pinfold.conductor.service import ConductorService
from pinfold.conductor.settings import settings_from
from pinfold.conf import conductor, image, metrics, operations
from pinfold.db.session import Book
from pinfold.image.build import store_from
from pinfold.metrics import ConductorMetrics
from pinfold.rpcapi import wire
from pinfold.runtime import Runtime


def build(
    conf: cfg.ConfigOpts, runtime: Runtime, transport: wire.Transport, book: Book, registry: CollectorRegistry
) -> ConductorService:
    """The conductor as the configuration has it. Raises errors.ConfigurationError."""
    return ConductorService(
        book,
        transport,
        store_from(conf, runtime),
        runtime,
        settings_from(conf),
        compute_pin=conf.upgrade_levels.compute,
        metrics=ConductorMetrics(registry),
    )


def _build(conf: cfg.ConfigOpts, runtime: Runtime, on_end: OnEnd) -> list[Service]:
    registry = CollectorRegistry()
    return [
        MetricsService(conf, registry),
        build(conf, runtime, broker.connect(conf, runtime), book.book_from(conf, runtime), registry),
    ]


PROGRAM = Program(
    (
        book.register,
        conductor.register,
        image.register,
        metrics.register,
        operations.register,
        broker.register,
    ),
    _build,
)
