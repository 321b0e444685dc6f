"""All services in one process, over the in-process transport."""

from __future__ import annotations

from oslo_config import cfg
from prometheus_client import CollectorRegistry

from pinfold.cmd.assembly import api, book, compute, conductor
from pinfold.cmd.service import OnEnd, Program, Service
from pinfold.conf import api as api_options
from pinfold.conf import compute as compute_options
from pinfold.conf import conductor as conductor_options
from pinfold.conf import image, operations, virt
from pinfold.metrics import WorkerMetrics
from pinfold.rpcapi.local import Hub, LocalTransport
from pinfold.runtime import Runtime


def _build(conf: cfg.ConfigOpts, runtime: Runtime, on_end: OnEnd) -> list[Service]:
    the_book = book.book_from(conf, runtime)
    transport = LocalTransport(Hub(runtime, conf.rpc.pool_size))
    hosts = conf.compute.nodes or [None]
    registry = CollectorRegistry()
    workers = WorkerMetrics(registry)
    return [
        conductor.build(conf, runtime, transport, the_book, registry),
        *(compute.build(conf, runtime, transport, on_end, workers, host) for host in hosts),
        api.build(conf, runtime, transport, the_book, registry),
    ]


PROGRAM = Program(
    (
        book.register,
        api_options.register,
        compute_options.register,
        conductor_options.register,
        image.register,
        operations.register,
        virt.register,
    ),
    _build,
)
