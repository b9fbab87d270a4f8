"""What a run changed, as JSON: fresh tables and their columns, all schemas and databases, and what was removed.

Everything lies in objects of the store before it is written as JSON, a chunk at a time: a renamed schema may have a million
columns, and each of them is in the diff twice.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from spark_code.catalog.state import StagedState
from spark_code.lake import Lake
from spark_code.parts import Extraction, Parts, read_part, regrouped, write_parts
from tidemark.catalog.mirror import text_of
from tidemark.catalog.plan import RunPlan
from tidemark.catalog.rows import TAIL, Kind, Label
from tidemark.catalog.units import Keys
from tidemark.faults import fault_point
from tidemark.store import ObjectStore

NAMES_TO_SEND = 500_000
GONE_SCHEMA = pa.schema([(name, pa.string()) for name in ("kind", "qualified_name", "unit", "entity")])
SHOWN = ["kind", "label", "entity"]
GONE = ["kind", "entity"]


@dataclass(frozen=True)
class IncrementalDiff:
    """The diff of one run, before it is written: objects of rows with kind, label and entity."""

    plan: RunPlan
    labels: dict[str, int]
    # All databases and schemas, counted by label; removed ones are left out.
    databases: Parts
    schemas: Parts
    # Fresh tables and their columns, counted by kind.
    columns: Parts
    # What the state lost, counted by kind.
    deleted: Parts


def departed(lake: Lake, touched: Keys, columns_read: int, staged: StagedState, store: ObjectStore, prefix: str) -> Parts:
    """Entities of the published state that the staged one has no more: tables, their columns, lost columns, schemas.

    `touched` are the keys of all units that were replaced or removed. The rows go from Spark's tasks into the store.
    """
    if staged.snapshot is None or staged.base is None:
        return Parts(store, GONE_SCHEMA, ())
    keys = f.broadcast(lake.spark.createDataFrame(pa.table({"unit_key": touched})))
    before = lake.table(staged.table, staged.base).join(keys, on="unit_key", how="left_semi")
    now = lake.table(staged.table, staged.snapshot).join(keys, on="unit_key", how="left_semi")
    names = now.select("kind", "qualified_name")
    # What was read is what the touched units have now: names of so many rows are cheaper sent around than sorted.
    names = f.broadcast(names) if columns_read <= NAMES_TO_SEND else names
    gone = before.join(names, on=["kind", "qualified_name"], how="left_anti")
    ordered = gone.select(*GONE_SCHEMA.names).sortWithinPartitions("kind", "qualified_name")
    return write_parts(Extraction(ordered, _as_they_come), GONE_SCHEMA, store, prefix, tally="kind")


def _as_they_come(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from rows


class DiffWriter:
    """Writes a diff below `runs/{run_id}/incremental-diff/`, a file a chunk, columns several at a time."""

    def __init__(self, store: ObjectStore, root: str, chunk_size: int, workers: int) -> None:
        self._store, self._root, self._chunk_size, self._workers = store, root, chunk_size, workers

    def write(self, diff: IncrementalDiff) -> dict[str, Any]:
        """Writes all files and then `metadata.json`, whose counts it returns."""
        fault_point("diff.before_write")
        counts = {
            "database": self._chunks("database/database", present(diff.databases)),
            "schema": self._chunks("schema/schema", present(diff.schemas)),
            "table": self._chunks("table/table", of_kind(diff.columns, Kind.TABLE)),
            "column": self._columns(diff.columns),
        }
        for kind in Kind:
            counts[f"deleted {kind}"] = self._chunks(f"delete/{kind}", of_kind(diff.deleted, kind), deleted=True)
        metadata = {
            "run_id": diff.plan.run_id,
            "connection": diff.plan.connection,
            "mode": diff.plan.mode,
            "reason": diff.plan.reason,
            "base_snapshot": diff.plan.base_snapshot,
            "labels": diff.labels,
            "counts": counts,
        }
        self._store.put(f"{self._root}/metadata.json", orjson.dumps(metadata, option=orjson.OPT_INDENT_2) + b"\n")
        fault_point("diff.after_write")
        return counts

    def _columns(self, columns: Parts) -> int:
        """The extracted objects, each re-cut to the chunk size. Each worker holds one object at a time."""
        jobs: list[tuple[Parts, int]] = []
        first = 0
        for part in columns.holding(Kind.COLUMN).parts:
            jobs.append((Parts(columns.store, columns.schema, (part,)), first))
            first += -(-part.count([Kind.COLUMN]) // self._chunk_size)

        def write(job: tuple[Parts, int]) -> int:
            return self._chunks("column/column", of_kind(job[0], Kind.COLUMN), first=job[1])

        with ThreadPoolExecutor(self._workers, thread_name_prefix="diff") as pool:
            return sum(pool.map(write, jobs))

    def _chunks(self, name: str, rows: Iterator[pa.Table], *, first: int = 0, deleted: bool = False) -> int:
        """Writes the rows in files of the chunk size. Returns how many there were."""
        written = 0
        batches = (batch for table in rows for batch in table.to_batches())
        schema = pa.schema([(field, pa.string()) for field in (GONE if deleted else SHOWN)])
        for number, chunk in enumerate(regrouped(batches, schema, self._chunk_size), start=first):
            self._store.put(f"{self._root}/{name}_{number}.json", json_lines(chunk, deleted=deleted))
            written += chunk.num_rows
        return written


def present(units: Parts) -> Iterator[pa.Table]:
    """The rows of units that are in the state."""
    for part in units.parts:
        rows = read_part(units.store, part.key, SHOWN)
        yield rows.filter(pc.not_equal(rows["label"], Label.REMOVED))


def of_kind(rows: Parts, kind: Kind) -> Iterator[pa.Table]:
    """The rows of one kind. Objects that hold none are not fetched."""
    fields = SHOWN if "label" in rows.schema.names else GONE
    for part in rows.holding(kind).parts:
        found = read_part(rows.store, part.key, fields)
        yield found.filter(pc.equal(found["kind"], kind))


def json_lines(rows: pa.Table, *, deleted: bool = False) -> memoryview:
    """A line of JSON for each entity, with its label."""
    entities = rows["entity"]
    if deleted:
        gone = pc.replace_substring(entities, '"status":"ACTIVE"', '"status":"DELETED"', max_replacements=1)
        return text_of(pc.binary_join_element_wise(gone, "", "\n"))
    head = pc.binary_slice(entities.cast(pa.binary()), 0, -len(TAIL)).cast(pa.string())
    return text_of(pc.binary_join_element_wise(head, ',"incremental_state":"', rows["label"], f'"{TAIL}\n', ""))
