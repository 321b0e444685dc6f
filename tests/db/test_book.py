"""The rules that the database itself keeps, whatever the code above it does."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from oslo_db import exception as db_errors
from sqlalchemy.orm import Session

from pinfold.db import claims, schema
from pinfold.db.models import Base, Claim, Flavor, Instance, Node, Pin
from pinfold.db.session import Book, make_engine
from pinfold.db.types import epoch
from pinfold.model import errors
from pinfold.model.host import ClaimView
from pinfold.model.numa import PlacedCell, Placement
from pinfold.model.request import demand_for
from pinfold.runtime import RealRuntime
from tests.books import new_book, sqlite_url
from tests.conductor.box import two_cells

KINDS = ["sqlite", "postgresql", "mariadb"]


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    url: str = request.getfixturevalue(request.param).emptied()
    return url


@pytest.fixture(params=KINDS)
def url_of_nothing(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    """A database without tables."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    url: str = request.getfixturevalue(request.param).create()
    return url


@pytest.fixture
def book(url: str) -> Iterator[Book]:
    book = new_book(url)
    yield book
    book.engine.dispose()


def a_node(session: Session, name: str = "n1") -> Node:
    node = Node(
        uuid=name, name=name, host=name, generation=0, report=two_cells(name), created_at=0.0, updated_at=0.0
    )
    session.add(node)
    session.flush()
    return node


def a_server(session: Session, name: str) -> Instance:
    server = Instance(
        id=name,
        project_id="p",
        user_id="u",
        name=name,
        hostname=name,
        reservation_id="r",
        vm_state="active",
        created_at=0.0,
        updated_at=0.0,
        image_ref="",
        flavor={},
        demand=demand_for(vcpus=1, memory_mb=1, disk_gb=1, extra_specs={}, image_properties={}),
    )
    session.add(server)
    session.flush()
    return server


def a_claim(server: str, *cpus: int, role: str = "current") -> ClaimView:
    cell = PlacedCell(0, 0, frozenset(), dict(enumerate(cpus)), 512)
    return ClaimView(f"claim-{server}-{role}", server, role, 512, 1, 0, Placement((cell,)), "op")


def take(book: Book, server: str, *cpus: int, generation: int = 0, role: str = "current") -> int:
    def work(session: Session) -> int:
        node = session.scalars(sa.select(Node)).one()
        return claims.take(session, node, generation, a_claim(server, *cpus, role=role))

    return book.write(work)


@pytest.fixture
def node(book: Book) -> Book:
    """A book with one node and two servers."""

    def work(session: Session) -> None:
        a_node(session)
        a_server(session, "a")
        a_server(session, "b")

    book.write(work)
    return book


def pins(book: Book) -> set[int]:
    return set(book.read(lambda session: session.scalars(sa.select(Pin.cpu)).all()))


def test_the_database_refuses_a_double_pin(node: Book) -> None:
    take(node, "a", 1, 2)
    with pytest.raises(db_errors.DBDuplicateEntry):
        take(node, "b", 2, 3, generation=1)
    assert pins(node) == {1, 2}
    assert node.read(lambda session: session.scalars(sa.select(Node.generation)).one()) == 1


def test_deleting_a_claim_frees_all_its_cpus_exactly_once(node: Book) -> None:
    take(node, "a", 1, 2)

    def free(session: Session) -> int:
        return claims.free(
            session, session.scalars(sa.select(Claim)).one(), session.scalars(sa.select(Node)).one()
        )

    assert node.write(free) == 2
    assert pins(node) == set()
    with pytest.raises(sa.exc.NoResultFound):
        node.write(free)


def test_an_instance_has_one_claim_of_a_role_but_any_number_of_leftovers(node: Book) -> None:
    take(node, "a", 1)
    with pytest.raises(db_errors.DBDuplicateEntry):
        take(node, "a", 2, generation=1)

    def leave(session: Session) -> None:
        claims.set_role(
            session.scalars(sa.select(Claim)).one(), session.scalars(sa.select(Node)).one(), claims.LEFTOVER
        )

    node.write(leave)
    take(node, "a", 2, generation=2, role="incoming")
    assert pins(node) == {1, 2}


def test_a_claim_on_an_old_generation_changes_nothing(node: Book) -> None:
    take(node, "a", 1)
    with pytest.raises(claims.StaleGeneration):
        take(node, "b", 2, generation=0)
    assert pins(node) == {1}


def test_a_claim_that_was_planned_before_others_gave_back_is_taken(node: Book) -> None:
    take(node, "a", 1)
    take(node, "b", 2, generation=1)

    def free(session: Session) -> int:
        first = sa.select(Claim).where(Claim.instance_id == "a")
        return claims.free(session, session.scalars(first).one(), session.scalars(sa.select(Node)).one())

    assert node.write(free) == 3
    assert take(node, "a", 3, generation=2) == 4
    assert pins(node) == {2, 3}


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_a_claim_is_younger_than_its_instances_others_though_the_clock_was_set_back(
    node: Book, ahead: float
) -> None:
    take(node, "a", 1, role="outgoing")

    def work(session: Session) -> list[str]:
        session.execute(sa.update(Claim).values(created_at=epoch() + ahead))
        row = session.scalars(sa.select(Node)).one()
        claims.take(session, row, 1, a_claim("a", 2), claims.of_instance(session, "a"))
        return list(session.scalars(sa.select(Claim.role).order_by(Claim.created_at)))

    assert node.write(work) == ["outgoing", "current"]


def test_a_conditional_write_that_is_run_again_keeps_its_precondition(node: Book) -> None:
    """The first run dies of a deadlock after the check; meanwhile the generation moves; the second is refused."""
    runs = []

    def work(session: Session) -> int:
        runs.append(1)
        row = session.scalars(sa.select(Node)).one()
        result = claims.take(session, row, 0, a_claim("b", 2))
        if len(runs) == 1:
            session.rollback()
            with node.engine.begin() as other:
                other.execute(sa.update(Node).values(generation=7, taken_at=7))
            raise db_errors.DBDeadlock()
        return result

    with pytest.raises(claims.StaleGeneration):
        node.write(work)
    assert len(runs) == 2
    assert pins(node) == set()


def test_migrations_make_the_tables_that_the_models_describe(book: Book) -> None:
    def same_type(context: Any, column: Any, *types: Any) -> bool | None:
        ours = types[2]
        return False if isinstance(ours, sa.TypeDecorator) else None

    with book.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": same_type})
        assert compare_metadata(context, Base.metadata) == []


def test_migrations_are_named_by_their_versions_in_order() -> None:
    """What services look at without Alembic is what Alembic makes."""
    folder = pathlib.Path(schema.__file__).parent / "migrations"
    known = [script.revision for script in ScriptDirectory(folder).walk_revisions()]
    assert schema.versions() == known[::-1]


def test_a_schema_of_another_version_is_refused_with_the_command_to_run(url_of_nothing: str) -> None:
    engine = make_engine(url_of_nothing)
    with pytest.raises(errors.ConfigurationError, match="pinfold-manage --config-file FILE db upgrade"):
        schema.require(engine)
    schema.upgrade(engine)
    schema.require(engine)
    schema.upgrade(engine)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(errors.ConfigurationError, match="newer than this release"):
        schema.require(engine)
    engine.dispose()


_NODE = sa.select(Node.name, Node.generation, Node.report).where(Node.name == sa.bindparam("name"))


def test_rows_are_what_a_session_reads(node: Book) -> None:
    """PostgreSQL is asked without a session; the types of columns hold all the same."""
    found = node.rows(_NODE, name="n1")
    assert [tuple(row) for row in found] == [("n1", 0, two_cells("n1"))]
    assert not node.rows(_NODE, name="n2")
    assert found == node.read(lambda session: session.execute(_NODE, {"name": "n1"}).all())


def test_rows_are_read_in_no_transaction_that_stays_open(node: Book) -> None:
    node.rows(_NODE, name="n1")
    take(node, "a", 1)
    assert node.rows(_NODE, name="n1")[0][1] == 1


def test_rows_are_read_again_when_their_connection_is_lost(postgresql: Any) -> None:
    book = new_book(postgresql.create())
    book.write(a_node)
    book.rows(_NODE, name="n1")
    others = sa.text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with make_engine(book.engine.url.render_as_string(hide_password=False)).connect() as other:
        other.execute(others)
    assert len(book.rows(_NODE, name="n1")) == 1
    book.engine.dispose()


def test_the_clock_is_the_databases_own_and_moves(book: Book) -> None:
    first, second = (book.read(lambda session: session.scalar(sa.select(epoch()))) for _ in range(2))
    assert first is not None
    assert second is not None
    assert 0 <= second - first < 60
    assert first > 1.7e9


def test_writers_wait_for_each_other_in_turn(book: Book) -> None:
    """Many at once: none is lost, none fails."""
    runtime = RealRuntime()

    def add(number: int) -> None:
        book.write(
            lambda session: session.add(
                Flavor(
                    flavorid=str(number), name=str(number), vcpus=1, memory_mb=1, root_gb=0, created_at=0.0
                )
            )
        )

    tasks = [runtime.spawn(add, number, name=f"writer-{number}") for number in range(16)]
    assert all(task.join(30) for task in tasks)
    assert book.read(lambda session: session.scalar(sa.select(sa.func.count()).select_from(Flavor))) == 16


@pytest.mark.parametrize(
    ("url", "says"), [("oracle://x", "must be one of"), ("not a url", "not a database URL")]
)
def test_a_database_that_is_not_supported_is_refused_by_name(url: str, says: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=says):
        make_engine(url)


def test_the_statements_of_a_snapshot_see_one_state_of_the_book(book: Book) -> None:
    """So what is shown of a node adds up, whatever is claimed between the claims and the pins."""

    def add(name: str) -> None:
        book.write(lambda session: a_node(session, name))

    def look(session: Session) -> tuple[list[str], list[str]]:
        names = sa.select(Node.name).order_by(Node.name)
        before = list(session.scalars(names))
        add("n2")
        return before, list(session.scalars(names))

    add("n1")
    assert book.snapshot(look) == (["n1"], ["n1"])
    assert len(book.read(lambda session: session.scalars(sa.select(Node)).all())) == 2
