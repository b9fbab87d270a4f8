"""PostgreSQL for tests: the demo's own server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from demo.postgres import PostgresServer, postgres

__all__ = ["PostgresServer", "drop_slots", "logical_postgres", "postgres"]


@contextmanager
def logical_postgres(folder: Path) -> Iterator[PostgresServer]:
    """A server whose log can be decoded. A commit is in the log when it returns: a test looks at once."""
    settings = {"wal_level": "logical", "max_replication_slots": "50", "max_wal_senders": "50", "synchronous_commit": "on"}
    with postgres(folder, **settings) as server:
        yield server


def drop_slots(url: str) -> None:
    """The replication slots of a database: with one it cannot be dropped."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
        )
