"""The numbers that a process counts as it works, for Prometheus.

Each record is made on a registry that is handed in; nothing here is global. To count something is to add to a number
in memory: no record, no lock that others wait for long, no query.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_WAITS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60)
_STEPS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_REQUESTS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class ApiMetrics:
    """Of an API."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self.requests = Histogram(
            "pinfold_request_seconds",
            "Requests, by how long they took.",
            ("method", "route", "status"),
            registry=registry,
            buckets=_REQUESTS,
        )


class ConductorMetrics:
    """Of a conductor."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self.sweeps = Counter(
            "pinfold_sweeps", "Looks for what nobody ends.", ("sweep", "result"), registry=registry
        )
        self.swept = Counter(
            "pinfold_swept", "What those looks found and took up.", ("sweep",), registry=registry
        )
        self.lease_losses = Counter(
            "pinfold_lease_losses",
            "Operations that a worker had taken up and did not renew in time.",
            ("kind",),
            registry=registry,
        )
        self.deadlines = Counter(
            "pinfold_deadlines_passed", "Operations whose time was over.", ("kind",), registry=registry
        )
        self.placements = Histogram(
            "pinfold_placement_seconds",
            "Choices of a node, by how long they took.",
            registry=registry,
            buckets=_WAITS,
        )
        self.deaf = Counter(
            "pinfold_deaf_workers",
            "Workers that were heard, took nothing from their queue, and ended for that.",
            ("host",),
            registry=registry,
        )
        self.claims = Counter(
            "pinfold_claims_asked",
            "Claims that workers asked for, by the book's answer.",
            ("outcome",),
            registry=registry,
        )


class WorkerMetrics:
    """Of the workers of a process; ``host`` tells them apart."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self.queue_wait = Histogram(
            "pinfold_queue_wait_seconds",
            "How long work waited for its server's turn and a free place on the worker.",
            ("host", "kind"),
            registry=registry,
            buckets=_WAITS,
        )
        self.lock_wait = Histogram(
            "pinfold_lock_wait_seconds",
            "How long claims waited for the lock of their node.",
            ("host", "node"),
            registry=registry,
            buckets=_WAITS,
        )
        self.steps = Histogram(
            "pinfold_step_seconds",
            "Steps of operations, by how long they took.",
            ("host", "kind", "step", "result"),
            registry=registry,
            buckets=_STEPS,
        )
        self.heartbeats = Counter(
            "pinfold_heartbeats",
            "Signs of life, by whether a conductor heard them.",
            ("host", "result"),
            registry=registry,
        )
        self.differences = Counter(
            "pinfold_audit_differences",
            "What the audits of a node have found, by kind; of kind mass nothing was healed.",
            ("host", "node", "kind"),
            registry=registry,
        )
        self.unheard = Gauge(
            "pinfold_unheard_seconds",
            "For how long no message has come of those that were sent to see whether they do.",
            ("host",),
            registry=registry,
        )
        self.under_way = Gauge(
            "pinfold_operations_under_way",
            "Operations that the worker has taken and not ended.",
            ("host",),
            registry=registry,
        )
        self.not_held = Gauge(
            "pinfold_releases_not_held",
            "Releases of claims that the tracker did not hold: nothing changed.",
            ("host",),
            registry=registry,
        )
