"""Options of time: how long operations may take, and when a service counts as down."""

from __future__ import annotations

from oslo_config import cfg

from pinfold.model.states import KINDS
from pinfold.model.work import Times

GROUP = "operations"

RECLAIM_INSTANCE_INTERVAL = cfg.IntOpt(
    "reclaim_instance_interval",
    default=0,
    min=0,
    help="Seconds that a deleted server is only stopped and can be restored, until a conductor deletes it for good. "
    "0 deletes at once. Set it where people delete what they still need; the price is that a deleted server keeps "
    "its CPUs and memory meanwhile, though not its quota. Must be equal on all API and conductor services.",
)

OPTIONS: list[cfg.Opt] = [
    cfg.FloatOpt(
        "service_down_time",
        default=15.0,
        min=1.0,
        help="Seconds without a heartbeat until a compute service counts as down. Keep it at several times "
        "[compute] heartbeat. Raise it where hosts or the broker pause for longer; the price is that servers of "
        "a dead host are seen as such later. Must be equal on all API and conductor services.",
    ),
    cfg.FloatOpt(
        "lease",
        default=15.0,
        min=1.0,
        help="Seconds that a worker may leave an operation unrenewed until a conductor carries it on or unwinds it. "
        "Raise it together with service_down_time. Must be equal on all services.",
    ),
    cfg.FloatOpt(
        "sweep_after",
        default=3.0,
        min=0.1,
        help="Seconds until an operation that no worker has taken up is cast again. Raise it where brokers are slow.",
    ),
    *(
        cfg.FloatOpt(
            f"{kind.name}_deadline",
            default=float(kind.deadline),
            min=1.0,
            help=f"Seconds until a {kind.name.replace('_', ' ')} that has not ended is unwound. Raise it for large "
            "disks or slow hypervisors; lower it to hear of a stuck host sooner.",
        )
        for kind in KINDS.values()
        if kind.steps
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options of group [operations], and [DEFAULT] reclaim_instance_interval."""
    conf.register_opt(RECLAIM_INSTANCE_INTERVAL)
    conf.register_opts(OPTIONS, group=GROUP)


def times(conf: cfg.ConfigOpts) -> Times:
    """The options as a record."""
    group = conf[GROUP]
    return Times(
        service_down=group.service_down_time,
        lease=group.lease,
        sweep_after=group.sweep_after,
        deadlines={kind.name: group[f"{kind.name}_deadline"] for kind in KINDS.values() if kind.steps},
        keep_deleted=conf.reclaim_instance_interval,
    )


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """For the generator of sample files."""
    return [("DEFAULT", [RECLAIM_INSTANCE_INTERVAL]), (GROUP, OPTIONS)]
