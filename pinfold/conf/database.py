"""Options of the database: ``[database]``. They have the names of oslo.db's, of which no others are read."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "database"

OPTIONS: list[cfg.Opt] = [
    cfg.StrOpt(
        "connection",
        secret=True,
        help="URL of the database, such as postgresql://user:password@host/pinfold, mysql://..., or "
        "sqlite:////var/lib/pinfold/pinfold.db for a cloud on one machine. Set it equal on all API and conductor "
        "services, and never on a compute host, which needs no database: keep the password away from there.",
    ),
    cfg.IntOpt(
        "max_pool_size",
        default=10,
        min=1,
        help="How many connections to the database one process keeps; who needs one more waits. Raise it together "
        "with [api] threads or [rpc] pool_size; the sum over all processes must stay below what the "
        "database lets in.",
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options of group [database]. Repeating it is harmless."""
    conf.register_opts(OPTIONS, group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """For the generator of sample files."""
    return [(GROUP, OPTIONS)]
