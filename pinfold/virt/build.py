"""The fake driver as the configuration has it; it is the only one so far."""

from __future__ import annotations

import os
from collections.abc import Sequence

from oslo_config import cfg

from pinfold.runtime import Runtime
from pinfold.virt.driver import Driver
from pinfold.virt.fake import FakeDriver
from pinfold.virt.topology import Machine, default_machine, read_machine


def machine_from(conf: cfg.ConfigOpts) -> Machine:
    """The fake machines' shape, with the CPU sets that go with it.

    Raises errors.ConfigurationError for an unusable topology file.
    """
    path = conf.fake.topology
    return read_machine(path) if path else default_machine()


def driver_from(
    conf: cfg.ConfigOpts, runtime: Runtime, host: str, nodes: Sequence[str], *, memory_ratio: float = 1.0
) -> Driver:
    """The driver of ``host``. Options are those of ``pinfold.conf.virt``.

    Raises errors.ConfigurationError when it cannot be used with them.
    """
    return FakeDriver(
        runtime,
        host,
        nodes,
        os.path.join(conf.fake.state_path, host),
        conf.fake.fault_file,
        machine_from(conf).cells,
        disk_gb=conf.fake.disk_gb,
        memory_ratio=memory_ratio,
        shared_storage=conf.fake.shared_storage,
        cpu_model=conf.fake.cpu_model,
    )
