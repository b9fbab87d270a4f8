"""ADBC, which PostgreSQL is read with: rows stream to Arrow as they come over COPY, its failures by kind."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tidemark.connectors.kinds._sql_dialects.base import LOCK_SECONDS
from tidemark.keepalive import KEEPALIVE

# A server that is gone is noticed, even if it never said so.
PATIENCE = {"connect_timeout": 10, **KEEPALIVE}
# A value is the same text whatever is set for the role or the database.
SESSION = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
    "statement_timeout": "0",
    "lock_timeout": f"{LOCK_SECONDS}s",
}
SETTING = "SELECT " + ", ".join(f"set_config('{name}', '{value}', false) AS {name}" for name, value in SESSION.items())

# The server's calendar begins in 4713 BC. What lies beyond either end, infinity first of all, wraps around to before it.
FIRST_DAY = -2_440_588
FIRST_MICROSECOND = FIRST_DAY * 86_400_000_000


class DriverFailed(Exception):
    """What the driver said, and the server's code if it had one. It may quote a value of a record, so it is never shown."""

    def __init__(self, said: str, code: str | None = None) -> None:
        super().__init__(said)
        self.code = code


class ValueUnreadable(DriverFailed):
    """A moment that Arrow has no number for."""


def address(url: str) -> str:
    """What the driver connects with: patience where the URL asks for none, and text in UTF-8 whatever it asks for."""
    try:
        return make_conninfo(url, **{**PATIENCE, **conninfo_to_dict(url), "client_encoding": "UTF8"})
    except psycopg.Error:
        # It quotes what it does not understand, which may be the password.
        raise DriverFailed("the address cannot be read") from None


def connected(url: str) -> Any:
    """A connection. It learns all types of the server first, which takes longer than a small query."""
    from adbc_driver_manager import Error
    from adbc_driver_postgresql import dbapi

    try:
        connection = dbapi.connect(address(url), autocommit=True)
        with closing(connection.cursor()) as cursor:
            cursor.execute(SETTING)
            cursor.fetchall()
        return connection
    except Error as error:
        raise DriverFailed(str(error), error.sqlstate) from None


def streamed(connection: Any, sql: str) -> Iterator[pa.RecordBatch]:
    """The rows of a query, some megabytes at a time, however many there are; at least one batch, for its columns."""
    from adbc_driver_manager import Error

    with closing(connection.cursor()) as cursor:
        try:
            cursor.execute(sql)
            rows = cursor.fetch_record_batch()
            yield pa.RecordBatch.from_pylist([], rows.schema)
            for batch in rows:
                yield checked(batch)
        except Error as error:
            raise DriverFailed(str(error), error.sqlstate) from None
        except (OSError, pa.ArrowException) as error:
            # Half-way through its rows a query fails as Arrow reports it.
            raise DriverFailed(str(error)) from None


def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    for column in batch.columns:
        if pa.types.is_date32(column.type):
            least, first = pc.min(column.cast(pa.int32())).as_py(), FIRST_DAY
        elif pa.types.is_timestamp(column.type):
            least, first = pc.min(column.cast(pa.int64())).as_py(), FIRST_MICROSECOND
        else:
            continue
        if least is not None and least < first:
            raise ValueUnreadable("a moment out of range")
    return batch
