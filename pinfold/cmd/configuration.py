"""The configuration and the log of a service process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oslo_config import cfg
from oslo_log import log

from pinfold import concurrency
from pinfold.conf import logs, rpc, service
from pinfold.model import errors

LOG = log.getLogger(__name__)


class Configuration(cfg.ConfigOpts):
    """Options that a reload with a broken file leaves as they are.

    Supervisor and worker both reload, in places where an error would end them.
    """

    def mutate_config_files(self) -> dict[tuple[str | None, str], tuple[Any, Any]]:
        """Read the files again; the options that changed."""
        try:
            changed = super().mutate_config_files()
        except Exception as error:
            what = str(error)
        else:
            # oslo.config forgets what was read before it reads the files, not after: what another thread
            # read meanwhile would stay as it was. Every change of an override makes it forget again.
            self.clear_override("concurrency_backend")
            return changed
        LOG.error("The configuration was not reloaded, the former stays in force: %s", what)
        return {}


def configure(name: str, argv: Sequence[str]) -> cfg.ConfigOpts:
    """The options that every process has, as the files of ``name`` have them, and the log set up.

    Further ones may be registered on it.

    Raises errors.ConfigurationError naming the option that is wrong.
    """
    conf = Configuration()
    log.register_options(conf)
    logs.set_defaults()
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


def check(conf: cfg.ConfigOpts) -> None:
    """Look at all options that are registered, alone and together; log what is odd.

    Raises errors.ConfigurationError that names each option that cannot be.
    """
    # Asked only by the process that works: the supervisor does without.
    from pinfold.conf import checks, files

    for problem in checks.require(checks.of_process(conf, files.read_all(conf))):
        LOG.warning(problem.text)
