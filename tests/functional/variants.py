"""What the suite can be run on: each variant is a set of options of stack.sh for each shape of cloud."""

from __future__ import annotations

EVENTLET = ("--set", "DEFAULT.concurrency_backend=eventlet")

#: variant: shape: options.
VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    "standard": {"all-in-one": (), "multi": ("--multi",)},
    "eventlet": {"all-in-one": EVENTLET, "multi": ("--multi", *EVENTLET)},
    "mariadb": {"multi": ("--multi", "--database", "mariadb")},
    # every process writes to one file
    "sqlite": {"multi": ("--multi", "--database-url", "sqlite:///{folder}/book.db")},
    # quorum queues are on when several brokers are configured
    "cluster": {"multi": ("--multi", "--brokers", "3")},
    # what differs from the standard in everything
    "other": {
        "all-in-one": EVENTLET,
        "multi": ("--multi", "--database", "mariadb", "--brokers", "3", *EVENTLET),
    },
}
