"""Parquet objects written and read by Spark tasks through the object store.

Spark itself knows no S3 here, and does not need to: a task hands Arrow batches to the store, on any executor.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
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
    """One Parquet object and its number of rows, by the values of the column that its writer counted."""

    key: str
    rows: int
    tally: Mapping[str, int] = field(default_factory=dict)

    def count(self, values: Iterable[str]) -> int:
        """How many rows have one of these values: nobody need fetch the object for that."""
        return sum(self.tally.get(str(value), 0) for value in values)


def parquet_bytes(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def write_part(store: ObjectStore, key: str, table: pa.Table, tally: str) -> Part:
    """`tally` is the column whose values are counted."""
    fault_point("parts.before_write")
    store.put(key, parquet_bytes(table))
    fault_point("parts.after_write")
    counts = {each["values"]: each["counts"] for each in pc.value_counts(table[tally]).to_pylist()}
    return Part(key, table.num_rows, counts)


class PartsWriter:
    """Writes rows of this process as they come, an object for every table that it is given."""

    def __init__(self, store: ObjectStore, schema: pa.Schema, prefix: str, tally: str) -> None:
        self._store, self._schema, self._prefix, self._tally = store, schema, prefix, tally
        self._parts: list[Part] = []

    def add(self, rows: pa.Table) -> None:
        key = f"{self._prefix}/part_{len(self._parts):05d}.parquet"
        self._parts.append(write_part(self._store, key, rows.cast(self._schema), self._tally))

    def written(self) -> "Parts":
        return Parts(self._store, self._schema, tuple(self._parts))


def read_part(store: ObjectStore, key: str, columns: list[str] | None = None) -> pa.Table:
    table = pq.read_table(io.BytesIO(store.read(key)), columns=columns)
    return table if columns is None else table.select(columns)


@dataclass(frozen=True)
class Extraction:
    """Rows yet to be made: each Spark task makes those of the requests that it is given."""

    requests: DataFrame
    make: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def write_parts(
    extraction: Extraction, schema: pa.Schema, store: ObjectStore, prefix: str, *, tally: str, rows: int = PART_ROWS
) -> "Parts":
    """Makes the rows and writes them in the same tasks, at most `rows` rows an object.

    A name carries the attempt: of a task that was tried again only the objects that it answered with count.
    """
    make = extraction.make

    def write(requests: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = f"{context.partitionId():05d}_{context.taskAttemptId()}" if context else "00000_0"
        with quick_next_task():
            for number, table in enumerate(regrouped(make(requests), schema, rows)):
                part = write_part(store, f"{prefix}/part_{task}_{number:05d}.parquet", table, tally)
                yield pa.record_batch({"part": [orjson.dumps(_on_index(part)).decode()]})

    with named_errors():
        written = extraction.requests.mapInArrow(write, "part string").collect()
    parts = (Part(*orjson.loads(row["part"])) for row in written)
    return Parts(store, schema, tuple(sorted(parts, key=lambda part: part.key)))


def _on_index(part: Part) -> list[Any]:
    return [part.key, part.rows, part.tally]


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

    def count(self, *values: str) -> int:
        """How many rows have one of these values in the column that was counted. The index says so."""
        return sum(part.count(values) for part in self.parts)

    def holding(self, *values: str) -> "Parts":
        """The objects that hold rows with one of these values; others of their rows come with them."""
        return replace(self, parts=tuple(part for part in self.parts if part.count(values)))

    def __add__(self, other: "Parts") -> "Parts":
        return replace(self, parts=self.parts + other.parts)

    def head(self, rows: int, columns: list[str]) -> pa.Table:
        """The first rows, or fewer if the first object has fewer."""
        if not self.parts:
            return pa.schema([self.schema.field(name) for name in columns]).empty_table()
        return read_part(self.store, self.parts[0].key, columns).slice(0, rows)

    def reader(self, columns: list[str]) -> pa.RecordBatchReader:
        """Some columns of all rows, one object in memory at a time. It can be read once."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        batches = (
            batch for part in self.parts for batch in read_part(self.store, part.key, columns).cast(schema).to_batches()
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


INDEX = "_parts.json"


def save_index(store: ObjectStore, prefix: str, parts: Iterable[Part]) -> None:
    """Which objects below a prefix count, and their rows: nobody need list them, nor trust a listing."""
    store.put(f"{prefix}/{INDEX}", orjson.dumps([_on_index(part) for part in parts]))


def saved_parts(store: ObjectStore, schema: pa.Schema, prefix: str) -> Parts | None:
    """What was saved below a prefix; None if nothing was, or not to the end."""
    found = store.find(f"{prefix}/{INDEX}")
    return None if found is None else Parts(store, schema, tuple(Part(*each) for each in orjson.loads(found.body)))
