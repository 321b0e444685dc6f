"""Options of messages between services. Those of the broker's connection are oslo.messaging's own."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

_RPC = [
    cfg.IntOpt(
        "pool_size",
        default=64,
        min=1,
        help="""
How many messages one process works on at the same time; more wait in its memory.

Raise it for a conductor whose database answers slowly while its CPU is idle, together with [database]
max_pool_size. Lower it where memory is short. What a worker does for operations is bounded by [compute]
max_operations, not by this.
""",
    ),
    cfg.FloatOpt(
        "response_timeout",
        default=10.0,
        min=1.0,
        help="""
Seconds to wait for the reply to a call. A call that got none is made again, which is harmless: a conductor
that died with a call in its hands costs its worker that long.

Raise it when calls time out while the conductors live, because the database is slow.
""",
    ),
    cfg.StrOpt(
        "queues",
        default="auto",
        choices=[
            ("auto", "quorum when transport_url names several brokers, else transient"),
            ("transient", "in memory: fastest; what waits in them is lost with the broker, and rung again"),
            ("durable", "on the disk of one broker: survive its restart, not its loss; not for clusters"),
            ("quorum", "replicated over the brokers of a cluster: survive the loss of one"),
        ],
        help="""
The kind of queue. Messages are only bells, the database is the record, so none of these loses work.

Set it equal on all services of a virtual host. A queue cannot change its kind: to change it, give the services
a new virtual host in transport_url, and remove the old one when it is empty.
""",
    ),
]

_UPGRADE_LEVELS = [
    cfg.StrOpt(
        service,
        help=f"""
The newest version of the RPC interface of {service} to speak, as "1.0"; by default the newest known.

Set it before a rolling upgrade to the version of the oldest {service} that still runs, and remove it when
the last one is upgraded. What that version cannot say is refused before anything changes.
""",
    )
    for service in ("compute", "conductor")
]


def register(conf: cfg.ConfigOpts) -> None:
    """Add these options to ``conf``. Repeating it is harmless."""
    conf.register_opts(_RPC, group="rpc")
    conf.register_opts(_UPGRADE_LEVELS, group="upgrade_levels")


def list_opts() -> list[tuple[str, Sequence[cfg.Opt]]]:
    """For the generator of sample files."""
    return [("rpc", _RPC), ("upgrade_levels", _UPGRADE_LEVELS)]
