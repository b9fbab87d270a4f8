"""Bronze: every version of every record that was read, once, in a common envelope.

`key` and `record` are structs of the source's own types. A record is the same as one that landed before if its content is,
and its content includes key and cursor: reading a window again lands nothing twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.connectors.contract import OPERATION
from tidemark.connectors.cursors import Cursor
from tidemark.connectors.envelope import content_hash
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import CursorInvalid

INSTANT = pa.timestamp("us", tz="UTC")
# Letters that Arrow writes a moment with.
WIDTHS = {"s": 19, "ms": 23, "us": 26, "ns": 29}


class Operation(StrEnum):
    UPSERT = "upsert"
    DELETE = "delete"
    TRUNCATE = "truncate"
    """Stands for all records that came before it, and has no key."""


@dataclass(frozen=True)
class Envelope:
    """Puts the records of one run of one stream into their envelopes."""

    stream: StreamSpec
    # Each field of the source with the name and type that it lands under.
    fields: Mapping[str, pa.Field]
    run_id: str
    emitted_at: datetime

    @property
    def bronze(self) -> pa.Schema:
        return bronze_schema(pa.schema(list(self.fields.values())), self.stream.key)

    def landed(self, given: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """The records as rows of Bronze; `first` is the place of the first of them among those of the run."""
        return self._rows(given, first, self._operations(given))

    def gone(self, keys: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """Deletions that a comparison found: the key and nothing else. Each time a record goes is another deletion."""
        count = keys.num_rows
        records = pa.record_batch(
            [
                keys[name] if name in keys.schema.names else pa.nulls(count, field.type)
                for name, field in self.fields.items()
            ],
            names=list(self.fields),
        )
        rows = self._rows(records, first, pa.repeat(pa.scalar(Operation.DELETE.value), count))
        when = keys.append_column(OPERATION, pa.repeat(pa.scalar(f"{Operation.DELETE} {self.run_id}"), count))
        return rows.set_column(rows.schema.get_field_index("content_hash"), "content_hash", content_hash(when))

    def _rows(self, given: pa.RecordBatch, first: int, operations: pa.Array) -> pa.RecordBatch:
        count, schema = given.num_rows, pa.schema(list(self.fields.values()))
        records = pa.record_batch([given[name].cast(field.type) for name, field in self.fields.items()], schema=schema)
        key = pa.StructArray.from_arrays(
            [records[name] for name in self.stream.key], fields=list(self.bronze.field("key").type)
        )
        record = pa.StructArray.from_arrays(records.columns, fields=list(schema))
        return pa.record_batch(
            [
                pa.repeat(pa.scalar(self.stream.id), count),
                pa.repeat(pa.scalar(self.emitted_at, INSTANT), count),
                cursor_text(records, self.stream),
                key,
                record,
                content_hash(records, list(self.stream.key)),
                content_hash(records, schema.names),
                pa.repeat(pa.scalar(self.run_id), count),
                operations,
                pa.array(np.arange(first, first + count)),
            ],
            schema=self.bronze,
        )

    def _operations(self, records: pa.RecordBatch) -> pa.Array:
        if OPERATION in records.schema.names:
            return records[OPERATION]
        flag = self.stream.delete_flag
        if self.stream.deletes != "flag" or flag is None or flag not in records.schema.names:
            return pa.repeat(pa.scalar(Operation.UPSERT.value), records.num_rows)
        return pc.if_else(is_set(records[flag]), Operation.DELETE.value, Operation.UPSERT.value)


def is_set(flag: pa.Array) -> pa.Array:
    """Which values of a flag mean yes: true, a number but 0, a text but the usual words for no, any moment."""
    if pa.types.is_large_string(flag.type) or pa.types.is_string_view(flag.type):
        flag = flag.cast(pa.string())
    if pa.types.is_boolean(flag.type):
        marked = flag
    elif pa.types.is_integer(flag.type) or pa.types.is_floating(flag.type) or pa.types.is_decimal(flag.type):
        marked = pc.not_equal(flag.cast(pa.float64()), 0.0)
    elif pa.types.is_string(flag.type):
        marked = pc.invert(pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(flag)), NO))
    else:
        marked = pc.is_valid(flag)
    return pc.and_(pc.is_valid(flag), pc.fill_null(marked, False))


NO = pa.array(["", "0", "f", "false", "n", "no", "off"])


def bronze_schema(record: pa.Schema, key: Sequence[str]) -> pa.Schema:
    return pa.schema(
        [
            ("stream", pa.string()),
            ("emitted_at", INSTANT),
            ("cursor", pa.string()),
            ("key", pa.struct([record.field(name) for name in key])),
            ("record", pa.struct(list(record))),
            ("key_hash", pa.binary()),
            ("content_hash", pa.binary()),
            ("run_id", pa.string()),
            ("operation", pa.string()),
            ("arrival", pa.int64()),
        ]
    )


def cursor_columns(records: pa.RecordBatch, stream: StreamSpec) -> list[pa.Array]:
    return [records[name] for name in stream.cursor_fields]


def cursor_text(records: pa.RecordBatch, stream: StreamSpec) -> pa.Array:
    """The cursor of every record in the form that state keeps; NULL where there is none."""
    columns = cursor_columns(records, stream)
    if not columns:
        return pa.nulls(records.num_rows, pa.string())
    if len(columns) == 1:
        return as_text(columns[0])
    values = [as_text(column).to_pylist() for column in columns]
    return pa.array(
        [None if None in parts else str(stream.parse_cursor(list(parts))) for parts in zip(*values, strict=True)]
    )


def as_text(column: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(column.type):
        return column.cast(pa.string())
    # Without its zone, which is then UTC: Arrow writes that twenty times as fast.
    texts = column.cast(pa.int64()).cast(pa.timestamp(column.type.unit)).cast(pa.string())
    return with_letters(texts, WIDTHS[column.type.unit], "Z" if column.type.tz else "")


def with_letters(texts: pa.Array, width: int, zone: str) -> pa.Array:
    """`2026-01-02 03:04:05` as `2026-01-02T03:04:05Z`: in one piece, if all years have four digits."""
    count = len(texts)
    bounds = np.frombuffer(texts.buffers()[1] or b"", np.int32)[texts.offset : texts.offset + count + 1]
    if texts.null_count or not count or (np.diff(bounds) != width).any():
        texts = pc.replace_substring(texts, " ", "T", max_replacements=1)
        return pc.binary_join_element_wise(texts, zone, "") if zone else texts
    letters = np.empty((count, width + len(zone)), np.uint8)
    letters[:, :width] = np.frombuffer(texts.buffers()[2], np.uint8)[bounds[0] : bounds[-1]].reshape(count, width)
    letters[:, len("2026-01-02")] = ord("T")
    letters[:, width:] = np.frombuffer(zone.encode(), np.uint8)
    starts = np.arange(count + 1, dtype=np.int32) * letters.shape[1]
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(starts), pa.py_buffer(letters)])


def greatest_cursor(records: pa.RecordBatch, stream: StreamSpec) -> Cursor | None:
    """The greatest cursor among the records, compared as what it means."""
    columns = cursor_columns(records, stream)
    if not columns:
        return None
    if len(columns) == 1 and not (pa.types.is_string(columns[0].type) and stream.cursor_types != "text"):
        # Everything but text that means a time or a number is in the right order already.
        greatest = pc.max(columns[0])
        return stream.parse_cursor(as_text(pa.array([greatest], greatest.type))[0].as_py()) if greatest.is_valid else None
    texts = [text for text in pc.unique(cursor_text(records, stream)).to_pylist() if text is not None]
    return max((stream.parse_cursor(text) for text in texts), default=None)


def without_cursor(records: pa.RecordBatch, stream: StreamSpec) -> pa.Array:
    """Which records have no cursor."""
    lacking = pa.repeat(pa.scalar(False), records.num_rows)
    for column in cursor_columns(records, stream):
        lacking = pc.or_(lacking, pc.is_null(column))
    return lacking


def refuse_null_cursors(records: pa.RecordBatch, stream: StreamSpec) -> None:
    missing = pc.sum(without_cursor(records, stream)).as_py() or 0
    if missing and stream.null_cursor == "fail":
        raise CursorInvalid(
            f"{stream.id}: {missing} records have no value in the cursor '{stream.cursor_field}'. Fix them at the source, "
            "or say in the manifest what becomes of them: `null_cursor: include` or `exclude`."
        )


def without_key(records: pa.RecordBatch, stream: StreamSpec) -> pa.Array:
    """Which records lack a part of their key and should have it."""
    lacking = pa.repeat(pa.scalar(False), records.num_rows)
    for name in stream.key:
        lacking = pc.or_(lacking, pc.is_null(records[name]))
    if OPERATION in records.schema.names:
        lacking = pc.and_(lacking, pc.not_equal(records[OPERATION], Operation.TRUNCATE.value))
    return lacking
