"""Changes of a table as pages: rows of texts from the log or a snapshot become columns of the lake's types."""

import io
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv

from tidemark.connectors.contract import OPERATION
from tidemark.connectors.kinds._cdc_database import padded
from tidemark.connectors.kinds._cdc_types import arrow_type, from_texts, texts_of
from tidemark.connectors.kinds._pgoutput import UNCHANGED, Delete, Insert, Relation, Truncate, Update, Value
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import SchemaRefused, SourceError

# A page is also full when its texts are as long as this, so that large values do not fill the memory.
PAGE_BYTES = 64 * 1024 * 1024

Row = list[Value]
Key = tuple[str, ...]
Found = dict[Key, dict[str, bytes | None]]
# Keys of records and names of fields, to the values that those have now.
Lookup = Callable[[list[Key], list[str]], Found]


@dataclass(frozen=True)
class Shape:
    """The fields of a slice. `changed` are those that had several types in it."""

    stream: StreamSpec
    # Name, PostgreSQL's number of the type, and its modifier.
    columns: tuple[tuple[str, int, int], ...]
    changed: frozenset[str]
    checkpoint_field: str

    @property
    def names(self) -> list[str]:
        return [name for name, *_ in self.columns]

    @property
    def fields(self) -> pa.Schema:
        typed = [pa.field(name, arrow_type(number, modifier)) for name, number, modifier in self.columns]
        return pa.schema([*typed, (self.checkpoint_field, pa.string())])

    def page(self, texts: list[pa.Array], cursors: pa.Array, operations: pa.Array) -> pa.RecordBatch:
        """One column of texts a field, in order; with where each record is from and what happened to it."""
        columns = [self._typed(column, field) for column, field in zip(texts, self.fields, strict=False)]
        schema = pa.schema([*self.fields, (OPERATION, pa.string())])
        return pa.record_batch([*columns, cursors, operations], schema=schema)

    def _typed(self, texts: pa.Array, field: pa.Field) -> pa.Array:
        try:
            return from_texts(texts, field.type)
        except pa.ArrowException:
            pass
        # Not inside the handler: what Arrow says quotes the value.
        if field.name in self.changed:
            raise SchemaRefused(
                f"{self.stream.id}: the type of '{field.name}' was changed, and a value from before does not fit the new "
                "one. `tidemark stream run --full` reads everything as it is now."
            )
        raise SourceError(
            f"{self.stream.id}: a value of '{field.name}' is none that {field.type} can hold, such as NaN, infinity or a "
            "year before 1. Fix it at the source, or leave the column out of the publication."
        )

    def snapshot_page(self, text: bytes, lsn: int) -> pa.RecordBatch:
        """Lines of CSV, in which everything but NULL is quoted, as a page of upserts."""
        options = pa.csv.ReadOptions(column_names=self.names, block_size=len(text) + 1, use_threads=False)
        try:
            table = pa.csv.read_csv(
                io.BytesIO(text), options, pa.csv.ParseOptions(newlines_in_values=True), self._convert_options()
            ).combine_chunks()
        except pa.ArrowException:
            table = None
        if table is None:
            raise SourceError(f"{self.stream.id}: a value is no text in UTF-8.")
        texts = [column.chunk(0) for column in table.columns]
        cursors = pa.repeat(pa.scalar(padded(lsn)), table.num_rows)
        return self.page(texts, cursors, pa.repeat(pa.scalar("upsert"), table.num_rows))

    def _convert_options(self) -> pa.csv.ConvertOptions:
        return pa.csv.ConvertOptions(
            column_types={name: pa.string() for name in self.names},
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        )

    def truncated(self, lsn: int) -> pa.RecordBatch:
        """One row that stands for all records before it."""
        nothing = [pa.nulls(1, pa.string()) for _ in self.columns]
        return self.page(nothing, pa.array([padded(lsn)]), pa.array(["truncate"]))


class LogPages:
    """Takes changes in the order of the log and gives pages."""

    def __init__(self, shape: Shape, page_size: int, lookup: Lookup) -> None:
        self._shape, self._page_size, self._lookup = shape, page_size, lookup
        self._rows: list[Row] = []
        self._operations: list[str] = []
        self._cursors: list[str] = []
        self._bytes = 0
        self._lacking: list[int] = []
        self._commit, self._place = "", 0
        self._places: list[int | None] = []
        self._key: list[int] = []
        self._plain = False

    def begin(self, commit: int) -> None:
        self._commit, self._place = padded(commit), 0

    def described(self, relation: Relation) -> None:
        """How the rows that follow are laid out."""
        names = [column.name for column in relation.columns]
        place = {name: number for number, name in enumerate(names)}
        self._places = [place.get(name) for name in self._shape.names]
        self._plain = names == self._shape.names
        flagged = {column.name for column in relation.columns if column.in_key}
        self._key = [place[name] for name in self._shape.stream.key if name in flagged]

    def take(self, change: Insert | Update | Delete | Truncate, size: int) -> None:
        """A change, and how many bytes it is long."""
        self._bytes += size
        if isinstance(change, Truncate):
            self._add("truncate", [None] * len(self._shape.columns))
            return
        if len(self._key) < len(self._shape.stream.key):
            raise SourceError(
                f"{self._shape.stream.id}: a part of the log identifies changes by another key than the manifest's: the "
                "replica identity or a column's name was changed. `tidemark stream run --full` reads everything again."
            )
        if isinstance(change, Insert):
            self._add("upsert", self._row(change.new))
        elif isinstance(change, Update):
            self._update(change)
        else:
            self._add("delete", self._key_row(change.old))

    @property
    def are_full(self) -> bool:
        return len(self._rows) >= self._page_size or self._bytes >= PAGE_BYTES

    @property
    def are_there(self) -> bool:
        return bool(self._rows)

    def _update(self, change: Update) -> None:
        new, old = change.new, change.old
        if old is not None:
            if change.whole:
                new = [before if value is UNCHANGED else value for value, before in zip(new, old, strict=True)]
            else:
                for place in self._key:
                    new[place] = old[place] if new[place] is UNCHANGED else new[place]
            if any(old[place] != new[place] for place in self._key):
                self._add("delete", self._key_row(old))
        row = self._row(new)
        if UNCHANGED in row:
            self._lacking.append(len(self._rows))
        self._add("upsert", row)

    def _row(self, values: Row) -> Row:
        return values if self._plain else [None if place is None else values[place] for place in self._places]

    def _key_row(self, values: Row) -> Row:
        return [values[place] if place in self._key else None for place in self._places]

    def _add(self, operation: str, row: Row) -> None:
        self._place += 1
        self._cursors.append(f"{self._commit}.{self._place:010d}")
        self._operations.append(operation)
        self._rows.append(row)

    def page(self) -> pa.RecordBatch:
        count = self._page_size
        rows, self._rows = self._rows[:count], self._rows[count:]
        cursors, self._cursors = self._cursors[:count], self._cursors[count:]
        operations, self._operations = self._operations[:count], self._operations[count:]
        self._bytes = 0
        lacking = [place for place in self._lacking if place < count]
        self._lacking = [place - count for place in self._lacking if place >= count]
        if lacking:
            self._complete([rows[place] for place in lacking])
        try:
            texts = [texts_of(column) for column in zip(*rows, strict=True)]
        except pa.ArrowException:
            texts = None
        if texts is None:
            raise SourceError(f"{self._shape.stream.id}: a value is no text in UTF-8.")
        return self._shape.page(texts, pa.array(cursors), pa.array(operations))

    def _complete(self, rows: list[Row]) -> None:
        """Large values that an update did not touch, as they are now.

        The log does not have them. If one was changed since, or its record is gone, then that stands later in the log, with
        the value or a deletion, and wins.
        """
        names = self._shape.names
        key = [names.index(name) for name in self._shape.stream.key]
        asked = sorted({place for row in rows for place, value in enumerate(row) if value is UNCHANGED})
        keys = [tuple(_text(row[place]) for place in key) for row in rows]
        found = self._lookup(sorted(set(keys)), [names[place] for place in asked])
        for row, own in zip(rows, keys, strict=True):
            values = found.get(own, {})
            for place in asked:
                if row[place] is UNCHANGED:
                    row[place] = values.get(names[place])


def _text(value: Value) -> str:
    return value.decode() if isinstance(value, bytes) else ""
