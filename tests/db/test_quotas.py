"""Limits, and what is counted against them."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import Session

from pinfold.db import quotas
from pinfold.db.models import Instance, Operation, QuotaSet
from pinfold.db.session import Book
from pinfold.model.quotas import DEFAULTS, OverQuota
from pinfold.runtime import RealRuntime
from tests.db.test_book import a_server, book, url

__all__ = ["book", "url"]

SMALL = {**DEFAULTS, "instances": 5, "cores": 20, "ram": 5000}
EACH = {"cores": 2, "ram": 512}


def servers(session: Session, *names: str, project: str = "p", user: str = "u", **fields: Any) -> None:
    for name in names:
        row = a_server(session, name)
        row.project_id, row.user_id = project, user
        row.flavor = {"flavorid": "f", "name": "f", "vcpus": 2, "memory_mb": 512}
        for field, value in fields.items():
            setattr(row, field, value)
    session.flush()


def room(book: Book, least: int = 1, most: int = 9, user: str = "u") -> int:
    def work(session: Session) -> int:
        may = quotas.locked_limits(session, SMALL, "p", user)
        return quotas.room_for_servers(session, may, "p", user, EACH, least, most)

    return book.write(work)


def test_what_is_used_is_counted_from_the_flavors_of_live_servers(book: Book) -> None:
    def write(session: Session) -> None:
        servers(session, "a", "b")
        servers(session, "c", user="v")
        servers(session, "gone", deleted_at=1.0)
        servers(session, "kept", vm_state="soft-delete")
        servers(session, "elsewhere", project="q")
        servers(session, "offloaded", vm_state="shelved_offloaded")

    book.write(write)
    used = book.read(lambda session: quotas.used_by_servers(session, "p", "u"))
    assert used.project == {"instances": 4, "cores": 8, "ram": 2048}
    assert used.user == {"instances": 3, "cores": 6, "ram": 1536}
    nobody = book.read(lambda session: quotas.used_by_servers(session, "nobody"))
    assert nobody.project == {"instances": 0, "cores": 0, "ram": 0}


def test_a_server_counts_as_the_larger_of_what_it_was_and_is_to_be(book: Book) -> None:
    """F097 in kind: two resizes at once do not both take the room that is there for one."""

    def flavor(vcpus: int) -> dict[str, Any]:
        return {"flavor": {"flavorid": "g", "name": "g", "vcpus": vcpus, "memory_mb": 100 * vcpus}}

    def write(session: Session) -> None:
        servers(session, "a", "b", "c")
        session.get_one(Instance, "a").moved_from = flavor(8)
        for server, vcpus in (("b", 16), ("c", 1)):
            session.execute(
                sa.insert(Operation).values(
                    id=server,
                    kind="resize",
                    instance_id=server,
                    open_key=server,
                    arguments=flavor(vcpus),
                    lease_until=0.0,
                    deadline_at=0.0,
                    request_id="r",
                    project_id="p",
                    user_id="u",
                    created_at=0.0,
                    updated_at=0.0,
                )
            )

    book.write(write)
    used = book.read(lambda session: quotas.used_by_servers(session, "p"))
    assert used.project == {"instances": 3, "cores": 8 + 16 + 2, "ram": 800 + 1600 + 512}


def test_own_limits_come_before_the_class_and_the_class_before_the_options(book: Book) -> None:
    def write(session: Session) -> None:
        quotas.set_class_limits(session, "default", {"cores": 7, "ram": 8})
        quotas.set_class_limits(session, "other", {"instances": 99})
        quotas.set_limits(session, "p", "", {"ram": 9})
        quotas.set_limits(session, "p", "u", {"instances": 1})

    book.write(write)
    may = book.read(lambda session: quotas.limits(session, SMALL, "p", "u"))
    assert {name: may.project[name] for name in ("instances", "cores", "ram")} == {
        "instances": 5,
        "cores": 7,
        "ram": 9,
    }
    assert may.user == {"instances": 1}
    assert book.read(lambda session: quotas.limits(session, SMALL, "q", "u")).user == {}


def test_room_is_what_all_limits_leave(book: Book) -> None:
    assert room(book) == 5
    book.write(lambda session: servers(session, "a", "b"))
    assert room(book) == 3
    book.write(lambda session: quotas.set_limits(session, "p", "", {"cores": 7}))
    assert room(book) == 1
    with pytest.raises(OverQuota, match="cores of the project: Requested 4, but already used 4 of 7"):
        room(book, least=2)


def test_a_users_own_limit_is_compared_with_their_own_servers(book: Book) -> None:
    """F097: two users with one server each; the third is refused by the user's limit, which the message names."""

    def write(session: Session) -> None:
        quotas.set_limits(session, "p", "u", {"instances": 1})
        quotas.set_limits(session, "p", "v", {"instances": 1})
        servers(session, "a", user="u")

    book.write(write)
    assert room(book, user="v") == 1
    with pytest.raises(OverQuota, match="instances of the user: Requested 1, but already used 1 of 1"):
        room(book, user="u")


def test_parallel_transactions_against_room_for_k_leave_exactly_k(book: Book) -> None:
    """F097: counted and written under one lock, from the very first request of the project on."""
    runtime = RealRuntime()
    outcomes: list[str] = []

    def make(name: str) -> None:
        def work(session: Session) -> None:
            may = quotas.locked_limits(session, SMALL, "p", "u")
            quotas.room_for_servers(session, may, "p", "u", EACH, 1, 1)
            servers(session, name)

        try:
            book.write(work)
        except OverQuota:
            outcomes.append("refused")
        else:
            outcomes.append("made")

    tasks = [runtime.spawn(make, f"s{number}", name=f"s{number}") for number in range(20)]
    assert all(task.join(60) for task in tasks)
    assert sorted(outcomes) == ["made"] * 5 + ["refused"] * 15
    live = book.read(lambda session: session.scalar(sa.select(sa.func.count()).select_from(Instance)))
    assert live == 5


def test_two_that_note_a_project_for_the_first_time_both_go_on(book: Book) -> None:
    runtime = RealRuntime()
    tasks = [
        runtime.spawn(lambda: book.write(lambda session: quotas.lock(session, "new")), name=str(number))
        for number in range(8)
    ]
    assert all(task.join(60) for task in tasks)
    rows = book.read(lambda session: session.scalars(sa.select(QuotaSet.project_id)).all())
    assert list(rows) == ["new"]


def test_f096_what_is_asked_for_a_server_that_is_counted_already_is_held_against_the_rest(book: Book) -> None:
    def ask(**asked: int) -> None:
        book.write(lambda session: quotas.require_servers(session, SMALL, "p", "u", asked))

    book.write(lambda session: servers(session, "a", "b"))
    ask(instances=1, cores=2)
    book.write(lambda session: quotas.set_limits(session, "p", "", {"cores": 3}))
    with pytest.raises(OverQuota, match="cores of the project: Requested 2, but already used 2 of 3 cores"):
        ask(instances=1, cores=2, ram=512)
    ask(ram=512)
    book.write(lambda session: quotas.set_limits(session, "p", "u", {"ram": 1000}))
    with pytest.raises(OverQuota, match="ram of the user: Requested 512, but already used 512 of 1000 ram"):
        ask(ram=512)


def test_dropping_limits_leaves_the_defaults_and_the_lock(book: Book) -> None:
    def write(session: Session) -> None:
        quotas.set_limits(session, "p", "", {"instances": 1})
        quotas.set_limits(session, "p", "u", {"instances": 1})

    book.write(write)
    book.write(lambda session: quotas.drop_limits(session, "p", "u"))
    may = book.read(lambda session: quotas.limits(session, SMALL, "p", "u"))
    assert (may.project["instances"], may.user) == (1, {})
    book.write(lambda session: quotas.drop_limits(session, "p"))
    assert book.read(lambda session: quotas.limits(session, SMALL, "p")).project == SMALL


def test_counting_costs_one_statement_however_many_servers(book: Book) -> None:
    seen: list[str] = []

    def note(*arguments: Any) -> None:
        seen.append(arguments[2])

    counts = []
    for number in (1, 30):
        book.write(lambda session, n=number: servers(session, *(f"{n}-{i}" for i in range(n))))  # type: ignore[misc]
        seen.clear()
        event.listen(book.engine, "before_cursor_execute", note)
        book.read(lambda session: quotas.used_by_servers(session, "p"))
        event.remove(book.engine, "before_cursor_execute", note)
        counts.append(len([text for text in seen if not text.startswith("BEGIN")]))
    # where the driver is asked itself, SQLAlchemy sees none
    usual = 0 if book.engine.dialect.name == "postgresql" else 1
    assert counts == [usual, usual]
