"""The book: an engine, and transactions that are run again when the database asks for it.

A transaction is a function of a session. Run again, it reads and checks everything again, so a
conditional write keeps its precondition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from oslo_db import exception as db_errors
from oslo_db.sqlalchemy import exc_filters
from sqlalchemy import event, orm
from sqlalchemy.pool import ConnectionPoolEntry

from pinfold.db import quick
from pinfold.model import errors
from pinfold.runtime import Runtime

if TYPE_CHECKING:
    from pinfold.db.direct import Direct

T = TypeVar("T")

_AGAIN = (
    db_errors.DBDeadlock,
    db_errors.DBConnectionError,
    db_errors.RetryRequest,
    # what oslo.db leaves as it is: no connection could be made
    sa.exc.OperationalError,
)
_TRIES = 8

#: In a session's info: this transaction has been run before, and may have committed although its answer was lost.
AGAIN = "again"
_CAME_TO_ITS_COMMIT = "came to its commit"


def may_be_done(session: orm.Session) -> bool:
    """Whether an earlier run of this transaction found nothing wrong, and its commit was not answered.

    Then what it was to remove may be gone, and what it was to add may be there.
    """
    return bool(session.info.get(_CAME_TO_ITS_COMMIT))


class DatabaseUnavailable(errors.Unavailable):
    """The database did not answer, several times."""

    code = "database-unavailable"


def normalised(url: str) -> sa.URL:
    """The URL with a driver that is installed. Raises errors.ConfigurationError for other databases."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise errors.ConfigurationError(f"[database] connection is not a database URL: {error}") from error
    drivers = {
        "postgresql": "postgresql+psycopg",
        "postgres": "postgresql+psycopg",
        "mysql": "mysql+pymysql",
        "mariadb": "mysql+pymysql",
        "sqlite": "sqlite+pysqlite",
    }
    backend = parsed.drivername.split("+")[0]
    if backend not in drivers:
        raise errors.ConfigurationError(
            f"[database] connection names {backend!r}; it must be one of postgresql, mysql, mariadb, sqlite."
        )
    return parsed.set(drivername=drivers[backend])


def _sqlite_engine(url: sa.URL, pool_size: int) -> sa.Engine:
    engine = sa.create_engine(
        url,
        connect_args={"timeout": 30, "check_same_thread": False, "isolation_level": None},
        **(
            {"poolclass": sa.StaticPool}
            if url.database in (None, "", ":memory:")
            else {"pool_size": pool_size}
        ),
    )

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, entry: ConnectionPoolEntry) -> None:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.create_function(
            "regexp", 2, lambda pattern, text: _search(pattern, text), deterministic=True
        )

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # a transaction that may write takes the write lock at once: no deadlock of two upgrades
        writes = connection.get_execution_options().get("writes", True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _search(pattern: str, text: str | None) -> bool:
    import re

    return text is not None and re.search(pattern, text) is not None


def _server_engine(url: sa.URL, pool_size: int) -> sa.Engine:
    postgresql = url.get_backend_name() == "postgresql"
    engine = sa.create_engine(
        url,
        isolation_level="READ COMMITTED",
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=30,
        pool_recycle=3600,
        # the fewest connections that will do, whose statements the database has prepared
        pool_use_lifo=True,
        connect_args=_postgresql_arguments() if postgresql else {},
    )
    if postgresql:
        event.listen(engine, "connect", _plan_once)
    return engine


def _postgresql_arguments() -> dict[str, Any]:
    from pinfold.db import direct

    # a statement that comes a second time on a connection is prepared there
    return {"cursor_factory": direct.Cursor, "prepare_threshold": 1}


def _plan_once(connection: Any, entry: ConnectionPoolEntry) -> None:
    """Ours are short statements that find rows by keys: to plan one anew each time takes longer than to run it."""
    connection.execute("SET plan_cache_mode = force_generic_plan")
    connection.commit()


def make_engine(url: str, pool_size: int = 10) -> sa.Engine:
    """An engine for the database at ``url``, with at most ``pool_size`` connections kept.

    Raises errors.ConfigurationError for a database that is not supported.
    """
    parsed = normalised(url)
    if parsed.get_backend_name() == "sqlite":
        engine = _sqlite_engine(parsed, pool_size)
    else:
        engine = _server_engine(parsed, pool_size)
    # What makes oslo.db's exceptions; its other listeners are for savepoints, and would be asked at each statement.
    event.listen(engine, "handle_error", exc_filters.handler, retval=True)
    return engine


def _direct(engine: sa.Engine) -> Direct | None:
    """A shorter way to the driver, where there is one."""
    if engine.dialect.name != "postgresql":
        return None
    from pinfold.db import direct

    return direct.Direct(engine)


def _reading(engine: sa.Engine) -> dict[str, Any]:
    """Options of connections that only read.

    At READ COMMITTED each statement sees what is committed when it begins, in a transaction or not: with one, it
    would be three messages instead of one. (MariaDB's driver would send more to leave and enter that mode.)
    """
    if engine.dialect.name == "postgresql":
        return {"isolation_level": "AUTOCOMMIT"}
    return {"writes": False}


class Book:
    """Transactions on the database.

    ``read``, ``snapshot`` and ``write`` run a function in a transaction and return what it returns. They run it
    again, up to a bound, on a deadlock or a lost connection; then they raise DatabaseUnavailable.
    """

    def __init__(self, engine: sa.Engine, runtime: Runtime) -> None:
        self.engine = engine
        self._runtime = runtime
        self._sessions = orm.sessionmaker(engine, expire_on_commit=False, autoflush=False)
        sqlite = engine.dialect.name == "sqlite"
        self._readers = orm.sessionmaker(
            engine.execution_options(**_reading(engine)), expire_on_commit=False, autoflush=False
        )
        self._direct = _direct(engine)
        # in SQLite every transaction sees one state; elsewhere this one is only worth its price where it is needed
        snapshot = {} if sqlite else {"isolation_level": "REPEATABLE READ"}
        self._snapshots = orm.sessionmaker(
            engine.execution_options(writes=False, **snapshot), expire_on_commit=False, autoflush=False
        )
        # SQLite has one writer; waiting here is fair, waiting in its busy handler is not
        self._turn: AbstractContextManager[Any] = runtime.lock() if sqlite else nullcontext()

    def write(self, work: Callable[[orm.Session], T]) -> T:
        """Run ``work`` and commit. Run again, its session's info has AGAIN, and ``may_be_done`` answers."""
        runs, came = 0, False

        def once(direct: Direct | None) -> T:
            nonlocal runs, came
            runs += 1
            info = {AGAIN: runs > 1, _CAME_TO_ITS_COMMIT: came, quick.DIRECT: direct}
            with self._turn, self._sessions(info=info) as session, session.begin():
                done = work(session)
                if direct is not None:
                    direct.save(session)
                came = True
                return done

        return self._shortest(once)

    def read(self, work: Callable[[orm.Session], T]) -> T:
        """Run ``work``, which only reads."""

        def once(direct: Direct | None) -> T:
            with self._readers(info={quick.DIRECT: direct}) as session, session.begin():
                return work(session)

        return self._shortest(once)

    def rows(
        self, statement: sa.Select[*tuple[Any, ...]], **parameters: str | float
    ) -> Sequence[Sequence[Any]]:
        """What one statement, a constant, finds: as ``read``, for what is asked very often."""
        direct = self._direct
        if direct is not None:
            try:
                return self._again(lambda: direct.rows(statement, parameters))
            except direct.error:
                pass  # the usual way succeeds, or says what is wrong
        return self.read(lambda session: session.execute(statement, parameters).all())

    def snapshot(self, work: Callable[[orm.Session], T]) -> T:
        """Run ``work``, which only reads, and whose statements all see one state of the book."""

        def once() -> T:
            with self._snapshots() as session, session.begin():
                return work(session)

        return self._again(once)

    def _shortest(self, once: Callable[[Direct | None], T]) -> T:
        if self._direct is not None:
            try:
                return self._again(lambda: once(self._direct))
            except self._direct.error:
                pass  # the usual way succeeds, or says what is wrong
        return self._again(lambda: once(None))

    def _again(self, once: Callable[[], T]) -> T:
        for attempt in range(_TRIES):
            try:
                return once()
            except (*_AGAIN, sa.exc.TimeoutError) as error:
                if attempt == _TRIES - 1 or isinstance(error, sa.exc.TimeoutError):
                    raise DatabaseUnavailable(
                        f"The database does not answer: {_first_line(error)}"
                    ) from error
                self._runtime.sleep(self._runtime.random().uniform(0, 0.02 * 2**attempt))
        raise AssertionError("unreachable")


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
