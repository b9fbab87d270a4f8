"""Tables and views of PostgreSQL, SQLite and DuckDB, by SQL: a window cut by quantiles of the cursor, keyset inside."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidemark.connectors.contract import Connector, Slice, StreamDescription, Window
from tidemark.connectors.cursors import Cursor
from tidemark.connectors.kinds._sql_dialects import Column, dialect_for
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import ConfigError, SourceError

# A slice smaller than this is not worth a task of its own.
LEAST_ROWS = 10_000


class SqlConnector(Connector):
    """Settings: `url` of the database. Credentials, if the URL has none: `user` and `password`."""

    kind = "sql"
    # A page is a query: fewer, larger ones.
    default_page = 100_000

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, str]) -> None:
        super().__init__(settings, credentials)
        unknown = sorted(self.settings.keys() - {"url"})
        if unknown or not isinstance(self.settings.get("url"), str):
            what = f"unknown: {', '.join(unknown)}" if unknown else "`url` is missing"
            raise ConfigError(f"settings of a sql connector: {what}. It has one, `url`, the address of the database.")
        self._dialect = dialect_for(self.settings["url"], self.credentials)

    def streams(self) -> list[StreamDescription]:
        return self._dialect.tables()

    def discover(self, stream: StreamSpec) -> pa.Schema:
        self._dialect.refuse(stream)
        return pa.schema([pa.field(column.name, column.type) for column in self._columns(stream).values()])

    def now(self, stream: StreamSpec) -> Cursor | None:
        self._dialect.refuse(stream)
        if stream.cursor is None:
            return None
        fields = stream.cursor_fields
        columns = [self._column(stream, name) for name in fields]
        if first_type(stream) == "timestamp":
            clock = self._dialect.clock(columns[0], stream.cursor_zone)
            return stream.parse_cursor(clock if len(fields) == 1 else [clock])
        shown = ", ".join(self._dialect.shown(column) for column in columns)
        order = ", ".join(f"{self._dialect.ordered(column)} DESC" for column in columns)
        known = " AND ".join(f"{self._dialect.ordered(column)} IS NOT NULL" for column in columns)
        rows = self._query(stream, f"SELECT {shown} FROM {self._table(stream)} WHERE {known} ORDER BY {order} LIMIT 1")
        if not rows.num_rows:
            return None
        greatest = [rows.column(position)[0].as_py() for position in range(len(fields))]
        return stream.parse_cursor(greatest if len(fields) > 1 else greatest[0])

    def count(self, stream: StreamSpec, window: Window) -> int | None:
        where = self._where(stream, window)
        return int(self._query(stream, f"SELECT count(*) AS n FROM {self._table(stream)} WHERE {where}")["n"][0].as_py())

    def slices(self, stream: StreamSpec, window: Window, parallel: int) -> list[Slice]:
        if window.empty:
            return []
        if stream.cursor is None:
            return [Slice(0)]
        count = self.count(stream, window) or 0
        size = max(min(self.page_size(stream), -(-count // parallel)), LEAST_ROWS)
        bounds: list[str | None] = [None if window.lower is None else str(window.lower)]
        bounds += [str(cut) for cut in self._cuts(stream, window, size)] if count > size else []
        ends = [*bounds[1:], None if window.upper is None else str(window.upper)]
        last = len(bounds) - 1
        slices = [
            Slice(number, lower, upper, window.closed and number == last)
            for number, (lower, upper) in enumerate(zip(bounds, ends, strict=True))
        ]
        nullable = stream.null_cursor != "exclude" and self._has_nulls(stream)
        return [*slices, Slice(len(slices), nulls=True)] if nullable else slices

    def read(self, stream: StreamSpec, slice: Slice, page_size: int) -> Iterator[pa.RecordBatch]:
        columns = self._columns(stream)
        schema = pa.schema([pa.field(column.name, column.type) for column in columns.values()])
        shown = ", ".join(self._dialect.shown(column) for column in columns.values())
        where = self._nulls(stream) if slice.nulls else self._where(stream, slice.window(stream))
        keys = [self._column(stream, name) for name in stream.key]
        # Comparing with NULL finds nothing, so records that lack a part of their key are asked for apart.
        keyed = " AND ".join(f"{self._dialect.ordered(key)} IS NOT NULL" for key in keys)
        order = [] if slice.nulls else [self._column(stream, name) for name in stream.cursor_fields]
        order += [key for key in keys if key not in order]
        ordered = ", ".join(self._dialect.ordered(column) for column in order)
        after = "true"
        while True:
            page = self._query(
                stream,
                f"SELECT {shown} FROM {self._table(stream)} WHERE {where} AND {keyed} AND {after} "
                f"ORDER BY {ordered} LIMIT {page_size}",
            )
            if page.num_rows < page_size:
                yield from batches(page, schema, stream)
                break
            # Records that share cursor and key with the last one may go on behind the page: all of them are asked for.
            last = [page[column.name][-1] for column in order]
            ties = 1
            while ties < page.num_rows and [page[column.name][-1 - ties] for column in order] == last:
                ties += 1
            yield from batches(page.slice(0, page.num_rows - ties), schema, stream)
            seen = ", ".join(self._dialect.literal(column, value.as_py()) for column, value in zip(order, last, strict=True))
            tied = f"SELECT {shown} FROM {self._table(stream)} WHERE {where} AND {keyed} AND ({ordered}) = ({seen})"
            yield from batches(self._query(stream, tied), schema, stream)
            after = f"({ordered}) > ({seen})"
        lacking = f"SELECT {shown} FROM {self._table(stream)} WHERE {where} AND NOT ({keyed})"
        yield from batches(self._query(stream, lacking), schema, stream)

    def close(self) -> None:
        """Every query has a connection of its own: nothing is kept open."""

    # --- SQL ---------------------------------------------------------------------------------------------------------

    def _table(self, stream: StreamSpec) -> str:
        return self._dialect.table(stream.source_name)

    def _columns(self, stream: StreamSpec) -> dict[str, Column]:
        found = {column.name: column for column in self._dialect.columns(stream.source_name)}
        if not found:
            raise SourceError(f"{stream.id}: there is no table or view '{stream.source_name}' at {self._dialect.target}.")
        return found

    def _column(self, stream: StreamSpec, name: str) -> Column:
        columns = self._columns(stream)
        if name not in columns:
            raise SourceError(f"{stream.id}: '{stream.source_name}' has no field '{name}'. It has: {', '.join(columns)}.")
        return columns[name]

    def _where(self, stream: StreamSpec, window: Window) -> str:
        """Inside the window, and with a cursor at all."""
        if stream.cursor is None:
            return "true"
        columns = [self._column(stream, name) for name in stream.cursor_fields]
        bounds = [f"{self._dialect.ordered(column)} IS NOT NULL" for column in columns]
        if window.lower is not None:
            bounds.append(self._compared(stream, columns, ">=", window.lower))
        if window.upper is not None:
            bounds.append(self._compared(stream, columns, "<=" if window.closed else "<", window.upper))
        return " AND ".join(bounds)

    def _compared(self, stream: StreamSpec, columns: list[Column], sign: str, bound: Cursor) -> str:
        # A bound with fewer parts stands for all that begin with it.
        parts = bound.parts or (bound,)
        left = ", ".join(self._dialect.ordered(column) for column in columns[: len(parts)])
        right = ", ".join(
            self._dialect.bound(column, part, stream.cursor_zone) for column, part in zip(columns, parts, strict=False)
        )
        return f"({left}) {sign} ({right})"

    def _nulls(self, stream: StreamSpec) -> str:
        columns = [self._column(stream, name) for name in stream.cursor_fields]
        return f"({' OR '.join(f'{self._dialect.ordered(column)} IS NULL' for column in columns)})"

    def _has_nulls(self, stream: StreamSpec) -> bool:
        found = self._query(stream, f"SELECT 1 AS n FROM {self._table(stream)} WHERE {self._nulls(stream)} LIMIT 1")
        return bool(found.num_rows)

    def _cuts(self, stream: StreamSpec, window: Window, size: int) -> list[Cursor]:
        """Values of the cursor's first field that cut the window into parts of about so many records."""
        column = self._column(stream, stream.cursor_fields[0])
        found = self._query(
            stream,
            f"SELECT DISTINCT c FROM (SELECT {self._dialect.shown(column, 'c')}, "
            f"row_number() OVER (ORDER BY {self._dialect.ordered(column)}) AS place FROM {self._table(stream)} "
            f"WHERE {self._where(stream, window)}) AS cut WHERE place % {size} = 0",
        )
        single = isinstance(stream.cursor, str)
        cuts = sorted(stream.parse_cursor(value if single else [value]) for value in found["c"].to_pylist())
        return [cut for cut in cuts if window.lower is None or cut > window.lower]

    def _query(self, stream: StreamSpec, sql: str) -> pa.Table:
        return self._dialect.fetch(sql, stream.id)


def first_type(stream: StreamSpec) -> str:
    return stream.cursor_types if isinstance(stream.cursor_types, str) else stream.cursor_types[0]


def batches(page: pa.Table, schema: pa.Schema, stream: StreamSpec) -> Iterator[pa.RecordBatch]:
    """A page as one batch of the discovered types."""
    if not page.num_rows:
        return
    try:
        yield pa.record_batch([page[field.name].cast(field.type).combine_chunks() for field in schema], schema=schema)
    except pa.ArrowException:
        raise SourceError(f"{stream.id}: a value does not fit the type that the source declares for its field.") from None
