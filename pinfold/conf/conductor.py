"""Options of the conductor."""

from __future__ import annotations

from oslo_config import cfg

from pinfold.conf import zones

GROUP = "conductor"

SHELVED_OFFLOAD_TIME = cfg.IntOpt(
    "shelved_offload_time",
    default=0,
    help="Seconds that a shelved server keeps its place: 0 offloads it as part of the shelve, -1 never by itself, "
    "anything else by a conductor once that time is over. Raise it where people shelve for an hour and want to come "
    "back fast; the price is CPUs that stay pinned meanwhile. Read by conductors; set it equal on all of them.",
)

ALLOW_RESIZE_TO_SAME_HOST = cfg.BoolOpt(
    "allow_resize_to_same_host",
    default=False,
    help="Whether a resize may leave a server on its host. It then holds its old and its new CPUs there until the "
    "resize is confirmed. Turn it on where there are few hosts. Read by conductors; set it equal on all of them.",
)
RESIZE_CONFIRM_WINDOW = cfg.IntOpt(
    "resize_confirm_window",
    default=0,
    min=0,
    help="Seconds after which a resize or migration that nobody has confirmed or reverted is confirmed by a "
    "conductor; 0 leaves it to people. Set it where people forget; the price is that a revert is possible for this "
    "long only. Read by conductors; set it equal on all of them.",
)

DEFAULT_OPTIONS = [SHELVED_OFFLOAD_TIME, ALLOW_RESIZE_TO_SAME_HOST, RESIZE_CONFIRM_WINDOW]

OPTIONS: list[cfg.Opt] = [
    cfg.FloatOpt(
        "sweep_interval",
        default=1.0,
        min=0.05,
        help="Seconds between two looks for operations that nobody ends, and for deeds of the outbox. Raise it on "
        "a busy database; the price is that what a dead process left is taken up later.",
    ),
    cfg.FloatOpt(
        "heartbeat",
        default=3.0,
        min=0.1,
        help="Seconds between two notes in the database that this conductor lives. Keep it below [operations] "
        "service_down_time; raise both where the database is slow.",
    ),
    cfg.IntOpt(
        "max_attempts",
        default=3,
        min=1,
        help="On how many hosts a server is tried before its create or unshelve fails because none could start it. "
        "Hosts that refuse for want of room do not count. Raise it where single hosts fail often.",
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options of group [conductor], those of [DEFAULT], and those of zones."""
    zones.register(conf)
    conf.register_opts(DEFAULT_OPTIONS)
    conf.register_opts(OPTIONS, group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """For the generator of sample files."""
    return [("DEFAULT", DEFAULT_OPTIONS), (GROUP, OPTIONS), *zones.list_opts()]
