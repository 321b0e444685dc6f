"""What is imported is required, and what is required is imported."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = {"pinfold", "devstack", "tests", "benchmarks", "doc"}

# What is used without being imported.
BY_NAME = {
    "psycopg": "by SQLAlchemy, for postgresql:// URLs",
    "pymysql": "by SQLAlchemy, for mysql:// URLs",
}
TOOLS = {"import-linter", "mypy", "pytest-xdist", "reno", "ruff"}


def required(name: str) -> dict[str, str]:
    """The lines of a file of requirements, by canonical name."""
    lines = [line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines()]
    return {canonical(re.split(r"[\[><=~ ]", line)[0]): line for line in lines if line}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(folders: Iterable[str]) -> set[str]:
    """The top-level modules of others that are imported anywhere in the folders."""
    found = set()
    for folder in folders:
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - OURS


def distributions(modules: Iterable[str]) -> set[str]:
    known = metadata.packages_distributions()
    return {canonical(known[module][0]) for module in modules if module in known}


@pytest.fixture(scope="module")
def product() -> set[str]:
    return distributions(imported(["pinfold", "devstack"]))


def test_the_services_require_what_they_import_and_nothing_else(product: set[str]) -> None:
    assert product | set(BY_NAME) == set(required("requirements.txt"))


def test_the_tests_require_what_else_they_import(product: set[str]) -> None:
    others = distributions(imported(["tests", "benchmarks", "doc"])) - product
    brought = set(required("devstack/requirements.txt")) | {"openstacksdk", "docutils"}
    wanted = {name for name in required("test-requirements.txt") if not name.startswith("types-")}
    assert others - brought == wanted - TOOLS
    assert wanted >= TOOLS


def test_what_is_imported_only_where_a_driver_asks_for_it_is_an_extra() -> None:
    """A module that is not installed with the services comes with an extra of its own."""
    known = metadata.packages_distributions()
    assert {module for module in imported(["pinfold"]) if module not in known} <= {"libvirt"}
