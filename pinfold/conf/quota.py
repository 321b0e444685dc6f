"""Options of quotas: ``[quota]``, the limits of projects that have none of their own."""

from __future__ import annotations

from oslo_config import cfg

from pinfold.model import quotas

GROUP = "quota"

_HELP = {
    "instances": "The most servers of a project, whatever their state.",
    "cores": "The most vCPUs of all servers of a project together, offloaded ones too.",
    "ram": "The most memory of all servers of a project together, in MB.",
    "metadata_items": "The most items of metadata of one server.",
    "key_pairs": "The most keypairs of one user.",
    "server_groups": "The most server groups of a project.",
    "server_group_members": "The most servers in one server group.",
}

OPTIONS: list[cfg.Opt] = [
    cfg.IntOpt(
        name,
        default=quotas.DEFAULTS[name],
        min=quotas.UNLIMITED,
        help=f"{text} -1 is without a limit. Raise it for the needs of most projects; limits of one project, or of a "
        "user in it, are set over the API and come first. Set it equal on all API services.",
    )
    for name, text in _HELP.items()
]


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options of group [quota]."""
    conf.register_opts(OPTIONS, group=GROUP)


def limits(conf: cfg.ConfigOpts) -> dict[str, int]:
    """The options as limits by name; what has no option has its default."""
    return {**quotas.DEFAULTS, **{name: conf[GROUP][name] for name in _HELP}}


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """For the generator of sample files."""
    return [(GROUP, OPTIONS)]
