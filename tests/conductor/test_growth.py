"""What costs the same however large the book is: nothing that is done often looks at all rows of a table."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from pinfold.db import instances
from pinfold.db.models import Report
from pinfold.db.types import epoch
from tests.books import sqlite_url
from tests.conductor.box import Box

GROWS = re.compile(
    r"SCAN (instances|operations|claims|pins|current_claim|incoming_claim)(?! USING INDEX ix_instances_alive)"
)


@pytest.fixture
def url(tmp_path: pathlib.Path) -> str:
    """SQLite says how it finds rows without regard to their number, and so the same for few as for many."""
    return sqlite_url(tmp_path)


def test_no_statement_of_a_servers_life_nor_a_list_scans_what_grows(box: Box) -> None:
    seen: dict[str, Any] = {}

    def note(connection: object, cursor: object, statement: str, parameters: Any, *rest: object) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE")):
            seen.setdefault(statement, parameters)

    event.listen(box.book.engine, "before_cursor_execute", note)
    server = box.ask_create()
    work = box.compute.work[-1]
    box.begin(work, "spawn")
    box.claim(work)
    box.beat(work.host, work)
    box.finish(work)
    box.sweep()
    box.book.read(lambda session: instances.show(session, server))
    listed = len(seen)
    box.book.read(lambda session: instances.listed(session, instances.Filters(), [("created_at", True)], 20))
    event.remove(box.book.engine, "before_cursor_execute", note)
    assert len(seen) == listed + 1 > 20
    with box.book.engine.connect() as connection:
        plans = {
            statement: [
                row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            ]
            for statement, parameters in seen.items()
        }
    assert not [step for step in list(plans.values())[listed] if "TEMP B-TREE FOR ORDER BY" in step]
    assert not [(plan, text) for text, plan in plans.items() if any(map(GROWS.search, plan))]


def test_old_answers_go_without_another_question(box: Box) -> None:
    def ask(session: Any) -> None:
        values = {"kind": "guests", "host": "n1", "asked_at": epoch() - 7200}
        session.execute(sa.insert(Report).values(id="old", cast_at=epoch() - 7200, **values))
        session.execute(sa.insert(Report).values(id="new", cast_at=epoch() - 60, **values))

    box.book.write(ask)
    box.sweeper.reports()
    assert box.book.read(lambda session: session.scalars(sa.select(Report.id)).all()) == ["new"]
