"""The configuration and the log of a service process."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg
from oslo_log import log

from pinfold import concurrency
from pinfold.conf import rpc, service
from pinfold.model import errors

# Libraries that tell more than an operator wants to read.
_QUIETER = [
    "amqp=WARN",
    "kombu=WARN",
    "oslo.messaging=INFO",
    "oslo_messaging=INFO",
    "sqlalchemy=WARN",
    "alembic=WARN",
]


def configure(name: str, argv: Sequence[str]) -> cfg.ConfigOpts:
    """The options that every process has, as the files of ``name`` have them, and the log set up.

    Further ones may be registered on it.

    Raises errors.ConfigurationError naming the option that is wrong.
    """
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    log.set_defaults(default_log_levels=_QUIETER)
    service.register(conf)
    rpc.register(conf)
    try:
        conf(list(argv), project="pinfold", prog=name)
    except cfg.Error as error:
        raise errors.ConfigurationError(str(error)) from error
    concurrency.check(conf.concurrency_backend)
    if not (conf.log_file or conf.log_dir or conf.use_syslog or conf.use_journal):
        # oslo.log would write to the standard output, which is no place for it.
        conf.set_override("use_stderr", True)
    log.setup(conf, "pinfold")
    return conf
