"""Tables and views of PostgreSQL, MariaDB, SQLite and DuckDB: a window cut by quantiles of the cursor, keyset inside."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidemark.connectors.contract import Connector, Slice, StreamDescription, Window
from tidemark.connectors.cursors import Cursor
from tidemark.connectors.kinds._sql_dialects import Column, dialect_for
from tidemark.connectors.kinds._sql_relation import Relation, schema_of
from tidemark.connectors.stream import StreamSpec
from tidemark.connectors.unknown_settings import unknown_settings
from tidemark.errors import ConfigError, SourceError

# A slice smaller than this is not worth a task of its own.
LEAST_ROWS = 10_000
# So many records are counted exactly; of more than that a guess will do.
COUNTED_ROWS = 100_000


class SqlConnector(Connector):
    """Settings: `url` of the database. Credentials, if the URL has none: `user` and `password`."""

    kind = "sql"

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, str]) -> None:
        super().__init__(settings, credentials)
        unknown = sorted(self.settings.keys() - {"url"})
        if unknown or not isinstance(self.settings.get("url"), str):
            what = unknown_settings(unknown, ["url"]) if unknown else "`url` is missing"
            raise ConfigError(f"settings of a sql connector: {what}. It has one, `url`, the address of the database.")
        self._dialect = dialect_for(self.settings["url"], self.credentials)

    @property
    def default_page(self) -> int:  # type: ignore[override]
        # A page is a query: fewer, larger ones.
        return self._dialect.page

    def streams(self) -> list[StreamDescription]:
        self.pace()
        return self._dialect.tables()

    def discover(self, stream: StreamSpec) -> pa.Schema:
        return self._relation(stream).schema

    def now(self, stream: StreamSpec) -> Cursor | None:
        relation = self._relation(stream)
        if stream.cursor is None:
            return None
        columns = relation.cursor
        if first_type(stream) == "timestamp":
            self.pace()
            clock = self._dialect.clock(columns[0], stream.cursor_zone)
            return stream.parse_cursor(clock if len(columns) == 1 else [clock])
        rows = self._query(
            stream,
            f"{relation.select(columns, relation.inside(Window()))} {relation.order(columns, ' DESC')} LIMIT 1",
        )
        if not rows.num_rows:
            return None
        greatest = [typed(rows[column.name], column.type, stream)[0].as_py() for column in columns]
        return stream.parse_cursor(greatest if len(columns) > 1 else greatest[0])

    def count(self, stream: StreamSpec, window: Window) -> int | None:
        return self._count(self._relation(stream), window)

    def slices(self, stream: StreamSpec, window: Window, parallel: int) -> list[Slice]:
        if window.empty:
            return []
        if stream.cursor is None:
            return [Slice(0)]
        with self._dialect.held(stream.id) as held:
            relation = self._relation(stream)
            count = self._about(relation, window, held)
            # Somewhat less than a page, so that one question gets all of a slice; and as many as all tasks end at once with.
            largest = max(min(self._dialect.slice, self.page_size(stream) * 4 // 5), 1)
            rounds = -(-count // (parallel * largest))
            size = max(-(-count // (parallel * max(rounds, 1))), LEAST_ROWS)
            cuts = self._cuts(relation, window, count, -(-count // size), held) if count > size else []
            nullable = stream.null_cursor != "exclude" and self._lacks_cursors(relation, held)
        bounds = [None if window.lower is None else str(window.lower), *(str(cut) for cut in cuts)]
        ends = [*bounds[1:], None if window.upper is None else str(window.upper)]
        last = len(bounds) - 1
        slices = [
            Slice(number, lower, upper, window.closed and number == last)
            for number, (lower, upper) in enumerate(zip(bounds, ends, strict=True))
        ]
        return [*slices, Slice(len(slices), nulls=True)] if nullable else slices

    def read(self, stream: StreamSpec, slice: Slice, page_size: int) -> Iterator[pa.RecordBatch]:
        with self._dialect.held(stream.id) as held:
            relation = self._relation(stream)
            columns = list(relation.columns.values())
            where = relation.without_cursor() if slice.nulls else relation.inside(slice.window(stream))
            order = [] if slice.nulls else relation.cursor
            named = {column.name for column in order}
            order += [key for key in relation.key if key.name not in named]
            yield from self._pages(relation, columns, f"{where} AND {relation.with_key()}", order, page_size, held)
            # Comparing with NULL finds nothing, so records that lack a part of their key are requested separately.
            if any(key.nullable for key in relation.key):
                for lacking in self._rows(
                    stream, relation.select(columns, f"{where} AND NOT ({relation.with_key()})"), held
                ):
                    yield from batches(pa.Table.from_batches([lacking]), relation.schema, stream, page_size)

    def keys(self, stream: StreamSpec, page_size: int) -> Iterator[pa.RecordBatch]:
        """Records that lack a part of their key are not listed: nothing of theirs ever landed."""
        with self._dialect.held(stream.id) as held:
            relation = self._relation(stream)
            yield from self._pages(relation, relation.key, relation.with_key(), relation.key, page_size, held)

    def close(self) -> None:
        """Every query has a connection of its own: nothing is kept open."""

    # --- questions ---------------------------------------------------------------------------------------------------

    def _pages(
        self, relation: Relation, columns: list[Column], where: str, order: list[Column], page_size: int, held: Any
    ) -> Iterator[pa.RecordBatch]:
        """Page after page by keyset on the columns of the order, which all have a value."""
        stream, schema = relation.stream, schema_of(columns)
        after, before = "true", None
        while True:
            read = 0
            # Batches that end alike: only of the last of them can it be said where the page ends.
            ends_alike: list[pa.RecordBatch] = []
            for batch in self._rows(
                stream,
                f"{relation.select(columns, f'{where} AND {after}')} {relation.order(order)} LIMIT {page_size}",
                held,
            ):
                if not batch.num_rows:
                    continue
                if ends_alike and ending(batch, order) != ending(ends_alike[-1], order):
                    yield from batches(pa.Table.from_batches(ends_alike), schema, stream, page_size)
                    ends_alike = []
                read += batch.num_rows
                ends_alike.append(batch)
            if not ends_alike:
                return
            page = pa.Table.from_batches(ends_alike)
            if read < page_size:
                yield from batches(page, schema, stream, page_size)
                return
            # Records that are equal to the last one in the order may go on behind the page: all of them are requested.
            last = ending(page, order)
            ties = 1
            while ties < page.num_rows and [page[column.name][-1 - ties] for column in order] == last:
                ties += 1
            yield from batches(page.slice(0, page.num_rows - ties), schema, stream, page_size)
            seen = [value.as_py() for value in last]
            if seen == before:
                raise SourceError(f"{stream.id}: {self._dialect.target} gives the same page again and again.")
            before = seen
            for tied in self._rows(
                stream, relation.select(columns, f"{where} AND {relation.compared(order, '=', seen)}"), held
            ):
                yield from batches(pa.Table.from_batches([tied]), schema, stream, page_size)
            after = relation.compared(order, ">", seen)

    def _relation(self, stream: StreamSpec) -> Relation:
        self._dialect.refuse(stream)
        self.pace()
        found = {column.name: column for column in self._dialect.columns(stream.source_name)}
        if not found:
            raise SourceError(f"{stream.id}: there is no table or view '{stream.source_name}' at {self._dialect.target}.")
        return Relation(self._dialect, stream, found)

    def _count(self, relation: Relation, window: Window) -> int:
        counted = self._query(relation.stream, f"SELECT count(*) AS n FROM {relation.table} WHERE {relation.inside(window)}")
        return int(counted["n"][0].as_py())

    def _about(self, relation: Relation, window: Window, held: Any) -> int:
        """How many records a window has: counted, or guessed when they are many."""
        some = f"SELECT 1 AS n FROM {relation.table} WHERE {relation.inside(window)} LIMIT {COUNTED_ROWS}"
        count = int(self._query(relation.stream, f"SELECT count(*) AS n FROM ({some}) AS t", held)["n"][0].as_py())
        if count < COUNTED_ROWS:
            return count
        self.pace()
        guess = self._dialect.about(relation.table, relation.inside(window), relation.stream.id)
        return self._count(relation, window) if guess is None else max(guess, count)

    def _lacks_cursors(self, relation: Relation, held: Any) -> bool:
        sql = f"SELECT 1 AS n FROM {relation.table} WHERE {relation.without_cursor()} LIMIT 1"
        return bool(self._query(relation.stream, sql, held).num_rows)

    def _cuts(self, relation: Relation, window: Window, count: int, parts: int, held: Any) -> list[Cursor]:
        """Values of the cursor's first field that cut the window into parts of about as many records."""
        stream, single = relation.stream, isinstance(relation.stream.cursor, str)
        found = typed(self._query(stream, relation.cuts(window, count, parts), held)["c"], relation.cursor[0].type, stream)
        cuts = sorted(stream.parse_cursor(value if single else [value]) for value in found.to_pylist())
        return [cut for cut in cuts if window.lower is None or cut > window.lower]

    def _query(self, stream: StreamSpec, sql: str, held: Any = None) -> pa.Table:
        self.pace()
        return self._dialect.fetch(sql, stream.id, held)

    def _rows(self, stream: StreamSpec, sql: str, held: Any) -> Iterator[pa.RecordBatch]:
        self.pace()
        return self._dialect.rows(sql, stream.id, held)


def first_type(stream: StreamSpec) -> str:
    return stream.cursor_types if isinstance(stream.cursor_types, str) else stream.cursor_types[0]


def ending(rows: pa.RecordBatch | pa.Table, order: list[Column]) -> list[pa.Scalar]:
    return [rows[column.name][-1] for column in order]


def batches(rows: pa.Table, schema: pa.Schema, stream: StreamSpec, page_size: int) -> Iterator[pa.RecordBatch]:
    """Rows as batches of the discovered types, none larger than a page and none empty."""
    columns = [typed(rows[field.name], field.type, stream) for field in schema]
    yield from pa.table(columns, schema=schema).to_batches(max_chunksize=page_size)


def typed(values: pa.ChunkedArray, type: pa.DataType, stream: StreamSpec) -> pa.ChunkedArray:
    """Values as the driver gave them, in the discovered type."""
    try:
        return values.cast(type)
    except pa.ArrowException:
        raise SourceError(f"{stream.id}: a value does not fit the type that the source declares for its field.") from None
