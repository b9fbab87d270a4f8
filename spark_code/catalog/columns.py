"""Columns of the tables that changed, read from the source by Spark tasks, a batch of tables at a time."""

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from itertools import groupby
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from spark_code.parts import Extraction, Parts, read_part
from tidemark.catalog.entities import EntityWriter, signal_of
from tidemark.catalog.names import parts_of, unit_key
from tidemark.catalog.packs.base import SourcePack, TableReading, TableRef
from tidemark.catalog.rows import FRESH, VANISHED, Kind, Row, as_table
from tidemark.errors import ColumnBatchFailed, SourceError
from tidemark.faults import fault_point
from tidemark.store import ObjectStore

ATTEMPTS = 3
ROWS_AT_ONCE = 20_000


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
        """Columns of every requested table, and last a row for each of the tables: as it was when they were read.

        After a failure only the tables that are still missing are requested again.
        """
        labels = {request.table: request.label for request in requests}
        missing = dict.fromkeys(labels)
        tables: list[Row] = []
        for attempt in range(1, ATTEMPTS + 1):
            try:
                fault_point("columns.read_batch")
                for table, reading in self.pack.columns(list(missing)):
                    del missing[table]
                    tables.append(self._table_row(table, reading, labels[table]))
                    if reading is not None:
                        yield from self._column_rows(table, reading, labels[table])
                yield from tables
                return
            except SourceError as error:
                if attempt == ATTEMPTS:
                    raise ColumnBatchFailed(
                        f"batch {batch}: columns of {len(missing)} of {len(labels)} tables could not be read in {ATTEMPTS} "
                        f"attempts ({type(error).__name__}); nothing was published. Run again when the source is available."
                    ) from error
                time.sleep(self.pause * 2**attempt * random.uniform(0.5, 1))

    def _table_row(self, table: TableRef, reading: TableReading | None, label: str) -> Row:
        unit = self.write.name(table.database, table.schema, table.name)
        if reading is None:
            return Row(VANISHED, unit_key(unit), 0, unit, unit, None, None, label, self.run_id, "")
        facts = reading.table
        signal, entity = signal_of(facts), self.write.table(facts)
        return Row(Kind.TABLE, unit_key(unit), 0, unit, unit, facts.object_id, signal, label, self.run_id, entity)

    def _column_rows(self, table: TableRef, reading: TableReading, label: str) -> Iterator[Row]:
        unit = self.write.name(table.database, table.schema, table.name)
        key = unit_key(unit)
        for facts, (name, entity) in zip(reading.columns, self.write.columns(table, reading.columns), strict=True):
            yield Row(Kind.COLUMN, key, facts.ordinal, name, unit, None, None, label, self.run_id, entity)


def extract_columns(
    spark: SparkSession, reader: ColumnReader, tables: Parts, batch_size: int, cores: int, connections: int
) -> Extraction:
    """State rows of the columns of the fresh tables, at most `batch_size` tables a query.

    Tasks get the places of what they are to read and fetch the names themselves: a million of them need not pass through
    the driver. At most `connections` tasks read the source at the same time.
    """
    batches = batch_count(tables.count(*FRESH), batch_size, min(cores, connections))
    tasks, store = min(batches, connections), tables.store
    places = pa.Table.from_pylist(
        [{"task": each.batch * tasks // batches, **asdict(each)} for each in stretches(tables, batches)], PLACES
    )

    def read(arrived: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine = [Stretch(**row) for part in arrived for row in part.drop_columns(["task"]).to_pylist()]
        waiting: list[Row] = []
        for batch, some in groupby(sorted(mine, key=astuple), key=attrgetter("batch")):
            wanted = [request for stretch in some for request in requests_in(store, stretch)]
            for row in reader.rows(wanted, batch):
                waiting.append(row)
                if len(waiting) == ROWS_AT_ONCE:
                    yield from as_table(waiting).to_batches()
                    waiting = []
        yield from as_table(waiting).to_batches()

    return Extraction(spark.createDataFrame(places).repartitionById(tasks, "task"), read)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some of the fresh rows of an object, by their places among its fresh rows."""

    batch: int
    key: str
    first: int
    last: int


PLACES = pa.schema(
    [("task", pa.int32()), ("batch", pa.int32()), ("key", pa.string()), ("first", pa.int64()), ("last", pa.int64())]
)


def stretches(tables: Parts, batches: int) -> Iterator[Stretch]:
    """All fresh tables in their order, cut into batches of about the same size."""
    total, passed = tables.count(*FRESH), 0
    ends = [-(-total * (batch + 1) // batches) for batch in range(batches)]
    for part in tables.parts:
        held = part.count(FRESH)
        for batch, end in enumerate(ends):
            first = max(ends[batch - 1] if batch else 0, passed)
            last = min(end, passed + held)
            if first < last:
                yield Stretch(batch, part.key, first - passed, last - passed)
        passed += held


def requests_in(store: ObjectStore, stretch: Stretch) -> Iterator[ColumnRequest]:
    rows = read_part(store, stretch.key, ["qualified_name", "label"])
    fresh = rows.filter(pc.is_in(rows["label"], pa.array(sorted(FRESH))))
    for row in fresh.slice(stretch.first, stretch.last - stretch.first).to_pylist():
        yield ColumnRequest(TableRef(*parts_of(row["qualified_name"])), row["label"])


def batch_count(tables: int, batch_size: int, cores: int, worth_a_task: int = 500) -> int:
    """As few batches as the size allows, but a large read is shared by all cores."""
    needed = -(-tables // batch_size)
    return max(needed, min(cores, -(-tables // worth_a_task)), 1)


def vanished_tables(columns: Parts) -> list[str]:
    """Qualified names of the tables that were gone when they were read. Objects without any are not fetched."""
    found = (read_part(columns.store, part.key, ["kind", "qualified_name"]) for part in columns.holding(VANISHED).parts)
    return [name for rows in found for name in rows.filter(pc.equal(rows["kind"], VANISHED))["qualified_name"].to_pylist()]
