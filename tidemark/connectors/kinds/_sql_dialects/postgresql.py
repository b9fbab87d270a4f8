"""PostgreSQL: ADBC to Arrow for rows, psycopg for questions."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
import pyarrow as pa

from tidemark.connectors.contract import StreamDescription
from tidemark.connectors.kinds._sql_dialects.adbc_driver import DriverFailed, ValueUnreadable, address, connected, streamed
from tidemark.connectors.kinds._sql_dialects.base import INSTANT, LOCK_SECONDS, Column, Dialect, locked, source_of
from tidemark.errors import SourceError, SourceRefused, SourceUnreachable

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
}

# Views, partitioned and foreign tables too. A relation that is not there has no columns.
POSTGRESQL_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), format_type(a.atttypid, NULL),
       CASE WHEN a.atttypid = 'numeric'::regtype AND a.atttypmod > 0 THEN ((a.atttypmod - 4) >> 16) & 65535 END,
       CASE WHEN a.atttypid = 'numeric'::regtype AND a.atttypmod > 0 THEN (((a.atttypmod - 4) & 2047) # 1024) - 1024 END,
       NOT a.attnotnull
FROM pg_attribute AS a
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""

POSTGRESQL_TABLES = """
SELECT n.nspname, c.relname, obj_description(c.oid),
       (SELECT array_agg(a.attname ORDER BY array_position(i.indkey::int2[], a.attnum))
        FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
        WHERE i.indrelid = c.oid AND i.indisprimary),
       (SELECT array_agg(a.attname ORDER BY a.attnum) FROM pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.atttypid IN ('timestamptz'::regtype, 'timestamp'::regtype))
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND NOT starts_with(n.nspname, 'pg_') AND has_table_privilege(c.oid, 'SELECT')
ORDER BY 1, 2"""

# What the server says to a login that is wrong or lacks a right; libpq gives no code for it.
REFUSALS = re.compile(
    r"password authentication failed|authentication failed|no password supplied|no pg_hba.conf entry|permission denied"
    r"|role .* does not exist|is not permitted to log in"
)


# A login that is wrong, a right that is lacking.
REFUSED_CODES = ("28", "42501")
LOCKED_CODE = psycopg.errors.LockNotAvailable.sqlstate


class PostgresqlDialect(Dialect):
    schemes = ("postgresql", "postgres")
    port = 5432
    # Rows come as a stream: a page costs a question, and no memory.
    page = 650_000
    slice = 500_000

    def ordered(self, column: Column) -> str:
        # By code point, as Python compares: a language's own order would make windows mean something else here and there.
        is_text = column.declared == "text" or column.declared.startswith("character")
        return super().ordered(column) + (' COLLATE "C"' if is_text else "")

    def tables(self) -> list[StreamDescription]:
        return [
            StreamDescription(source_of(schema, name), tuple(key or ()), tuple(cursors or ()), comment)
            for schema, name, comment, key, cursors in self._ask(POSTGRESQL_TABLES)
        ]

    def sample(self, source: str, share: float) -> str:
        # By pages of the table, which costs as little as it promises; the same pages each time, so that the same window
        # is cut at the same values. Views and foreign tables have no pages.
        found = self._ask(
            "SELECT relkind IN ('r', 'm', 'p') FROM pg_class WHERE oid = to_regclass(%s)", (self.name(source),)
        )
        return f" TABLESAMPLE SYSTEM ({100 * share:.6f}) REPEATABLE (0)" if found == [(True,)] else ""

    def columns(self, source: str) -> list[Column]:
        return [self._column(*row) for row in self._ask(POSTGRESQL_COLUMNS, (self.name(source),))]

    def _column(
        self, name: str, declared: str, plain: str, precision: int | None, scale: int | None, nullable: bool
    ) -> Column:
        return replace(self._typed(name, declared, plain, precision, scale), nullable=nullable)

    def _typed(self, name: str, declared: str, plain: str, precision: int | None, scale: int | None) -> Column:
        if plain in POSTGRESQL_TYPES:
            return Column(name, POSTGRESQL_TYPES[plain], declared)
        if plain in ("character", "character varying"):
            return Column(name, pa.string(), declared)
        if plain in ("timestamp without time zone", "timestamp with time zone"):
            return Column(name, INSTANT if plain.endswith("with time zone") else pa.timestamp("us"), declared)
        if precision is not None and scale is not None and precision <= 38 and 0 <= scale <= precision:
            # As text, which the driver takes in half the time.
            return Column(name, pa.decimal128(precision, scale), declared, as_text=True)
        # Arrays, enums, JSON (whose text the driver would rewrite), times of day (which Spark has no type for), …
        return Column(name, pa.string(), declared, as_text=True)

    def present(self) -> datetime:
        ((now,),) = self._ask("SELECT clock_timestamp() AT TIME ZONE 'UTC'")
        moment: datetime = now.replace(tzinfo=UTC)
        return moment

    @contextmanager
    def held(self, stream: str) -> Iterator[Any]:
        with self._failures(stream), connected(self.url) as connection:
            yield connection

    def fetch(self, sql: str, stream: str, held: Any = None) -> pa.Table:
        return pa.Table.from_batches(self.rows(sql, stream, held))

    def rows(self, sql: str, stream: str, held: Any = None) -> Iterator[pa.RecordBatch]:
        if held is None:
            with self.held(stream) as held:
                yield from self.rows(sql, stream, held)
            return
        with self._failures(stream):
            yield from streamed(held, sql)

    def about(self, table: str, where: str, stream: str) -> int | None:
        del stream
        ((plan,),) = self._ask(f"EXPLAIN (FORMAT JSON) SELECT 1 FROM {table} WHERE {where}")
        return int(plan[0]["Plan"]["Plan Rows"])

    @contextmanager
    def _failures(self, stream: str) -> Iterator[None]:
        who = f"{stream}: {self.target}"
        try:
            yield
        except ValueUnreadable:
            raise SourceError(f"{who} has a value that cannot be read.") from None
        except DriverFailed as error:
            if (error.code or "").startswith(REFUSED_CODES):
                raise SourceRefused(f"{who} refuses the login, or a right that it needs. Check user and password.") from None
            if error.code == LOCKED_CODE:
                raise locked(who) from None
            raise self._named(str(error), who) from None

    def _ask(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            with psycopg.connect(address(self.url)) as connection:
                connection.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'")
                return connection.execute(sql.encode(), values or None).fetchall()
        except DriverFailed as error:
            raise self._named(str(error), self.target) from None
        except psycopg.errors.LockNotAvailable:
            raise locked(self.target) from None
        except psycopg.OperationalError as error:
            raise self._named(str(error), self.target) from None
        except psycopg.errors.InsufficientPrivilege:
            raise SourceRefused(f"{self.target}: the login lacks a right that it needs.") from None
        except psycopg.Error as error:
            raise SourceError(f"{self.target} refused a question ({type(error).__name__}).") from None

    def _named(self, told: str, who: str) -> SourceError:
        # What the server says may quote the address or a value of a record: none of it is repeated.
        if REFUSALS.search(told):
            return SourceRefused(f"{who} refuses the login, or a right that it needs. Check user and password.")
        if "FATAL:" not in told and "ERROR:" in told:
            return SourceError(f"{who} refused the query. Does the table still have its columns?")
        return SourceUnreachable(f"{who} broke off or does not answer. Check host and port; run again when it is up.")
