"""Options of libraries for the sample files: those that matter here, with Pinfold's defaults.

Namespaces of oslo-config-generator, as ``opts`` has those of Pinfold's own options.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

from oslo_config import cfg

from pinfold.conf import service
from pinfold.conf.opts import Listing

_RABBIT = "oslo_messaging_rabbit"
_TRANSPORT = ("transport_url", "control_exchange")
_BROKER = (
    "ssl",
    "ssl_ca_file",
    "ssl_cert_file",
    "ssl_key_file",
    "rabbit_login_method",
    "heartbeat_timeout_threshold",
    "heartbeat_rate",
    "kombu_reconnect_delay",
    "kombu_failover_strategy",
    "tcp_user_timeout",
)
#: As ``rpcapi.transport.register`` sets them.
_OURS = {"control_exchange": "pinfold", "heartbeat_timeout_threshold": 15}

# Registered by oslo.service; here for its help.
_STOP: list[cfg.Opt] = [
    cfg.IntOpt(
        "graceful_shutdown_timeout",
        default=service.GRACE,
        help="""
Seconds that a stop may take; what has not ended then is killed, and taken up again by others. 0 is without end.

Raise it together with [api] stop_wait and [compute] stop_wait, where work is to be ended rather than taken up.
""",
    )
]


def stop() -> Listing:
    """Of oslo.service: the one option that does something here."""
    return [("DEFAULT", _STOP)]


def messaging() -> Listing:
    """Of the broker: those of oslo.messaging that are not decided by [rpc] queues."""
    from oslo_messaging import opts

    found = {str(group or "DEFAULT"): options for group, options in opts.list_opts()}
    return [
        ("DEFAULT", list(_picked(found["DEFAULT"], _TRANSPORT))),
        (_RABBIT, list(_picked(found[_RABBIT], _BROKER))),
    ]


def keystone() -> Listing:
    """Of keystoneauth1, for the account that asks the image service (auth_type password)."""
    return [("image", _password())]


def tokens() -> Listing:
    """Of keystoneauth1, for the account that checks tokens (auth_type password)."""
    return [("keystone_authtoken", _password())]


def _password() -> list[cfg.Opt]:
    from keystoneauth1 import loading

    return [*loading.get_auth_common_conf_options(), *loading.get_auth_plugin_conf_options("password")]


def _picked(options: Iterable[cfg.Opt], names: Iterable[str]) -> Iterable[cfg.Opt]:
    """Copies of the named ones, in that order."""
    known = {option.dest: option for option in options}
    for name in names:
        if name not in known:
            continue  # another version of the library does without
        option = copy.copy(known[name])
        option.default = _OURS.get(name, option.default)
        yield option


def set_log_defaults() -> None:
    """What the generator calls before it asks oslo.log for its options."""
    from pinfold.conf import logs

    logs.set_defaults()
