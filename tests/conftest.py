"""What all tests share."""

from __future__ import annotations

from pinfold import concurrency

concurrency.choose()

from collections.abc import Iterator  # noqa: E402  the mode comes first, as in every entry point

import pytest  # noqa: E402

from tests.servers import Broker, Database, private_broker, private_database  # noqa: E402


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A private RabbitMQ, one for all tests of a session: use names of your own."""
    with private_broker() as running:
        yield running


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Database]:
    """A private PostgreSQL, one for all tests of a session: take a database of your own from it."""
    with private_database() as running:
        yield running
