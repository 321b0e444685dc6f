"""Options of availability zones, which API and conductor must agree on."""

from __future__ import annotations

from oslo_config import cfg

OPTIONS: list[cfg.Opt] = [
    cfg.StrOpt(
        "default_availability_zone",
        default="nova",
        help="The availability zone of hosts that are in no aggregate with a zone. Change it only before the first "
        "server is made; set it equal on all API and conductor services.",
    ),
    cfg.StrOpt(
        "internal_service_availability_zone",
        default="internal",
        help="The availability zone that services other than workers are shown in. Change it when a zone of hosts is "
        "to have this name.",
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options of zones in [DEFAULT]. Repeating it is harmless."""
    conf.register_opts(OPTIONS)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """For the generator of sample files."""
    return [("DEFAULT", OPTIONS)]
