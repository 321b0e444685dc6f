"""What each service may do at the broker: one account per process that is no more than it needs.

A worker may listen at its own queues, and tell the conductors; it can neither send to another host nor read
what is meant for it. That is why nobody calls a worker: to answer a call, an account must be allowed to
write to every queue (through the broker's default exchange). One thing no account can be denied is to
delete the exchange, because oslo.messaging declares it before each use.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from pinfold.rpcapi.clients import COMPUTE_TOPIC, CONDUCTOR_TOPIC

EXCHANGE = "pinfold"
#: Stands in the names of a worker's own queues, after its host; a dot and eight digits of its own follow.
PROCESS = "pinfold-compute"
_NUMBERED = rf"{PROCESS}\.[0-9a-f]{{8}}:\d+"


class Permissions(msgspec.Struct, frozen=True):
    """Patterns as RabbitMQ wants them: of names of queues and exchanges, and of routing keys (``topic_``)."""

    configure: str
    write: str
    read: str
    topic_write: str
    topic_read: str

    def commands(self, user: str, vhost: str = "/") -> list[list[str]]:
        """The arguments of the two calls of rabbitmqctl that grant this to ``user``."""
        return [
            ["set_permissions", "-p", vhost, user, self.configure, self.write, self.read],
            ["set_topic_permissions", "-p", vhost, user, EXCHANGE, self.topic_write, self.topic_read],
        ]


def for_compute(host: str) -> Permissions:
    """The worker of ``host``: its own queues, the fanout exchange to listen at, messages to conductors."""
    name = re.escape(host)
    own = [
        COMPUTE_TOPIC,
        rf"{COMPUTE_TOPIC}\.{name}",
        rf"{COMPUTE_TOPIC}_fanout_{name}:{_NUMBERED}",
        rf"reply_{name}:{_NUMBERED}",
    ]
    fanout = f"{COMPUTE_TOPIC}_fanout"
    return Permissions(
        configure=_any_of(*own, fanout, EXCHANGE),
        write=_any_of(*own, EXCHANGE),
        read=_any_of(*own, fanout, EXCHANGE),
        topic_write=_any_of(CONDUCTOR_TOPIC),
        topic_read=_any_of(COMPUTE_TOPIC, rf"{COMPUTE_TOPIC}\.{name}"),
    )


def for_api() -> Permissions:
    """The API: sends to conductors and workers, and listens to nobody."""
    return Permissions(
        configure=_any_of(EXCHANGE),
        write=_any_of(EXCHANGE),
        read="^$",
        topic_write=_any_of(CONDUCTOR_TOPIC, rf"{COMPUTE_TOPIC}\..+"),
        topic_read="^$",
    )


def for_conductor() -> Permissions:
    """A conductor: its topic's queues, messages to workers, and replies to whoever calls."""
    own = [rf"{CONDUCTOR_TOPIC}(\..+)?", rf"{CONDUCTOR_TOPIC}_fanout(_.+)?", r"reply_[0-9a-f]+"]
    return Permissions(
        configure=_any_of(*own, EXCHANGE),
        write=_any_of(*own, EXCHANGE, r"amq\.default"),
        read=_any_of(*own, EXCHANGE),
        topic_write=_any_of(CONDUCTOR_TOPIC, rf"{COMPUTE_TOPIC}\..+"),
        topic_read=_any_of(rf"{CONDUCTOR_TOPIC}(\..+)?"),
    )


def definitions(accounts: Mapping[str, tuple[str, Permissions]], vhost: str = "/") -> dict[str, Any]:
    """Accounts (name to password and permissions) as a file for ``rabbitmqctl import_definitions``."""
    return {
        "users": [_user(name, password) for name, (password, _) in accounts.items()],
        "vhosts": [{"name": vhost}],
        "permissions": [
            {"user": name, "vhost": vhost, "configure": may.configure, "write": may.write, "read": may.read}
            for name, (_, may) in accounts.items()
        ],
        "topic_permissions": [
            {
                "user": name,
                "vhost": vhost,
                "exchange": EXCHANGE,
                "write": may.topic_write,
                "read": may.topic_read,
            }
            for name, (_, may) in accounts.items()
        ],
    }


def _user(name: str, password: str) -> dict[str, Any]:
    salt = secrets.token_bytes(4)
    digest = hashlib.sha256(salt + password.encode()).digest()
    return {
        "name": name,
        "password_hash": base64.b64encode(salt + digest).decode(),
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": "",
    }


def _any_of(*patterns: str) -> str:
    return f"^({'|'.join(patterns)})$"
