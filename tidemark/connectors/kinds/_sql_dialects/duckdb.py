"""DuckDB files, opened for reading only."""

from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from tidemark.catalog.packs.base import database_file
from tidemark.connectors.contract import StreamDescription
from tidemark.connectors.kinds._sql_dialects.base import INSTANT, Column, Dialect
from tidemark.errors import SourceError, SourceUnreachable


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
