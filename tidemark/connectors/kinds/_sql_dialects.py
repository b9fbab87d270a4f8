"""What differs between databases: types, literals, the clock, and the fastest way to Arrow."""

import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit, urlunsplit
from zoneinfo import ZoneInfo

import duckdb
import psycopg
import pyarrow as pa

from tidemark.catalog.packs.base import database_file
from tidemark.connectors.contract import StreamDescription
from tidemark.connectors.cursors import Cursor
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import ConfigError, SourceError, SourceUnreachable

INSTANT = pa.timestamp("us", tz="UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the source declares it."""

    name: str
    type: pa.DataType
    declared: str
    # It must travel as text to arrive unharmed.
    as_text: bool = False


class Dialect(ABC):
    """One database. Picklable: it holds an address, and connects when it is asked something."""

    schemes: ClassVar[tuple[str, ...]]

    def __init__(self, url: str, target: str) -> None:
        self.url = url
        self.target = target

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def text(self, value: str) -> str:
        return "'" + value.replace("'", "''") + "'"

    def name(self, source: str) -> str:
        """`table` or `schema.table`; a part in double quotes may have dots."""
        return ".".join(self.quoted(part) for part in parts_of(source))

    def table(self, source: str) -> str:
        """To be put after FROM. The alias keeps `ordered` from meaning the text that a column may be selected as."""
        return f"{self.name(source)} AS t"

    def shown(self, column: Column, name: str | None = None) -> str:
        """How a column is selected."""
        expression = f"CAST({self.quoted(column.name)} AS {self.text_type})" if column.as_text else self.quoted(column.name)
        return f"{expression} AS {self.quoted(name or column.name)}"

    def ordered(self, column: Column) -> str:
        """How a column is compared and sorted."""
        return f"t.{self.quoted(column.name)}"

    def literal(self, column: Column, value: Any) -> str:
        """A value of the column as it was read, to be compared with `ordered`."""
        return f"CAST({self.text(written(value))} AS {column.declared})"

    def bound(self, column: Column, cursor: Cursor, zone: str | None) -> str:
        """A bound of a window, to be compared with `ordered`."""
        if cursor.timestamp is None:
            return f"CAST({self.text(str(cursor))} AS {column.declared})"
        moment = EPOCH + timedelta(microseconds=cursor.timestamp.instant // 1000)
        if not pa.types.is_timestamp(column.type) or column.type.tz is None:
            moment = moment.astimezone(ZoneInfo(zone or "UTC")).replace(tzinfo=None)
        return f"CAST({self.text(moment.isoformat(sep=' '))} AS {column.declared})"

    text_type: ClassVar[str] = "text"

    def refuse(self, stream: StreamSpec) -> None:
        """What this database cannot do right is refused before anything is read."""
        del stream  # most can do all of it

    @abstractmethod
    def tables(self) -> list[StreamDescription]: ...

    @abstractmethod
    def columns(self, source: str) -> list[Column]: ...

    def clock(self, column: Column, zone: str | None) -> str:
        """The database's own time, as a value of the column would be written."""
        moment = self.present()
        if pa.types.is_timestamp(column.type) and column.type.tz is None:
            moment = moment.astimezone(ZoneInfo(zone or "UTC")).replace(tzinfo=None)
        return moment.isoformat()

    @abstractmethod
    def present(self) -> datetime:
        """The database's own time in UTC."""

    @abstractmethod
    def fetch(self, sql: str, stream: str) -> pa.Table: ...


def parts_of(source: str) -> list[str]:
    found = re.findall(r'"((?:[^"]|"")+)"|([^."]+)', source)
    return [quoted.replace('""', '"') or plain for quoted, plain in found]


def written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    return repr(value) if isinstance(value, float) else str(value)


# --- PostgreSQL --------------------------------------------------------------------------------------------------------

POSTGRESQL_TYPES = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "bytea": pa.binary(),
    "text": pa.string(),
    "uuid": pa.string(),
}

# Views, partitioned and foreign tables too. A relation that is not there has no columns.
POSTGRESQL_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), format_type(a.atttypid, NULL),
       CASE WHEN a.atttypid = 'numeric'::regtype AND a.atttypmod > 0 THEN ((a.atttypmod - 4) >> 16) & 65535 END,
       CASE WHEN a.atttypid = 'numeric'::regtype AND a.atttypmod > 0 THEN (((a.atttypmod - 4) & 2047) # 1024) - 1024 END
FROM pg_attribute AS a
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""

POSTGRESQL_TABLES = """
SELECT n.nspname || '.' || c.relname, obj_description(c.oid),
       (SELECT array_agg(a.attname ORDER BY array_position(i.indkey::int2[], a.attnum))
        FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
        WHERE i.indrelid = c.oid AND i.indisprimary),
       (SELECT array_agg(a.attname ORDER BY a.attnum) FROM pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.atttypid IN ('timestamptz'::regtype, 'timestamp'::regtype))
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND NOT starts_with(n.nspname, 'pg_') AND has_table_privilege(c.oid, 'SELECT')
ORDER BY 1"""


class PostgresqlDialect(Dialect):
    """connectorx to Arrow for rows, psycopg for questions."""

    schemes = ("postgresql", "postgres")

    def ordered(self, column: Column) -> str:
        # By code point, as Python compares: a language's own order would make windows mean something else here and there.
        is_text = column.declared == "text" or column.declared.startswith("character")
        return super().ordered(column) + (' COLLATE "C"' if is_text else "")

    def tables(self) -> list[StreamDescription]:
        return [
            StreamDescription(name, tuple(key or ()), tuple(cursors or ()), comment)
            for name, comment, key, cursors in self._ask(POSTGRESQL_TABLES)
        ]

    def columns(self, source: str) -> list[Column]:
        return [self._column(*row) for row in self._ask(POSTGRESQL_COLUMNS, (self.name(source),))]

    def _column(self, name: str, declared: str, plain: str, precision: int | None, scale: int | None) -> Column:
        if plain in POSTGRESQL_TYPES:
            return Column(name, POSTGRESQL_TYPES[plain], declared)
        if plain in ("character", "character varying"):
            return Column(name, pa.string(), declared)
        if plain in ("timestamp without time zone", "timestamp with time zone"):
            return Column(name, INSTANT if plain.endswith("with time zone") else pa.timestamp("us"), declared)
        if precision is not None and scale is not None and precision <= 38 and 0 <= scale <= precision:
            # The driver hands out numerics as decimal(38, 10) of 96 bits: what may not fit goes as text.
            return Column(name, pa.decimal128(precision, scale), declared, as_text=scale > 10 or precision - scale > 18)
        # Arrays, enums, JSON (whose text the driver would rewrite), times of day (which Spark has no type for), …
        return Column(name, pa.string(), declared, as_text=True)

    def present(self) -> datetime:
        ((now,),) = self._ask("SELECT clock_timestamp() AT TIME ZONE 'UTC'")
        moment: datetime = now.replace(tzinfo=UTC)
        return moment

    def fetch(self, sql: str, stream: str) -> pa.Table:
        import connectorx

        try:
            return connectorx.read_sql(self.url, sql, return_type="arrow", protocol="binary")
        except RuntimeError as error:
            raise self._named(error, stream) from None

    def _ask(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            with psycopg.connect(self.url, connect_timeout=10) as connection:
                return connection.execute(sql.encode(), values or None).fetchall()
        except psycopg.OperationalError as error:
            raise SourceUnreachable(
                f"{self.target} does not answer or refuses the login ({type(error).__name__})."
            ) from None
        except psycopg.Error as error:
            raise SourceError(f"{self.target} refused a question ({type(error).__name__}).") from None

    def _named(self, error: Exception, stream: str) -> SourceError:
        # What the driver says may quote the address or a value of a record: only its kind is repeated.
        text = str(error)
        if "ERROR" in text:
            return SourceError(f"{stream}: {self.target} refused the query. Does the table still have its columns?")
        return SourceUnreachable(f"{stream}: {self.target} broke off or does not answer.")


# --- SQLite ------------------------------------------------------------------------------------------------------------


class SqliteDialect(Dialect):
    """Declared types are hints here: what is stored decides, and a column of mixed types is refused."""

    schemes = ("sqlite",)

    def refuse(self, stream: StreamSpec) -> None:
        if stream.cursor_zone not in (None, "UTC"):
            raise ConfigError(
                f"{stream.id}: SQLite knows no time zones, so `cursor_zone: {stream.cursor_zone}` cannot be obeyed. "
                "Store timestamps in UTC or with their offset."
            )

    def tables(self) -> list[StreamDescription]:
        listed = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY 1"
        keys = "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk"
        return [StreamDescription(name, tuple(part for (part,) in self._ask(keys, name))) for (name,) in self._ask(listed)]

    def columns(self, source: str) -> list[Column]:
        rows = self._ask("SELECT name, upper(type) FROM pragma_table_info(?)", parts_of(source)[-1])
        return [Column(name, *_sqlite_type(declared)) for name, declared in rows]

    def ordered(self, column: Column) -> str:
        if _is_time(column.declared):
            # Text of any offset and precision, as comparable text in UTC.
            return f"strftime('%Y-%m-%dT%H:%M:%fZ', t.{self.quoted(column.name)})"
        return super().ordered(column)

    def literal(self, column: Column, value: Any) -> str:
        if _is_time(column.declared):
            return f"strftime('%Y-%m-%dT%H:%M:%fZ', {self.text(str(value))})"
        if isinstance(value, bytes):
            return f"X'{value.hex()}'"
        return self.text(value) if isinstance(value, str) else written(value)

    def bound(self, column: Column, cursor: Cursor, zone: str | None) -> str:
        del column, zone  # text that means a time says itself which
        if cursor.timestamp is not None:
            milliseconds = cursor.timestamp.instant // 1_000_000
            moment = EPOCH + timedelta(milliseconds=milliseconds)
            return self.text(moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03d}Z")
        return self.text(str(cursor)) if cursor.type == "text" else str(cursor)

    def present(self) -> datetime:
        return datetime.fromisoformat(self._ask("SELECT strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')")[0][0])

    def fetch(self, sql: str, stream: str) -> pa.Table:
        connection = self._connected()
        try:
            cursor = connection.execute(sql)
            names = [name for name, *_ in cursor.description]
            columns = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(names)
        except sqlite3.Error as error:
            raise SourceError(f"{stream}: {self.target} refused the query ({type(error).__name__}).") from None
        finally:
            connection.close()
        try:
            return pa.table({name: pa.array(values) for name, values in zip(names, columns, strict=True)})
        except pa.ArrowInvalid:
            raise SourceError(f"{stream}: {self.target} has values of several types in one column.") from None

    def _ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        connection = self._connected()
        try:
            return connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise SourceError(f"{self.target} refused a question ({type(error).__name__}).") from None
        finally:
            connection.close()

    def _connected(self) -> sqlite3.Connection:
        try:
            return sqlite3.connect(f"file:{quote(str(database_file(self.url)))}?mode=ro", uri=True)
        except sqlite3.Error:
            raise SourceUnreachable(f"{self.target} cannot be opened. Is it there?") from None


def _sqlite_type(declared: str) -> tuple[pa.DataType, str, bool]:
    """By SQLite's own rules of affinity: type, declared type, and whether it travels as text."""
    if "INT" in declared:
        return pa.int64(), declared, False
    if any(word in declared for word in ("CHAR", "CLOB", "TEXT", "DATE", "TIME")):
        return pa.string(), declared, False
    if "BLOB" in declared:
        return pa.binary(), declared, False
    if any(word in declared for word in ("REAL", "FLOA", "DOUB")):
        return pa.float64(), declared, False
    return pa.string(), declared, True  # numbers of any kind: as text they stay what they are


def _is_time(declared: str) -> bool:
    return "DATE" in declared or "TIME" in declared


# --- DuckDB ------------------------------------------------------------------------------------------------------------


class DuckdbDialect(Dialect):
    schemes = ("duckdb",)
    text_type = "VARCHAR"

    def literal(self, column: Column, value: Any) -> str:
        return f"unhex('{value.hex()}')" if isinstance(value, bytes) else super().literal(column, value)

    def tables(self) -> list[StreamDescription]:
        rows = self._fetched(
            "SELECT table_schema || '.' || table_name AS name FROM information_schema.tables ORDER BY 1", self.target
        )
        return [StreamDescription(name) for name in rows["name"].to_pylist()]

    def columns(self, source: str) -> list[Column]:
        try:
            described = self._fetched(f"DESCRIBE SELECT * FROM {self.table(source)}", self.target)
        except SourceError:
            return []
        sample = self._fetched(f"SELECT * FROM {self.table(source)} LIMIT 0", self.target).schema
        declared = dict(zip(described["column_name"].to_pylist(), described["column_type"].to_pylist(), strict=True))
        return [
            Column(field.name, _plain(field.type), declared[field.name], as_text=_is_odd(field.type)) for field in sample
        ]

    def present(self) -> datetime:
        now: datetime = self._fetched("SELECT now() AS now", self.target)["now"][0].as_py()
        return now.astimezone(UTC)

    def fetch(self, sql: str, stream: str) -> pa.Table:
        return self._fetched(sql, stream)

    def _fetched(self, sql: str, who: str) -> pa.Table:
        try:
            with duckdb.connect(str(self._path), read_only=True) as db:
                db.execute("SET TimeZone = 'UTC'")
                return db.sql(sql).to_arrow_table()
        except duckdb.IOException:
            raise SourceUnreachable(
                f"{who}: {self.target} cannot be opened. Is it there, and does nobody write to it?"
            ) from None
        except duckdb.Error as error:
            raise SourceError(f"{who}: {self.target} refused the query ({type(error).__name__}).") from None

    @cached_property
    def _path(self) -> Path:
        return database_file(self.url)


def _plain(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_):
        return INSTANT if type_.tz else pa.timestamp("us")
    return pa.string() if _is_odd(type_) else type_


def _is_odd(type_: pa.DataType) -> bool:
    """Types that Iceberg has no word for."""
    odd = (pa.types.is_interval, pa.types.is_dictionary, pa.types.is_unsigned_integer, pa.types.is_time)
    return any(is_odd(type_) for is_odd in odd)


# -----------------------------------------------------------------------------------------------------------------------


def dialect_for(url: str, credentials: Mapping[str, str]) -> Dialect:
    """The dialect that the URL's scheme names. The URL itself stays out of messages: it may hold a password."""
    scheme = url.partition("://")[0]
    for dialect in (PostgresqlDialect, SqliteDialect, DuckdbDialect):
        if scheme in dialect.schemes:
            return dialect(*_addressed(url, credentials))
    raise ConfigError("the url of a sql connector must start with postgresql://, sqlite:// or duckdb://")


def _addressed(url: str, credentials: Mapping[str, str]) -> tuple[str, str]:
    """The URL with the login put in, and what a message may call it."""
    parts = urlsplit(url)
    if not parts.hostname:
        return url, f"{parts.scheme} file {database_file(url).name}"
    if "user" in credentials and not parts.username:
        login = quote(credentials["user"], safe="") + (f":{quote(p, safe='')}" if (p := credentials.get("password")) else "")
        url = urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))
    return url, f"{parts.hostname}:{parts.port or 5432}{parts.path}"
