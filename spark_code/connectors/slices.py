"""Slices of a window, each read and landed by one Spark task: pages become Parquet files of the Bronze table.

A task writes files that nothing refers to yet and then one small object that says so. A run that is stopped keeps the
slices that got so far; the run after it reads only the others.
"""

import io
import json
import random
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyspark.sql import SparkSession

from spark_code.errors import named_errors
from spark_code.workers import quick_next_task
from tidemark.connectors import lateness
from tidemark.connectors.bronze import Envelope, refuse_null_cursors, without_cursor, without_key
from tidemark.connectors.contract import REJECTED, Connector, Slice
from tidemark.connectors.fitting import fitted, unknown_fields
from tidemark.connectors.known import Known
from tidemark.connectors.landing import SliceDone
from tidemark.connectors.stream import StreamSpec
from tidemark.connectors.timestamps import parsed
from tidemark.errors import PositionLost, QuotaSpent, SchemaRefused, SliceFailed, SourceError, SourceRefused
from tidemark.faults import fault_point
from tidemark.store import ObjectStore

ATTEMPTS = 4
# Errors of a source that are the same in a minute.
LASTING = (SourceRefused, QuotaSpent, PositionLost)
SMALLEST_PAGE = 100
# A file is full after so many rows, or so many bytes in memory.
ROWS_PER_FILE, BYTES_PER_FILE = 500_000, 512 * 1024 * 1024
# Pages are collected into row groups: a file of many small ones is slow to read. Wide rows are not held for long.
ROWS_PER_GROUP, BYTES_PER_GROUP = 50_000, 32 * 1024 * 1024
# Columns whose values repeat. To look for repetitions in all the others takes longer than it saves; zstd finds most of them.
REPEATED = ["stream", "emitted_at", "run_id", "operation", "reason"]
# Columns that nothing can be made of: not compressed, and no bounds that anybody would prune by.
HASHES = ("key_hash", "content_hash")
# What becomes of a slice: the one, the other, or neither if it was not begun.
OUTCOME = ["done", "failed"]
# Groups of slices with one that this process could not read: it begins no other of theirs.
FAILED = set[str]()


@dataclass(frozen=True)
class SliceLander:
    """Reads one slice and writes it down. Stateless: it is sent to the executors."""

    connector: Connector
    envelope: Envelope
    # The fields as the source describes them, and as they land.
    described: pa.Schema
    declared: pa.Schema
    page_size: int
    store: ObjectStore
    # Where the table's files go, and how to write there.
    data: str
    quarantine_data: str
    io_properties: dict[str, str]
    # Where finished slices are noted, and the hashes of what landed before.
    done: str
    known: str | None
    # What was committed when the run began, in microseconds, where it is a moment.
    committed: int | None = field(repr=False)
    per_second: float | None = None
    pause: float = 0.5

    def land(self, slice: Slice) -> SliceDone:
        """All pages of a slice. After a failure it is read again, slower and in smaller pages; then it fails by name."""
        lander = self
        for attempt in range(1, ATTEMPTS + 1):
            try:
                fault_point("slice.read")
                done = lander._land(slice)
                if done.grew:
                    return done
                fault_point("slice.before_done")
                self.store.put(f"{self.done}/{slice.number:06d}.json", done.to_json().encode())
                fault_point("slice.after_done")
                return done
            except LASTING:
                raise  # a refused login does not become right by repetition
            except SourceError as error:
                if attempt == ATTEMPTS:
                    raise SliceFailed(
                        f"{self.envelope.stream.id}: slice {slice.number} could not be read in {ATTEMPTS} attempts: {error} "
                        "The slices that were finished are kept; run again when the source is available."
                    ) from error
                time.sleep(self.pause * 2**attempt * random.uniform(0.5, 1))
                lander = replace(lander, page_size=min(lander.page_size, max(lander.page_size // 4, SMALLEST_PAGE)))
        raise AssertionError("the loop returns or raises")

    def told(self, slice: Slice, group: str) -> dict[str, str]:
        """The outcome of a slice. A failure is no exception here: Spark would end the other tasks half-way."""
        if group in FAILED:
            return {}
        try:
            return {"done": self.land(slice).to_json()}
        except SliceFailed as error:
            FAILED.add(group)
            return {"failed": str(error)}

    def _land(self, slice: Slice) -> SliceDone:
        stream = self.envelope.stream
        files = self.files()
        rejected = ParquetFiles(PyArrowFileIO(self.io_properties), f"{self.quarantine_data}/{uuid4()}", QUARANTINE)
        known = Known(self._known_hashes())
        self.connector.limit(self.per_second)
        read, pages, late = 0, 0, lateness.NONE
        for page in self.connector.read(stream, slice, self.page_size):
            pages += 1
            reason = (page.schema.metadata or {}).get(REJECTED)
            if reason is not None:
                rejected.write(quarantined(page["text"].to_pylist(), self.envelope, reason.decode()))
                continue
            unknown = unknown_fields(page, self.described)
            if unknown.names and stream.schema_strategy != "fixed":
                return SliceDone(slice.number, 0, 0, 0, 0, (), (), grew=self._grown(unknown))
            page, misfits = fitted(page, self.declared)
            if misfits is not None:
                rejected.write(quarantined(as_texts(misfits), self.envelope, "a value does not fit the manifest's schema"))
            refuse_null_cursors(page, stream)
            if stream.null_cursor == "exclude":
                page = page.filter(pc.invert(without_cursor(page, stream)))
            lacking = without_key(page, stream)
            if pc.any(lacking).as_py():
                rejected.write(quarantined(as_texts(page.filter(lacking)), self.envelope, "a part of the key is missing"))
                page = page.filter(pc.invert(lacking))
            rows = self.envelope.landed(page, first=first_of(slice.number) + read)
            read += page.num_rows
            new = known.new(rows)
            late = lateness.added([late, self._late(new)])
            files.write(new)
        return SliceDone(
            slice.number,
            read,
            files.rows,
            read - files.rows,
            rejected.rows,
            files.close(),
            rejected.close(),
            late,
            pages=pages,
        )

    def _grown(self, unknown: pa.Schema) -> str:
        if self.envelope.stream.schema_strategy != "evolve":
            raise SchemaRefused(
                f"{self.envelope.stream.id}: records have fields that the source does not describe: "
                f"{', '.join(unknown.names)}. Nothing was published. `schema_strategy: evolve` takes them as they come."
            )
        return b64encode(unknown.serialize()).decode()

    def _late(self, rows: pa.RecordBatch) -> tuple[int, ...]:
        if self.committed is None or not rows.num_rows:
            return lateness.NONE
        stream = self.envelope.stream
        cursor = rows["record"].field(self.envelope.fields[stream.cursor_fields[0]].name)
        return lateness.late_counts(microseconds(cursor, stream), self.committed)

    def files(self) -> "ParquetFiles":
        """New files of the Bronze table, to be filled."""
        return ParquetFiles(PyArrowFileIO(self.io_properties), f"{self.data}/{uuid4()}", self.envelope.bronze)

    def _known_hashes(self) -> pa.Array:
        if self.known is None:
            return pa.array([], pa.binary())
        return pq.read_table(io.BytesIO(self.store.read(self.known)))["content_hash"].combine_chunks()


def microseconds(cursor: pa.Array, stream: StreamSpec) -> pa.Array:
    """The moments of a column of timestamps, since 1970. Some databases keep them as text."""
    if not pa.types.is_timestamp(cursor.type):
        texts = cursor.cast(pa.string()).to_pylist()
        zone = stream.cursor_zone
        return pa.array([None if text is None else parsed(text, zone).instant // 1000 for text in texts], pa.int64())
    if cursor.type.tz is None and stream.cursor_zone:
        cursor = pc.assume_timezone(cursor, stream.cursor_zone, ambiguous="earliest", nonexistent="earliest")
    return cursor.cast(pa.timestamp("us", cursor.type.tz)).cast(pa.int64())


def first_of(number: int) -> int:
    """The place of a slice's first record among those of its run."""
    return number << 40


class ParquetFiles:
    """Rows in files of a table, a new one when the last is full. No file for no rows."""

    def __init__(self, io: PyArrowFileIO, stem: str, schema: pa.Schema) -> None:
        self._io, self._stem, self._schema = io, stem, schema
        self._paths: list[str] = []
        self._writer: pq.ParquetWriter | None = None
        self._in_file = self._bytes_in_file = 0
        self._collected: list[pa.RecordBatch] = []
        self._collected_rows = self._collected_bytes = 0
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._collected.append(batch)
        self._collected_rows += batch.num_rows
        self._collected_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._collected_rows >= ROWS_PER_GROUP or self._collected_bytes >= BYTES_PER_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        if not self._collected:
            return
        group, self._collected = pa.Table.from_batches(self._collected), []
        self._collected_rows = self._collected_bytes = 0
        if self._writer is None or self._in_file >= ROWS_PER_FILE or self._bytes_in_file >= BYTES_PER_FILE:
            self._finish()
            self._paths.append(f"{self._stem}-{len(self._paths):05d}.parquet")
            sink = self._io.new_output(self._paths[-1]).create()
            self._writer = pq.ParquetWriter(sink, self._schema, use_dictionary=REPEATED, **self._plain_hashes())
            self._sink = sink
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._in_file += group.num_rows
        self._bytes_in_file += group.nbytes

    def _plain_hashes(self) -> dict[str, Any]:
        sink = pa.BufferOutputStream()
        pq.write_table(self._schema.empty_table(), sink)
        columns = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
        leaves = [columns.column(place).path for place in range(len(columns))]
        return {
            "compression": {path: "none" if path in HASHES else "zstd" for path in leaves},
            "write_statistics": [path for path in leaves if path not in HASHES],
        }

    def close(self) -> tuple[str, ...]:
        self._write_group()
        self._finish()
        return tuple(self._paths)

    def _finish(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._sink.close()
        self._writer, self._in_file, self._bytes_in_file = None, 0, 0


# A record that cannot land, as text: its own types may be what is wrong with it.
QUARANTINE = pa.schema(
    [
        ("stream", pa.string()),
        ("emitted_at", pa.timestamp("us", tz="UTC")),
        ("run_id", pa.string()),
        ("reason", pa.string()),
        ("record", pa.string()),
    ]
)


def as_texts(records: pa.RecordBatch) -> list[str]:
    return [json.dumps(row, default=str, ensure_ascii=False) for row in records.to_pylist()]


def quarantined(texts: list[str], envelope: Envelope, reason: str) -> pa.RecordBatch:
    return pa.record_batch(
        [
            pa.repeat(pa.scalar(envelope.stream.id), len(texts)),
            pa.repeat(pa.scalar(envelope.emitted_at, pa.timestamp("us", tz="UTC")), len(texts)),
            pa.repeat(pa.scalar(envelope.run_id), len(texts)),
            pa.repeat(pa.scalar(reason), len(texts)),
            pa.array(texts, pa.string()),
        ],
        schema=QUARANTINE,
    )


def land_slices(spark: SparkSession, lander: SliceLander, slices: list[Slice]) -> list[SliceDone]:
    """One Spark task a slice. If one fails, those under way are finished and kept, no other is begun, and it is named.

    With a rate limit it is one task after the other: more at once would only wait for each other.
    """
    if not slices:
        return []
    texts, group = [json.dumps(slice.to_json()) for slice in slices], str(uuid4())

    def land(arrived: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with quick_next_task():
            for number in (number for batch in arrived for number in batch["id"].to_pylist()):
                outcome = lander.told(Slice.from_json(json.loads(texts[number])), group)
                yield pa.record_batch([pa.array([outcome.get(name)], pa.string()) for name in OUTCOME], names=OUTCOME)

    tasks = 1 if lander.per_second else len(slices)
    with named_errors():
        rows = spark.range(0, len(slices), 1, tasks).mapInArrow(land, "done string, failed string").collect()
    for row in rows:
        if row["failed"] is not None:
            raise SliceFailed(row["failed"])
    return sorted((SliceDone.from_json(row["done"]) for row in rows), key=lambda done: done.number)
