"""Options that every service process has."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from oslo_config import cfg

_SERVICE = [
    cfg.HostAddressOpt(
        "host",
        default=socket.gethostname(),
        sample_default="<the machine's name>",
        help="""
The name of this host in the cloud: workers are known and rung by it.

Set it when the machine's own name is not unique or may change. A worker whose name changes is a new host.
""",
    ),
    cfg.StrOpt(
        "concurrency_backend",
        default="threading",
        choices=[
            ("threading", "native threads"),
            ("eventlet", "green threads; eventlet's own authors discourage it for new deployments"),
        ],
        help="""
What a thread is in this process. It is read before anything else, so it must stand in a file that is given
by --config-file or --config-dir (or the environment's PINFOLD_CONCURRENCY_BACKEND).

There is no reason to change it unless a deployment must stay on eventlet.
""",
    ),
    cfg.StrOpt(
        "pid_file",
        help="""
Where to write the number of the process that does the work; it is rewritten whenever the supervisor
replaces that process. The supervisor's own number stands beside it, in a file that ends in .supervisor
instead of .pid, and a lock that keeps a second start out in one that ends in .lock.

Set it where something else than systemd starts and stops the services.
""",
    ),
    cfg.FloatOpt(
        "start_wait",
        default=60.0,
        min=0.0,
        help="""
Seconds that a start waits for the former process with the same pid_file to be gone; after them the start
fails and says which process is in the way.

Raise it together with graceful_shutdown_timeout, and keep it above that.
""",
    ),
]

# Every step of an operation can be taken up again, so a stop needs no patience for long ones.
GRACE = 15


def register(conf: cfg.ConfigOpts) -> None:
    """Add these options to ``conf``. Repeating it is harmless."""
    from oslo_service import opts as oslo_service

    conf.register_opts(_SERVICE)
    oslo_service.register_service_opts(conf)
    conf.set_default("graceful_shutdown_timeout", GRACE)
    # At start, oslo.service lists every option at debug level; the listing is long and seldom read.
    conf.set_default("log_options", False)


def list_opts() -> list[tuple[str, Sequence[cfg.Opt]]]:
    """For the generator of sample files."""
    return [("DEFAULT", _SERVICE)]
