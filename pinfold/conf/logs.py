"""How log lines look unless the files say otherwise (the options are oslo.log's)."""

from __future__ import annotations

from oslo_log import log

# The request, the operation, the user and the project: what ``rpcapi.context`` has of them.
_LINE = (
    "%(asctime)s.%(msecs)03d %(process)d %(levelname)s %(name)s "
    "[%(request_id)s %(operation)s %(user_id)s %(project_id)s] %(message)s"
)
# Libraries that tell more than an operator wants to read.
_QUIETER = [
    "amqp=WARN",
    "kombu=WARN",
    "oslo.messaging=INFO",
    "oslo_messaging=INFO",
    "sqlalchemy=WARN",
    "alembic=WARN",
]


def set_defaults() -> None:
    """Ours in place of oslo.log's, for this process."""
    log.set_defaults(logging_context_format_string=_LINE, default_log_levels=_QUIETER)
