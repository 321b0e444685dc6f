"""Options of the API: ``[api]``."""

from __future__ import annotations

from oslo_config import cfg

from pinfold.conf import quota, zones

GROUP = "api"

_SERVER: list[cfg.Opt] = [
    cfg.HostAddressOpt(
        "host",
        default="127.0.0.1",
        help="Address to listen at. Change it to the one that clients or a proxy reach; with auth_strategy noauth "
        "only loopback addresses are accepted, because everybody who can reach it is admin.",
    ),
    cfg.PortOpt(
        "port", default=8774, min=1, help="Port to listen at. Change it when another service has this one."
    ),
    cfg.IntOpt(
        "threads",
        default=8,
        min=1,
        max=1000,
        help="How many requests are worked on at the same time; more wait. Raise it where the database is slow while "
        "the CPU is idle, together with [database] max_pool_size; for more CPU run more API processes.",
    ),
    cfg.IntOpt(
        "backlog",
        default=1024,
        min=1,
        help="How many connections may wait to be accepted. Raise it where bursts of clients are refused.",
    ),
    cfg.IntOpt(
        "connection_limit",
        default=1000,
        min=10,
        help="How many connections may be open; more wait in the backlog. Raise it, and the limit of open files, for "
        "more clients that keep connections alive.",
    ),
    cfg.FloatOpt(
        "stop_wait",
        default=10.0,
        min=0.0,
        help="Seconds that a stop lets requests end. Raise it for long uploads of images; keep it below [DEFAULT] "
        "graceful_shutdown_timeout.",
    ),
    cfg.FloatOpt(
        "heartbeat",
        default=5.0,
        min=0.1,
        help="Seconds between two notes in the database that this API lives. Raise it where the database is slow; "
        "keep it below [operations] service_down_time.",
    ),
]

_REQUESTS: list[cfg.Opt] = [
    cfg.StrOpt(
        "auth_strategy",
        default="keystone",
        choices=[
            (
                "keystone",
                "tokens are checked by keystonemiddleware, whose options stand in [keystone_authtoken]",
            ),
            (
                "noauth",
                "X-Auth-Token is USER:PROJECT[:ROLE,...] and is believed; for loopback addresses only",
            ),
        ],
        help="How callers are known. Change it to noauth for a cloud on one machine that only you can reach.",
    ),
    cfg.IntOpt(
        "max_limit",
        default=1000,
        min=1,
        help="The most items of a list in one answer; clients follow links to the next. Lower it where answers are "
        "too large for a proxy.",
    ),
    cfg.IntOpt(
        "max_request_body_size",
        default=114688,
        min=1024,
        help="The largest body of a request, in bytes (images apart). Raise it only for very large user_data.",
    ),
    cfg.IntOpt(
        "max_image_size",
        default=1024**4,
        min=1,
        help="The largest image that may be uploaded, in bytes. Lower it where the store is small.",
    ),
    cfg.IntOpt(
        "max_servers_per_request",
        default=100,
        min=1,
        help="The most servers that one request may make. Raise it for large batches.",
    ),
    cfg.BoolOpt(
        "enable_instance_password",
        default=True,
        help="Whether the answer to a create has an administrator's password. Turn it off where hypervisors cannot "
        "set it and users would be misled.",
    ),
    cfg.IntOpt(
        "password_length",
        default=12,
        min=1,
        max=255,
        help="Length of such passwords. Raise it where a policy asks for longer ones.",
    ),
    cfg.URIOpt(
        "compute_link_prefix",
        schemes=["http", "https"],
        help="What links in answers begin with, as https://cloud.example.org/compute. Set it behind a proxy that "
        "changes the scheme, the host or the path; without it the client's Host header is used.",
    ),
]

OPTIONS: list[cfg.Opt] = [*_SERVER, *_REQUESTS]


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options of groups [api] and [quota], and of zones."""
    conf.register_opts(OPTIONS, group=GROUP)
    quota.register(conf)
    zones.register(conf)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """For the generator of sample files."""
    return [(GROUP, OPTIONS), *quota.list_opts(), *zones.list_opts()]
