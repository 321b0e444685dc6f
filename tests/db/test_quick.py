"""Statements the short way and by the session: the same rows, the same entities, the same errors."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from oslo_db import exception as db_errors
from sqlalchemy.orm import Session

from pinfold.db import quick
from pinfold.db.models import Instance, QuotaSet
from pinfold.db.session import Book
from tests.db.test_book import a_server, book, url

__all__ = ["book", "url"]

_SERVER = sa.select(Instance, Instance.name).where(Instance.id == sa.bindparam("id", type_=sa.String()))


def server(session: Session) -> Instance:
    found: Instance = quick.one(session, _SERVER, id="a")
    return found


def test_an_entity_is_the_sessions_own_whichever_way_it_was_read_first(book: Book) -> None:
    book.write(lambda session: [a_server(session, name) for name in ("a", "b")])

    def write(session: Session) -> None:
        assert server(session) is session.get_one(Instance, "a") is server(session)
        assert session.get_one(Instance, "b") is quick.one(session, _SERVER, id="b")
        assert quick.first(session, _SERVER, id="c") is None

    book.write(write)


def test_what_is_changed_is_written_in_both_kinds_of_entities_and_with_what_is_new(book: Book) -> None:
    book.write(lambda session: a_server(session, "a"))

    def write(session: Session, *, new: bool) -> None:
        row = server(session)
        row.tags, row.fault = [*row.tags, "x"], {"code": 1}
        if new:
            session.add(QuotaSet(project_id="p", user_id="", limits={}))
        else:
            session.get_one(QuotaSet, ("p", "")).limits = {"cores": 1}

    book.write(lambda session: write(session, new=True))
    book.write(lambda session: write(session, new=False))
    row, limits = book.read(
        lambda session: (session.get_one(Instance, "a"), session.get_one(QuotaSet, ("p", "")).limits)
    )
    assert (row.tags, row.fault, limits) == (["x", "x"], {"code": 1}, {"cores": 1})


def test_an_error_of_the_driver_is_raised_as_one_of_the_book(book: Book) -> None:
    insert = sa.insert(QuotaSet).values(project_id="p", user_id="", limits={})
    book.write(lambda session: quick.change(session, insert))
    with pytest.raises(db_errors.DBDuplicateEntry):
        book.write(lambda session: quick.change(session, insert))
