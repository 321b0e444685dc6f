"""What a request writes, when the database does not say whether it has written it."""

from __future__ import annotations

import sqlite3
from typing import Any

from oslo_db import exception as db_errors
from sqlalchemy.orm import Session

from tests.conductor.box import Box
from tests.conductor.conftest import box, make_box, url

__all__ = ["box", "make_box", "url"]  # fixtures


class _Breaks:
    """Held by the book around each transaction: the connection breaks after the next commit."""

    def __init__(self) -> None:
        self.times = 1

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, where: Any) -> None:
        if kind is None and self.times > 0:
            self.times -= 1
            raise db_errors.DBConnectionError(sqlite3.OperationalError("the connection broke"))


def lose_the_next_answer(box: Box) -> None:
    """The next commit gets through, and its answer does not."""
    box.book._turn = _Breaks()


def test_a_create_whose_commit_was_not_answered_makes_one_server(box: Box) -> None:
    lose_the_next_answer(box)
    server = box.ask_create()
    assert box.last.instance == server


def test_a_request_whose_commit_was_not_answered_is_accepted(box: Box) -> None:
    server = box.boot()
    for kind in ("shelve", "delete"):
        lose_the_next_answer(box)
        box.ask(kind, server)
        assert box.operation(server).kind == kind


def test_an_unshelve_whose_commit_was_not_answered_is_run(box: Box) -> None:
    server = box.boot()
    box.shelve(server)
    lose_the_next_answer(box)
    box.ask("unshelve", server)
    assert (box.last.kind, box.last.instance) == ("unshelve", server)


def test_a_transaction_is_told_that_it_runs_again(box: Box) -> None:
    lose_the_next_answer(box)
    seen: list[bool] = []

    def work(session: Session) -> None:
        seen.append(session.info["again"])

    box.book.write(work)
    assert seen == [False, True]
