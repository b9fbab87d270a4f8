"""Columns of the tables that changed, read from the source by Spark tasks, a batch of tables at a time."""

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_code.parts import Extraction
from tidemark.catalog.entities import EntityWriter
from tidemark.catalog.names import unit_key
from tidemark.catalog.packs.base import ColumnFacts, SourcePack, TableRef
from tidemark.catalog.rows import Kind, Row, as_table
from tidemark.errors import ColumnBatchFailed, SourceError
from tidemark.faults import fault_point

ATTEMPTS = 3
ROWS_AT_ONCE = 20_000

# A table that was listed and is gone when its columns are read: told to the driver by a row of this kind.
VANISHED = "vanished"


@dataclass(frozen=True, slots=True)
class ColumnRequest:
    """A table whose columns are to be read, and the label its columns get."""

    table: TableRef
    label: str


@dataclass(frozen=True)
class ColumnReader:
    """Reads columns inside a Spark task. Stateless: it is sent to the executors."""

    pack: SourcePack
    write: EntityWriter
    run_id: str
    pause: float = 0.5

    def rows(self, requests: Sequence[ColumnRequest], batch: int) -> Iterator[Row]:
        """Rows of every requested table. After a failure only the tables that are still missing are asked for again."""
        labels = {request.table: request.label for request in requests}
        missing = dict.fromkeys(labels)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                fault_point("columns.read_batch")
                for table, columns in self.pack.columns(list(missing)):
                    del missing[table]
                    yield from self._table_rows(table, columns, labels[table])
                return
            except SourceError as error:
                if attempt == ATTEMPTS:
                    raise ColumnBatchFailed(
                        f"batch {batch}: columns of {len(missing)} of {len(labels)} tables could not be read in {ATTEMPTS} "
                        f"attempts ({type(error).__name__}); nothing was published. Run again when the source is well."
                    ) from error
                time.sleep(self.pause * 2**attempt * random.uniform(0.5, 1))

    def _table_rows(self, table: TableRef, columns: list[ColumnFacts] | None, label: str) -> Iterator[Row]:
        unit = self.write.name(table.database, table.schema, table.name)
        key = unit_key(unit)
        if columns is None:
            yield Row(VANISHED, key, 0, unit, unit, table.object_id, None, label, self.run_id, "")
            return
        for facts, (name, entity) in zip(columns, self.write.columns(table, columns), strict=True):
            yield Row(Kind.COLUMN, key, facts.ordinal, name, unit, None, None, label, self.run_id, entity)


def extract_columns(
    spark: SparkSession, reader: ColumnReader, requests: Sequence[ColumnRequest], batch_size: int
) -> Extraction:
    """State rows of the columns of the requested tables: one Spark task a batch of at most `batch_size` tables."""
    batches = batch_count(len(requests), batch_size)
    asked = pa.table(
        {
            "database": [request.table.database for request in requests],
            "schema": [request.table.schema for request in requests],
            "name": [request.table.name for request in requests],
            "object_id": [request.table.object_id for request in requests],
            "label": [str(request.label) for request in requests],
            "batch": pa.array([index * batches // len(requests) for index in range(len(requests))], pa.int32()),
        }
    )

    def read(arrived: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine = [row for part in arrived for row in part.to_pylist()]
        if not mine:
            return
        wanted = [
            ColumnRequest(TableRef(row["database"], row["schema"], row["name"], row["object_id"]), row["label"])
            for row in mine
        ]
        waiting: list[Row] = []
        for row in reader.rows(wanted, mine[0]["batch"]):
            waiting.append(row)
            if len(waiting) == ROWS_AT_ONCE:
                yield from as_table(waiting).to_batches()
                waiting = []
        yield from as_table(waiting).to_batches()

    return Extraction(spark.createDataFrame(asked).repartitionById(batches, "batch"), read)


def batch_count(tables: int, batch_size: int, cores: int = 2, worth_a_task: int = 500) -> int:
    """As few batches as the size allows, but a large read is shared by two tasks."""
    needed = -(-tables // batch_size)
    return max(needed, min(cores, -(-tables // worth_a_task)), 1)
