"""Transactions on the control database: migrated before the first, every failure named, short outages ridden out."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from tidemark.control.driver_errors import named, unreachable
from tidemark.control.engines import empty_database, engine_for
from tidemark.control.migration import has_schema, is_migrated, migrate
from tidemark.control.url import control_url, shown
from tidemark.errors import ControlAway
from tidemark.faults import fault_point

RIDE_OUT = 30.0  # seconds for which an operation is tried again while the database is away

Result = TypeVar("Result")
# A write is given its connection, and whether an attempt before it may have been committed without an answer.
Write = Callable[[sa.Connection, bool], Result]

log = logging.getLogger(__name__)


class Transactions:
    """Opens the database on first use and again after a fork or in another process."""

    def __init__(self, url: str) -> None:
        self._url = control_url(url)
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {"_url": self._url}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._url = state["_url"]
        self._forget()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown(self._url)!r})"

    @property
    def sqlite_folder(self) -> Path | None:
        """Where the file of the database is; None if it is on a server."""
        return Path(str(self._url.database)).parent if self._url.get_backend_name() == "sqlite" else None

    def _forget(self) -> None:
        self._opening = Lock()
        self._engine: sa.Engine | None = None
        self._owner = 0
        self._migrated = False

    def read(self, work: Callable[[sa.Connection], Result]) -> Result:
        """What the work finds in one consistent view of the database."""

        def attempt() -> Result:
            with self.reading() as connection:
                return work(connection)

        return self.patiently(attempt)

    def write(self, work: Write[Result], effect: str | None = None) -> Result:
        """What the work returns, when all of it is committed; `effect` names the fault points before and after it.

        The work is done again if the database went away. When that happened during the commit, nobody can say whether it
        was made: the work is then given True, and recognises what it has written itself.
        """
        unknown = False

        def attempt() -> Result:
            nonlocal unknown
            committing = False
            try:
                with self.writing() as connection:
                    result = work(connection, unknown)
                    committing = True
                return result
            except ControlAway:
                unknown = unknown or committing
                raise

        if effect:
            fault_point(f"control.before_{effect}")
        result = self.patiently(attempt)
        if effect:
            fault_point(f"control.after_{effect}")
        return result

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """One attempt to read. Where nothing is yet nothing is created for it: an empty database in memory answers."""
        if self.exists():
            with self._transaction(self._ready_engine(), write=False) as connection:
                yield connection
        else:
            with empty_database() as engine, self._transaction(engine, write=False) as connection:
                yield connection

    def exists(self) -> bool:
        """Whether there is a database of ours yet. To ask creates none."""
        if self._migrated:
            return True
        if self.sqlite_folder is not None:
            return Path(str(self._url.database)).exists()
        with self._transaction(self._open(), write=False) as connection:
            return has_schema(connection)

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """One attempt to write: all or nothing."""
        with self._transaction(self._ready_engine(), write=True) as connection:
            yield connection

    def migrate(self) -> None:
        self.patiently(self._migrate)

    def close(self) -> None:
        """Lets go of the connections; the next use opens new ones."""
        if self._engine is not None:
            self._engine.dispose(close=self._owner == os.getpid())
        self._forget()

    def patiently(self, attempt: Callable[[], Result]) -> Result:
        """Tries again for a while if the database is away."""
        retrying = Retrying(
            retry=retry_if_exception_type(ControlAway),
            wait=wait_random_exponential(multiplier=0.1, max=2),
            stop=stop_after_delay(RIDE_OUT),
            before_sleep=_report_first,
            reraise=True,
        )
        return retrying(attempt)

    def _migrate(self) -> None:
        engine = self._open()
        with self._transaction(engine, write=False) as connection:
            self._migrated = is_migrated(connection)
        if self._migrated:
            return
        with self._transaction(engine, write=True) as connection:
            migrate(connection, shown(self._url))
        self._migrated = True

    @contextmanager
    def _transaction(self, engine: sa.Engine, *, write: bool) -> Iterator[sa.Connection]:
        try:
            connection = engine.connect()
        except (SQLAlchemyError, OSError) as error:
            raise unreachable(error, self._url) from None
        try:
            with connection, connection.execution_options(write=write).begin():
                yield connection
        except SQLAlchemyError as error:
            # `from None`: the driver's error quotes parameters, and those are state.
            raise named(error, self._url) from None

    def _ready_engine(self) -> sa.Engine:
        engine = self._open()
        if not self._migrated:
            self._migrate()
        return engine

    def _open(self) -> sa.Engine:
        with self._opening:
            if self._engine is not None and self._owner == os.getpid():
                return self._engine
            if self._engine is not None:  # after a fork: the connections are the parent's, and stay open for it
                self._engine.dispose(close=False)
            self._engine = engine_for(self._url)
            self._owner = os.getpid()
            return self._engine


def insert_missing(connection: sa.Connection, table: sa.Table, row: dict[str, Any]) -> None:
    """Inserts a row unless one of its key exists; waits for a transaction that is about to insert it."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(insert(table).values(**row).on_conflict_do_nothing())


def add_to(connection: sa.Connection, table: sa.Table, row: dict[str, Any], added: Sequence[str]) -> None:
    """Inserts a row; if one of its key exists, adds these columns to it instead."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    new = insert(table).values(**row)
    sums = {name: table.c[name] + new.excluded[name] for name in added}
    connection.execute(new.on_conflict_do_update(index_elements=table.primary_key.columns, set_=sums))


def _report_first(state: RetryCallState) -> None:
    if state.attempt_number == 1 and state.outcome is not None:
        log.warning("%s Trying again for up to %g seconds.", state.outcome.exception(), RIDE_OUT)


def set_tenant(connection: sa.Connection, tenant: str) -> None:
    """Says to PostgreSQL's row-level security whose rows this transaction may see and write."""
    if tenant and connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.set_config("tidemark.tenant", tenant, True)))
