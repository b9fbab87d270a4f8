"""Transactions on the control database: migrated before the first, every failure named."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from tidemark.control.address import control_url, shown
from tidemark.control.driver_errors import named, unreachable
from tidemark.control.migration import is_migrated, migrate
from tidemark.errors import ControlUnreachable
from tidemark.faults import fault_point

BUSY_SECONDS = 30  # how long a writer waits for another; `?timeout=` in a SQLite URL says otherwise
CONNECT_SECONDS = 10


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

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """One consistent view of the database."""
        with self._transaction(self._ready_engine(), write=False) as connection:
            yield connection

    @contextmanager
    def write(self, effect: str | None = None) -> Iterator[sa.Connection]:
        """All or nothing; `effect` names the fault points before and after it."""
        if effect:
            fault_point(f"control.before_{effect}")
        with self._transaction(self._ready_engine(), write=True) as connection:
            yield connection
        if effect:
            fault_point(f"control.after_{effect}")

    def migrate(self) -> None:
        engine = self._open()
        with self._transaction(engine, write=False) as connection:
            self._migrated = is_migrated(connection)
        if self._migrated:
            return
        with self._transaction(engine, write=True) as connection:
            migrate(connection, shown(self._url))
        self._migrated = True

    def close(self) -> None:
        """Lets go of the connections; the next use opens new ones."""
        if self._engine is not None:
            self._engine.dispose(close=self._owner == os.getpid())
        self._forget()

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
            self.migrate()
        return engine

    def _open(self) -> sa.Engine:
        with self._opening:
            if self._engine is not None and self._owner == os.getpid():
                return self._engine
            if self._engine is not None:  # after a fork: the connections are the parent's, and stay open for it
                self._engine.dispose(close=False)
            self._engine = _sqlite(self._url) if self._url.get_backend_name() == "sqlite" else _postgresql(self._url)
            self._owner = os.getpid()
            return self._engine


def _postgresql(url: sa.URL) -> sa.Engine:
    options = {"connect_timeout": CONNECT_SECONDS, "application_name": "tidemark"}
    missing = {key: value for key, value in options.items() if key not in url.query}
    return sa.create_engine(url, pool_pre_ping=True, hide_parameters=True, connect_args=missing)


def _sqlite(url: sa.URL) -> sa.Engine:
    try:
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ControlUnreachable(
            f"control database {shown(url)}: its folder cannot be made ({error.strerror}). "
            "Check `control:` in the configuration."
        ) from None
    options = {} if "timeout" in url.query else {"timeout": BUSY_SECONDS}
    engine = sa.create_engine(url, hide_parameters=True, connect_args=options)
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # else Python begins transactions of its own, too late and of the wrong kind
    connection.execute("PRAGMA foreign_keys = ON")
    deadline = time.monotonic() + BUSY_SECONDS
    # SQLite does not wait its busy time when two processes turn WAL on at once: it fails, so we ask again.
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: sa.Connection) -> None:
    # A deferred transaction that reads first and writes later fails if another wrote in between.
    write = connection.get_execution_options().get("write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
