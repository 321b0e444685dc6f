"""``/healthz`` and ``/metrics``."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from pinfold.api.call import Call, Reply
from pinfold.api.deps import Deps
from pinfold.db import nodes as book_nodes
from pinfold.db import operations_read
from pinfold.db.operations_read import Tally
from pinfold.db.session import Book
from pinfold.model import errors
from pinfold.runtime import Runtime

LOG = logging.getLogger(__name__)

# Whoever asks more often gets the same numbers: they cost a look at all operations.
_KEPT = 5.0


def healthz(call: Call) -> Reply:
    """200 only if the database and the broker answer."""
    checks = {"database": _database_answers(call.deps.book), "broker": _broker_answers(call.deps)}
    status = 200 if all(checks.values()) else 503
    shown = {name: "ok" if good else "no answer" for name, good in checks.items()}
    return Reply(shown, status=status)


def _database_answers(book: Book) -> bool:
    try:
        book.read(lambda session: session.execute(sa.text("SELECT 1")).scalar())
    except Exception as error:  # whatever it is, it does not answer
        LOG.warning("The database does not answer: %s", error)
        return False
    return True


def _broker_answers(deps: Deps) -> bool:
    try:
        return deps.broker_answers()
    except errors.PinfoldError as error:
        LOG.warning("The broker does not answer: %s", error)
        return False


def metrics(call: Call) -> Reply:
    """What Prometheus reads."""
    text = generate_latest(call.deps.registry)
    return Reply(stream=[text], content_type=CONTENT_TYPE_LATEST)


class BookCollector(Collector):
    """Numbers that are read from the book when they are asked for, and then kept for ``_KEPT`` seconds."""

    def __init__(self, book: Book, service_down: float, runtime: Runtime) -> None:
        self._book = book
        self._service_down = service_down
        self._runtime = runtime
        self._lock = runtime.lock()
        self._read_at = float("-inf")
        self._families: list[Metric] = []

    def describe(self) -> Iterable[Metric]:
        """Nothing is known before it is asked for."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Operations by kind and result, with durations; per node: up, claims by role, free dedicated CPUs per cell.
        A database that does not answer takes away these numbers only."""
        with self._lock:
            if self._runtime.monotonic() - self._read_at > _KEPT:
                self._families = self._look()
                self._read_at = self._runtime.monotonic()
            return self._families

    def _look(self) -> list[Metric]:
        def read(session: Any) -> tuple[list[Tally], list[book_nodes.NodeRow]]:
            return operations_read.tallied(session), book_nodes.listed(session, self._service_down)

        answers = GaugeMetricFamily("pinfold_database_up", "Whether the database answers.")
        try:
            tallies, nodes = self._book.read(read)
        except Exception as error:  # whatever it is, it does not answer
            LOG.warning("The database does not answer: %s", error)
            answers.add_metric((), 0.0)
            return [answers]
        answers.add_metric((), 1.0)
        return [answers, *_of_operations(tallies), *_of_nodes(nodes)]


def _of_operations(tallies: Iterable[Tally]) -> Iterable[Metric]:
    labels = ("kind", "result")
    counts = GaugeMetricFamily("pinfold_operations", "Operations in the book.", labels=labels)
    took = HistogramMetricFamily(
        "pinfold_operation_seconds", "Operations that have ended, by how long they took.", labels=labels
    )
    for tally in tallies:
        counts.add_metric((tally.kind, tally.result), tally.count)
        if tally.result != "running":
            buckets = [
                (str(limit), within)
                for limit, within in zip(operations_read.DURATIONS, tally.within, strict=True)
            ]
            took.add_metric(
                (tally.kind, tally.result), [*buckets, ("+Inf", tally.count)], sum_value=tally.seconds
            )
    return (counts, took)


def _of_nodes(nodes: list[book_nodes.NodeRow]) -> Iterable[Metric]:
    up = GaugeMetricFamily("pinfold_node_up", "Whether the node's worker is up.", labels=("node",))
    claims = GaugeMetricFamily("pinfold_claims", "Claims on a node.", labels=("node", "role"))
    free = GaugeMetricFamily(
        "pinfold_cpus_free", "Dedicated CPUs that nobody holds.", labels=("node", "cell")
    )
    for node in nodes:
        up.add_metric((node.name,), float(node.up))
        roles = [claim.role for claim in node.claims]
        for role in sorted(set(roles)):
            claims.add_metric((node.name, role), roles.count(role))
        for cell in node.report.topology.cells:
            held = sum(cpu in cell.dedicated for cpu in node.pins)
            free.add_metric((node.name, str(cell.id)), len(cell.dedicated) - held)
    return (up, claims, free)
