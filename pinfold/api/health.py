"""``/healthz`` and ``/metrics``."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pinfold.api.call import Call, Reply
from pinfold.api.deps import Deps
from pinfold.db import nodes as book_nodes
from pinfold.db import operations_read
from pinfold.db.session import Book
from pinfold.model import errors

LOG = logging.getLogger(__name__)


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
    """Numbers that are read from the book when they are asked for."""

    def __init__(self, book: Book, service_down: float) -> None:
        self._book = book
        self._service_down = service_down

    def describe(self) -> Iterable[Metric]:
        """Nothing is known before it is asked for."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Operations by kind and result; per node: up, claims by role, free dedicated CPUs per cell."""

        def read(session: Any) -> tuple[list[tuple[str, str, int]], list[book_nodes.NodeRow]]:
            return operations_read.counted(session), book_nodes.listed(session, self._service_down)

        counted, nodes = self._book.read(read)
        operations = GaugeMetricFamily(
            "pinfold_operations", "Operations in the book.", labels=("kind", "result")
        )
        for kind, result, count in counted:
            operations.add_metric((kind, result), count)
        yield operations
        yield from _of_nodes(nodes)


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
