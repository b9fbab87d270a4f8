"""SQLAlchemy engines for the two databases: a file that only its owner reads, or a server."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from tidemark.control.files import make_folder, make_private
from tidemark.control.schema import metadata
from tidemark.control.url import shown
from tidemark.errors import ControlUnreachable
from tidemark.keepalive import KEEPALIVE

BUSY_SECONDS = 30  # how long a writer waits for another; `?timeout=` in a SQLite URL says otherwise

# What a PostgreSQL URL may say otherwise.
POSTGRESQL = {"application_name": "tidemark", "connect_timeout": 10, **KEEPALIVE}


def engine_for(url: sa.URL) -> sa.Engine:
    return _sqlite(url) if url.get_backend_name() == "sqlite" else _postgresql(url)


@contextmanager
def empty_database() -> Iterator[sa.Engine]:
    """What stands for a database that does not exist yet, for those who only read."""
    engine = sa.create_engine("sqlite://", poolclass=StaticPool)
    try:
        metadata.create_all(engine)
        yield engine
    finally:
        engine.dispose()


def _postgresql(url: sa.URL) -> sa.Engine:
    missing = {key: value for key, value in POSTGRESQL.items() if key not in url.query}
    return sa.create_engine(url, pool_pre_ping=True, hide_parameters=True, connect_args=missing)


def _sqlite(url: sa.URL) -> sa.Engine:
    path = Path(str(url.database))
    try:
        make_folder(path.parent)
    except OSError as error:
        raise ControlUnreachable(
            f"control database {shown(url)}: its folder cannot be made ({error.strerror}). "
            "Check `control:` in the configuration."
        ) from None
    make_private(path)
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
