"""MariaDB, and what speaks its protocol: connectorx to Arrow for rows, PyMySQL for questions."""

import re
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pymysql

from tidemark.connectors.contract import StreamDescription
from tidemark.connectors.cursors import Cursor, CursorType
from tidemark.connectors.kinds._sql_dialects.base import (
    INSTANT,
    LOCK_SECONDS,
    Column,
    Dialect,
    locked,
    parts_of,
    source_of,
    written,
)
from tidemark.connectors.kinds._sql_dialects.connectorx_driver import DriverFailed, ValueUnreadable, fetched
from tidemark.errors import ConfigError, SourceError, SourceRefused, SourceUnreachable

# The words of a session, whatever the server's own: instants in UTC, `"` and `\` as the standard has them, long keys sorted
# by all of their bytes (an index has up to 3072) instead of the first 1024.
SESSION = (
    "SET time_zone = '+00:00', sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES', max_sort_length = 4096, "
    f"lock_wait_timeout = {LOCK_SECONDS}",
)

# How long a server is waited for: to say anything at all, and to answer a question about itself.
CONNECT_SECONDS, ANSWER_SECONDS = 10, LOCK_SECONDS + 10

# By name, and by name when unsigned: the type that holds every value.
INTEGERS = {
    "tinyint": (pa.int8(), pa.int16()),
    "smallint": (pa.int16(), pa.int32()),
    "mediumint": (pa.int32(), pa.int32()),
    "int": (pa.int32(), pa.int64()),
    "bigint": (pa.int64(), pa.decimal128(20, 0)),
    "year": (pa.int16(), pa.int16()),
}
BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
MOMENTS = ("date", "datetime", "timestamp")
COLLATED = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json")
TEXTS = (*COLLATED, "enum", "set", "uuid", "inet4", "inet6")
SHAPES = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
    *("geometrycollection", "geomcollection"),
)
# The earliest real day. What lies before it is the zero date, which means that there is none.
FIRST_DAY = "'0001-01-01'"

COLUMNS = """
SELECT column_name, data_type, column_type, numeric_precision, numeric_scale, column_key
FROM information_schema.columns
WHERE table_schema = coalesce(%s, database()) AND table_name = %s
ORDER BY ordinal_position"""

TABLES = """
SELECT t.table_schema, t.table_name, nullif(nullif(t.table_comment, ''), 'VIEW'), c.column_name, c.data_type
FROM information_schema.tables AS t
JOIN information_schema.columns AS c ON c.table_schema = t.table_schema AND c.table_name = t.table_name
WHERE t.table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')
ORDER BY t.table_schema, t.table_name, c.ordinal_position"""

PRIMARY_KEYS = """
SELECT table_schema, table_name, column_name FROM information_schema.statistics
WHERE index_name = 'PRIMARY' AND table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')
ORDER BY table_schema, table_name, seq_in_index"""

# What the server says to a login that is wrong or lacks a right.
REFUSALS = {1044, 1045, 1130, 1142, 1143, 1227, 1251, 1370, 1524, 1698, 1820, 1862, 3118, 4151}
NO_DATABASE = 1049
LOCKED = 1205


class MariadbDialect(Dialect):
    schemes = ("mariadb", "mysql")
    port = 3306
    text_type = "CHAR"

    def __init__(self, url: str, target: str) -> None:
        super().__init__(url, target)
        parts = urlsplit(url)
        if not parts.hostname or parts.query:
            raise ConfigError("the url of a MariaDB must be mariadb://host:port/database, without options behind it.")

    # --- words -------------------------------------------------------------------------------------------------------

    def quoted(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def text(self, value: str) -> str:
        # In hexadecimal nothing has to be escaped, whatever the server takes a backslash for.
        return f"_utf8mb4 X'{value.encode().hex()}'"

    def shown(self, column: Column) -> str:
        own, kind = f"t.{self.quoted(column.name)}", kind_of(column)
        if kind in ("date", "datetime"):
            # As text, because the driver dies of 2026-02-31 and 2026-00-00, which a lenient server stores.
            own = f"CAST(if({own} >= {FIRST_DAY}, {own}, NULL) AS CHAR)"
        elif kind == "timestamp":
            own = f"if({own} >= {FIRST_DAY}, {own}, NULL)"
        elif kind == "bit":
            own = f"CAST({own} AS UNSIGNED)"
        elif kind in SHAPES:
            own = f"ST_AsBinary({own})"
        elif column.as_text:
            own = f"CAST({own} AS CHAR)"
        return f"{own} AS {self.quoted(column.name)}"

    def ordered(self, column: Column) -> str:
        own = super().ordered(column)
        if kind_of(column) in TEXTS and not column.unique:
            # By code point, as Python compares. Collations take a and A, or a word and the same with a space behind it, for
            # equal, and an enum is sorted by its place in the declaration but compared as text.
            return f"CAST(CONVERT({own} USING utf8mb4) AS BINARY)"
        return own

    def known(self, column: Column) -> str:
        own = super().ordered(column)
        if kind_of(column) in MOMENTS:
            return f"({own} IS NOT NULL AND {own} >= {FIRST_DAY})"
        return f"({own} IS NOT NULL)"

    def compared(self, left: list[str], sign: str, right: list[str]) -> str:
        rows = super().compared(left, sign, right)
        if len(left) == 1 or sign == "=":
            return rows
        # The server reads a range of an index for one column, and all of it for a row of them.
        return f"{left[0]} {sign[0]}= {right[0]} AND {rows}"

    def literal(self, column: Column, value: Any) -> str:
        kind = kind_of(column)
        if kind in MOMENTS:
            own = value.replace(tzinfo=None) if isinstance(value, datetime) else value  # the session is in UTC
            day_or_time = "DATE" if kind == "date" else "TIMESTAMP"
            return f"{day_or_time} {plainly(written(own).replace('T', ' '))}"
        if kind == "time":
            return f"CAST({plainly(value)} AS TIME(6))"
        if isinstance(value, bytes):
            return f"X'{value.hex()}'"
        if isinstance(value, str):
            if kind not in TEXTS:
                return number(value)
            return self.text(value) if column.unique else f"X'{value.encode().hex()}'"
        return f"{value!r}e0" if isinstance(value, float) and "e" not in repr(value) else str(value)

    def as_cursor(self, column: Column, type: CursorType, stream: str) -> Column:
        # A window means the same here and there only by code point.
        return replace(super().as_cursor(column, type, stream), unique=False)

    def bound(self, column: Column, cursor: Cursor, zone: str | None) -> str:
        if cursor.timestamp is not None:
            moment = self.moment(column, cursor.timestamp, zone)
            return self.literal(column, moment.date() if kind_of(column) == "date" else moment)
        if cursor.type == "text":
            return f"X'{str(cursor).encode().hex()}'"
        if kind_of(column) in ("float", "double"):
            return f"CAST({plainly(str(cursor))} AS {kind_of(column)})"
        return number(str(cursor))

    # --- questions ---------------------------------------------------------------------------------------------------

    def tables(self) -> list[StreamDescription]:
        keys: dict[str, list[str]] = defaultdict(list)
        for schema, table, column in self._ask(PRIMARY_KEYS):
            keys[source_of(schema, table)].append(column)
        cursors: dict[str, list[str]] = defaultdict(list)
        comments: dict[str, str | None] = {}
        for schema, table, comment, column, kind in self._ask(TABLES):
            name = source_of(schema, table)
            comments[name] = comment
            if kind in ("timestamp", "datetime"):
                cursors[name].append(column)
        return [
            StreamDescription(name, tuple(keys[name]), tuple(cursors[name]), comment) for name, comment in comments.items()
        ]

    def columns(self, source: str) -> list[Column]:
        *schemas, table = parts_of(source)
        schema = schemas[-1] if schemas else None
        found = self._ask(COLUMNS, (schema, table))
        keys = [row[-1] for row in found]
        # A part of a longer key is not unique by itself.
        unique = {"UNI", "PRI"} if keys.count("PRI") == 1 else {"UNI"}
        return [
            mapped(name, kind, declared, precision, scale, index in unique)
            for name, kind, declared, precision, scale, index in found
        ]

    def present(self) -> datetime:
        ((now,),) = self._ask("SELECT utc_timestamp(6)")
        moment: datetime = now.replace(tzinfo=UTC)
        return moment

    def fetch(self, sql: str, stream: str, held: object = None) -> pa.Table:
        del held  # every question has a connection of its own
        try:
            return fetched(self.url.replace("mariadb://", "mysql://", 1), sql, SESSION)
        except ValueUnreadable:
            raise SourceError(f"{stream}: {self.target} has a value that cannot be read.") from None
        except DriverFailed as error:
            found = re.search(r"ERROR (\d+)", str(error))
            raise self._named(int(found[1]) if found else 2013, stream) from None

    def _ask(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        parts = urlsplit(self.url)
        try:
            with (
                pymysql.connect(
                    host=parts.hostname,
                    port=parts.port or self.port,
                    user=unquote(parts.username or ""),
                    password=unquote(parts.password or ""),
                    database=unquote(parts.path.lstrip("/")) or None,
                    charset="utf8mb4",
                    connect_timeout=CONNECT_SECONDS,
                    read_timeout=ANSWER_SECONDS,
                ) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute(SESSION[0])
                cursor.execute(sql, values or None)
                return list(cursor.fetchall())
        except pymysql.MySQLError as error:
            raise self._named(error.args[0] if error.args else 2013) from None

    def _named(self, code: int, stream: str | None = None) -> SourceError:
        # What the server says may quote a value of a record: only its number is repeated.
        who = f"{stream}: {self.target}" if stream else self.target
        if code in REFUSALS:
            return SourceRefused(
                f"{who} refuses the login, or a right that it needs (error {code}). Check user and password."
            )
        if code == LOCKED:
            return locked(who)
        if code == NO_DATABASE:
            return SourceError(f"{who}: there is no such database. Check the url.")
        if 2000 <= code < 3000 or not isinstance(code, int):
            return SourceUnreachable(f"{who} broke off or does not answer. Check host and port; run again when it is up.")
        return SourceError(f"{who} refused the query (error {code}). Does the table still have its columns?")


def kind_of(column: Column) -> str:
    """The name of a column's type, without what stands behind it: decimal of decimal(12,2) unsigned."""
    return re.split(r"[( ]", column.declared, maxsplit=1)[0]


def mapped(name: str, kind: str, declared: str, precision: int | None, scale: int | None, unique: bool) -> Column:
    """A column of information_schema."""
    if kind in INTEGERS:
        signed, unsigned = INTEGERS[kind]
        return Column(name, unsigned if "unsigned" in declared else signed, declared)
    if kind in ("float", "double"):
        return Column(name, pa.float32() if kind == "float" else pa.float64(), declared)
    if kind == "bit":
        bits = int(precision or 1)
        return Column(name, pa.bool_() if bits == 1 else pa.int64() if bits < 64 else pa.decimal128(20, 0), declared)
    if kind == "timestamp":
        return Column(name, INSTANT, declared)
    if kind in ("date", "datetime"):
        return Column(name, pa.date32() if kind == "date" else pa.timestamp("us"), declared)
    if kind in BYTES or kind in SHAPES:
        return Column(name, pa.binary(), declared)
    if kind == "decimal" and precision is not None and scale is not None and precision <= 38:
        # The driver hands out numerics as decimal(38, 10) of 96 bits: what may not fit goes as text.
        return Column(name, pa.decimal128(precision, scale), declared, as_text=scale > 10 or precision - scale > 18)
    # Times of day (which may have 838 hours, and which Spark has no type for), longer decimals, addresses, what is to come.
    # An index in the order of the column's own collation can be followed, if that distinguishes all its values.
    return Column(name, pa.string(), declared, as_text=kind not in TEXTS, unique=unique and kind in COLLATED)


def plainly(text: str) -> str:
    """Text of digits and their punctuation in quotes; anything else has no business in a number or a time."""
    if re.search(r"[^0-9A-Za-z .:+-]", text):
        raise ValueError("a number or a time has other characters than digits in it")
    return f"'{text}'"


def number(text: str) -> str:
    return format(Decimal(text), "f")
