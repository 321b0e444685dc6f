"""Options of the numbers that a process without an HTTP API shows to Prometheus: ``[metrics]``."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "metrics"

OPTIONS: list[cfg.Opt] = [
    cfg.PortOpt(
        "port",
        default=0,
        help="Port at which this process shows its numbers, at the path /metrics; 0 is nowhere. Set it where "
        "Prometheus is to see conductors and workers; give each process of a machine its own. The API shows them at "
        "its own address.",
    ),
    cfg.HostAddressOpt(
        "host",
        default="127.0.0.1",
        help="Address to show them at. Change it to one that Prometheus reaches; anybody who reaches it may read "
        "them, so keep it off networks of users.",
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options of group [metrics]. Repeating it is harmless."""
    conf.register_opts(OPTIONS, group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """For the generator of sample files."""
    return [(GROUP, OPTIONS)]
