"""Parquet objects written and read by Spark tasks through the object store.

Spark itself knows no S3 here, and does not need to: a task hands Arrow batches to the store, on any executor.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from spark_code.errors import named_errors
from spark_code.workers import quick_next_task
from tidemark.faults import fault_point
from tidemark.store import ObjectStore

PART_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class Part:
    """One Parquet object and its number of rows."""

    key: str
    rows: int


def parquet_bytes(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def write_part(store: ObjectStore, key: str, table: pa.Table) -> Part:
    fault_point("parts.before_write")
    store.put(key, parquet_bytes(table))
    fault_point("parts.after_write")
    return Part(key, table.num_rows)


def read_part(store: ObjectStore, key: str, columns: list[str] | None = None) -> pa.Table:
    return pq.read_table(io.BytesIO(store.read(key)), columns=columns)


@dataclass(frozen=True)
class Extraction:
    """Rows yet to be made: each Spark task makes those of the requests that it is given."""

    requests: DataFrame
    make: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def write_parts(
    extraction: Extraction, schema: pa.Schema, store: ObjectStore, prefix: str, rows: int = PART_ROWS
) -> list[Part]:
    """Makes the rows and writes them in the same tasks, at most `rows` rows an object, named by task and position."""
    make = extraction.make

    def write(requests: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context else 0
        with quick_next_task():
            for number, table in enumerate(regrouped(make(requests), schema, rows)):
                part = write_part(store, f"{prefix}/part_{task:05d}_{number:05d}.parquet", table)
                yield pa.record_batch({"key": [part.key], "rows": [part.rows]})

    with named_errors():
        written = extraction.requests.mapInArrow(write, "key string, rows long").collect()
    return sorted((Part(row["key"], row["rows"]) for row in written), key=lambda part: part.key)


def regrouped(batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of `rows` rows, the last one shorter; nothing for no rows."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        while count + batch.num_rows >= rows:
            head = batch.slice(0, rows - count)
            yield pa.Table.from_batches([*waiting, head]).cast(schema)
            batch, waiting, count = batch.slice(head.num_rows), [], 0
        if batch.num_rows:
            waiting.append(batch)
            count += batch.num_rows
    if count:
        yield pa.Table.from_batches(waiting).cast(schema)


@dataclass(frozen=True)
class Parts:
    """Rows that lie in the store as Parquet objects, to be read by Spark tasks or here."""

    store: ObjectStore
    schema: pa.Schema
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def read(self, columns: list[str] | None = None) -> pa.Table:
        """All rows in this process: for few rows, or for few columns of many."""
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        tables = [read_part(self.store, part.key, columns) for part in self.parts]
        return pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in tables)])

    def reader(self, columns: list[str]) -> pa.RecordBatchReader:
        """Some columns of all rows, one object in memory at a time. It can be read once."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        batches = (
            batch
            for part in self.parts
            for batch in read_part(self.store, part.key, columns).select(columns).cast(schema).to_batches()
        )
        return pa.RecordBatchReader.from_batches(schema, batches)

    def frame(self, spark: SparkSession) -> DataFrame:
        """All rows as a DataFrame, one task an object."""
        schema, store = from_arrow_schema(self.schema), self.store
        if not self.parts:
            return spark.createDataFrame([], schema)
        tasks = pa.array(range(len(self.parts)), pa.int32())
        keys = pa.table({"key": [part.key for part in self.parts], "task": tasks})

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with quick_next_task():
                for key in (key for batch in batches for key in batch["key"].to_pylist()):
                    yield from read_part(store, key).to_batches()

        return spark.createDataFrame(keys).repartitionById(len(self.parts), "task").mapInArrow(read, schema)


def find_parts(store: ObjectStore, schema: pa.Schema, prefix: str) -> Parts:
    """What was written below a prefix. Row counts come from the objects themselves, not from the listing."""
    keys = [info.key for info in store.list(prefix + "/")]
    counted = [Part(key, pq.read_metadata(io.BytesIO(store.read(key))).num_rows) for key in keys]
    return Parts(store, schema, tuple(counted))
