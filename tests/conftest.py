"""What all tests share."""

from __future__ import annotations

from pinfold import concurrency

concurrency.choose()

from collections.abc import Iterator  # noqa: E402  the mode comes first, as in every entry point

import pytest  # noqa: E402

from tests.servers import Broker, Database, private_broker, private_database  # noqa: E402

DATABASES = ("sqlite", "postgresql", "mariadb")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--databases",
        default="sqlite,postgresql",
        help=f"where the conductor's tests run, of {','.join(DATABASES)} (those of the book: on all)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--databases").split(",")
        if wrong := set(chosen) - set(DATABASES):
            raise pytest.UsageError(f"--databases: {wrong} is not among {DATABASES}")
        metafunc.parametrize("database", chosen)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A private RabbitMQ, one for all tests of a session: use names of your own."""
    with private_broker() as running:
        yield running


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Database]:
    """A private PostgreSQL, one for all tests of a session: take a database of your own from it."""
    with private_database("postgresql") as running:
        yield running


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Database]:
    """A private MariaDB, as ``postgresql``."""
    with private_database("mariadb") as running:
        yield running
