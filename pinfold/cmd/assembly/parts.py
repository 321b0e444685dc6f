"""What every service process is put together from: configuration and log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from oslo_config import cfg
from oslo_log import log

from pinfold import concurrency
from pinfold.conf import rpc, service
from pinfold.model import errors

Register = Callable[[cfg.ConfigOpts], None]

# Libraries that tell more than an operator wants to read.
_QUIETER = [
    "amqp=WARN",
    "kombu=WARN",
    "oslo.messaging=INFO",
    "oslo_messaging=INFO",
    "sqlalchemy=WARN",
    "alembic=WARN",
]


def configure(name: str, argv: Sequence[str], registers: Iterable[Register]) -> cfg.ConfigOpts:
    """The options of process ``name`` as its files have them, and the log set up.

    Raises errors.ConfigurationError naming the option that is wrong.
    """
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    log.set_defaults(default_log_levels=_QUIETER)
    service.register(conf)
    rpc.register(conf)
    for register in registers:
        register(conf)
    try:
        conf(list(argv), project="pinfold", prog=name)
    except cfg.Error as error:
        raise errors.ConfigurationError(str(error)) from error
    concurrency.check(conf.concurrency_backend)
    log.setup(conf, "pinfold")
    return conf
