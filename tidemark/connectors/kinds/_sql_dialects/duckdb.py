"""DuckDB files, opened for reading only."""

from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from tidemark.catalog.packs.base import database_file
from tidemark.connectors.contract import StreamDescription
from tidemark.connectors.cursors import Cursor
from tidemark.connectors.kinds._sql_dialects.base import INSTANT, Column, Dialect, source_of
from tidemark.errors import SourceError, SourceUnreachable

COLLATION = " COLLATE C"


class DuckdbDialect(Dialect):
    schemes = ("duckdb",)
    text_type = "VARCHAR"

    def ordered(self, column: Column) -> str:
        # By code point, as Python compares, whatever the column's own collation takes for equal.
        return super().ordered(column) + (COLLATION if self.is_text(column) else "")

    def literal(self, column: Column, value: Any) -> str:
        if isinstance(value, bytes):
            return f"unhex('{value.hex()}')"
        # Rows of values are compared only if both sides are collated alike.
        return super().literal(column, value) + (COLLATION if self.is_text(column) else "")

    def bound(self, column: Column, cursor: Cursor, zone: str | None) -> str:
        return super().bound(column, cursor, zone) + (COLLATION if self.is_text(column) else "")

    def compared(self, left: list[str], sign: str, right: list[str]) -> str:
        # Written out: DuckDB makes a BETWEEN of two bounds, and then has none for rows of values.
        pairs = list(zip(left, right, strict=True))
        alike = [f"{own} = {other}" for own, other in pairs]
        if sign == "=":
            return " AND ".join(alike)
        signs = [sign[0]] * (len(pairs) - 1) + [sign]
        cases = [" AND ".join([*alike[:place], f"{own} {signs[place]} {other}"]) for place, (own, other) in enumerate(pairs)]
        return f"({' OR '.join(cases)})"

    def tables(self) -> list[StreamDescription]:
        rows = self._fetched("SELECT table_schema, table_name FROM information_schema.tables ORDER BY ALL", self.target)
        return [StreamDescription(source_of(*row.values())) for row in rows.to_pylist()]

    def columns(self, source: str) -> list[Column]:
        try:
            described = self._fetched(f"DESCRIBE SELECT * FROM {self.table(source)}", self.target)
        except SourceUnreachable:
            raise
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

    def fetch(self, sql: str, stream: str, held: object = None) -> pa.Table:
        del held  # it makes the next connection quick, and is not needed
        return self._fetched(sql, stream)

    def held(self, stream: str) -> AbstractContextManager[object]:
        # Opening the file takes longer than reading a page; as long as one connection is there, others are quick.
        return self._connected(stream)

    def _fetched(self, sql: str, who: str) -> pa.Table:
        with self._connected(who) as connection:
            try:
                connection.execute("SET TimeZone = 'UTC'")
                return connection.sql(sql).to_arrow_table()
            except duckdb.Error as error:
                raise SourceError(f"{who}: {self.target} refused the query ({type(error).__name__}).") from None

    def _connected(self, who: str) -> duckdb.DuckDBPyConnection:
        try:
            return duckdb.connect(str(self._path), read_only=True)
        except duckdb.Error:
            raise SourceUnreachable(
                f"{who}: {self.target} cannot be opened. Is it there, and does nobody write to it?"
            ) from None

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
