"""Both transports, behind one face."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest
from oslo_config import cfg

from pinfold.conf import rpc, service
from pinfold.rpcapi import local, transport, wire
from pinfold.rpcapi.context import Context
from pinfold.runtime import RealRuntime
from tests.servers import Broker

CALLER = Context("req-1", user_id="u", project_id="p", roles=("member",))


class Wiring(Protocol):
    """Makes transports that reach each other."""

    def transport(self, pool_size: int = 8) -> wire.Transport:
        """One more process, as it were."""


class LocalWiring:
    """All over one hub for each size of pool; tests use one."""

    def __init__(self) -> None:
        self._hub: local.Hub | None = None

    def transport(self, pool_size: int = 8) -> wire.Transport:
        if self._hub is None:
            self._hub = local.Hub(RealRuntime(), pool_size)
        return local.LocalTransport(self._hub)


class RabbitWiring:
    """Each transport with a configuration of its own."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self._url = url
        self._stack = stack

    def transport(self, pool_size: int = 8) -> wire.Transport:
        made = transport.connect(configuration(self._url, pool_size=pool_size), RealRuntime())
        self._stack.callback(made.close)
        return made


def configuration(url: str, **options: object) -> cfg.ConfigOpts:
    """A private configuration; ``options`` are of [rpc]."""
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[], default_config_dirs=[])
    rpc.register(conf)
    service.register(conf)
    transport.register(conf)
    conf.set_override("transport_url", url)
    for name, value in options.items():
        conf.set_override(name, value, group="rpc")
    return conf


def worker_configuration(url: str, folder: Path) -> cfg.ConfigOpts:
    """The configuration of a worker, whose queues have names of their own."""
    conf = configuration(url)
    conf.set_override("pid_file", str(folder / "worker.pid"))
    return conf


@pytest.fixture(params=["local", "rabbit"])
def wiring(request: pytest.FixtureRequest) -> Iterator[Wiring]:
    if request.param == "local":
        yield LocalWiring()
        return
    broker: Broker = request.getfixturevalue("broker")
    with ExitStack() as stack:
        yield RabbitWiring(broker.url(), stack)


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:8]}"
