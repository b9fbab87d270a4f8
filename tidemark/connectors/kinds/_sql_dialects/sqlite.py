"""SQLite: declared types are hints there, and what is stored decides."""

import sqlite3
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from tidemark.catalog.packs.base import database_file
from tidemark.connectors.contract import StreamDescription
from tidemark.connectors.cursors import Cursor, CursorType
from tidemark.connectors.kinds._sql_dialects.base import EPOCH, Column, Dialect, parts_of, source_of, written
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import ConfigError, SourceError, SourceUnreachable


class SqliteDialect(Dialect):
    """Declared types are hints here: what is stored decides, and a column of mixed types is refused."""

    schemes = ("sqlite",)

    def text(self, value: str) -> str:
        # A statement ends at a NUL.
        return super().text(value) if "\0" not in value else f"CAST(X'{value.encode().hex()}' AS TEXT)"

    def refuse(self, stream: StreamSpec) -> None:
        if stream.cursor_zone not in (None, "UTC"):
            raise ConfigError(
                f"{stream.id}: SQLite knows no time zones, so `cursor_zone: {stream.cursor_zone}` cannot be obeyed. "
                "Store timestamps in UTC or with their offset."
            )

    def tables(self) -> list[StreamDescription]:
        listed = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY 1"
        keys = "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk"
        return [
            StreamDescription(source_of(name), tuple(part for (part,) in self._ask(keys, name)))
            for (name,) in self._ask(listed)
        ]

    def columns(self, source: str) -> list[Column]:
        rows = self._ask("SELECT name, upper(type) FROM pragma_table_info(?)", parts_of(source)[-1])
        return [Column(name, *_sqlite_type(declared)) for name, declared in rows]

    def as_cursor(self, column: Column, type: CursorType, stream: str) -> Column:
        # There is no type for timestamps: whatever the column is declared as, its text is one.
        if type == "timestamp" and self.is_text(column):
            return replace(column, instant=True)
        return super().as_cursor(column, type, stream)

    def ordered(self, column: Column) -> str:
        own = super().ordered(column)
        if column.instant:
            # Text of any offset and precision, as comparable text in UTC.
            return f"strftime('%Y-%m-%dT%H:%M:%fZ', {own})"
        # By code point, as Python compares, whatever the column's own collation takes for equal.
        return f"{own} COLLATE BINARY" if pa.types.is_string(column.type) else own

    def literal(self, column: Column, value: Any) -> str:
        if column.instant:
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

    def fetch(self, sql: str, stream: str, held: object = None) -> pa.Table:
        del held  # every question has a connection of its own
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
