"""What a run changed, as JSON: fresh tables and their columns, all schemas and databases, and what went."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from spark_code.catalog.columns import VANISHED
from spark_code.catalog.state import StagedState
from spark_code.lake import Lake
from spark_code.parts import Parts, read_part
from tidemark.catalog.mirror import text_of
from tidemark.catalog.plan import RunPlan
from tidemark.catalog.rows import CARRIED, FRESH, TAIL, Kind, Label
from tidemark.faults import fault_point
from tidemark.store import ObjectStore

NAMES_TO_SEND = 500_000


@dataclass(frozen=True)
class IncrementalDiff:
    """The diff of one run, before it is written: rows with label and entity."""

    plan: RunPlan
    databases: pa.Table
    schemas: pa.Table
    tables: pa.Table
    columns: Parts
    deleted: pa.Table


def incremental_diff(lake: Lake, plan: RunPlan, units: pa.Table, columns: Parts, staged: StagedState) -> IncrementalDiff:
    """The diff of a staged state against the published one."""

    def of_kind(kind: Kind) -> pa.Table:
        rows = units.filter(pc.equal(units["kind"], kind))
        return rows.filter(pc.invert(pc.is_in(rows["unit"], pa.array(staged.vanished, pa.string()))))

    def present(rows: pa.Table) -> pa.Table:
        return rows.filter(pc.not_equal(rows["label"], Label.REMOVED))

    tables = of_kind(Kind.TABLE)
    return IncrementalDiff(
        plan=plan,
        databases=present(of_kind(Kind.DATABASE)),
        schemas=present(of_kind(Kind.SCHEMA)),
        tables=tables.filter(pc.is_in(tables["label"], pa.array(sorted(FRESH)))),
        columns=columns,
        deleted=departed(lake, units, columns.rows, staged),
    )


def departed(lake: Lake, units: pa.Table, columns_read: int, staged: StagedState) -> pa.Table:
    """Entities of the published state that the staged one has no more: tables, their columns, lost columns, schemas."""
    fields = ["kind", "qualified_name", "unit", "entity"]
    if staged.snapshot is None or staged.base is None:
        return pa.schema([(name, pa.string()) for name in fields]).empty_table()
    touched = units.filter(pc.invert(pc.is_in(units["label"], pa.array(sorted(CARRIED))))).select(["unit_key"])
    keys = f.broadcast(lake.spark.createDataFrame(touched))
    before = lake.table(staged.table, staged.base).join(keys, on="unit_key", how="left_semi")
    now = lake.table(staged.table, staged.snapshot).join(keys, on="unit_key", how="left_semi")
    names = now.select("kind", "qualified_name")
    # What was read is what the touched units have now: names of so many rows are cheaper sent around than sorted.
    names = f.broadcast(names) if columns_read <= NAMES_TO_SEND else names
    gone = before.join(names, on=["kind", "qualified_name"], how="left_anti")
    return gone.select(*fields).orderBy("kind", "qualified_name").toArrow()


class DiffWriter:
    """Writes a diff below `runs/{run_id}/incremental-diff/`, a file a chunk, several at a time."""

    def __init__(self, store: ObjectStore, root: str, chunk_size: int, workers: int) -> None:
        self._store, self._root, self._chunk_size, self._workers = store, root, chunk_size, workers

    def write(self, diff: IncrementalDiff) -> dict[str, Any]:
        """Writes all files and then `metadata.json`, whose counts it returns."""
        small = {
            "database": diff.databases,
            "schema": diff.schemas,
            "table": diff.tables,
        }
        fault_point("diff.before_write")
        counts = {kind: self._chunks(f"{kind}/{kind}", rows) for kind, rows in small.items()}
        counts["column"] = self._columns(diff.columns)
        for kind in Kind:
            rows = diff.deleted.filter(pc.equal(diff.deleted["kind"], kind))
            counts[f"deleted {kind}"] = self._chunks(f"delete/{kind}", rows, deleted=True)
        metadata = {
            "run_id": diff.plan.run_id,
            "connection": diff.plan.connection,
            "mode": diff.plan.mode,
            "reason": diff.plan.reason,
            "base_snapshot": diff.plan.base_snapshot,
            "labels": diff.plan.counts,
            "counts": counts,
        }
        self._store.put(f"{self._root}/metadata.json", orjson.dumps(metadata, option=orjson.OPT_INDENT_2) + b"\n")
        fault_point("diff.after_write")
        return counts

    def _columns(self, columns: Parts) -> int:
        """The extracted parts, one after the other, re-cut to the chunk size. Each worker holds one part at a time."""
        numbers: list[tuple[str, int]] = []
        first = 0
        for part in columns.parts:
            numbers.append((part.key, first))
            first += -(-part.rows // self._chunk_size)

        def write(job: tuple[str, int]) -> int:
            key, number = job
            rows = read_part(self._store, key, ["kind", "qualified_name", "label", "entity"])
            return self._chunks("column/column", rows.filter(pc.not_equal(rows["kind"], VANISHED)), first=number)

        with ThreadPoolExecutor(self._workers, thread_name_prefix="diff") as pool:
            return sum(pool.map(write, numbers))

    def _chunks(self, name: str, rows: pa.Table, *, first: int = 0, deleted: bool = False) -> int:
        for number, body in enumerate(json_chunks(rows, self._chunk_size, deleted=deleted), start=first):
            self._store.put(f"{self._root}/{name}_{number}.json", body)
        return int(rows.num_rows)


def json_chunks(rows: pa.Table, size: int, *, deleted: bool = False) -> Iterator[memoryview]:
    """JSON lines of the entities with their labels, `size` a chunk."""
    for start in range(0, rows.num_rows, size):
        chunk = rows.slice(start, size)
        entities = chunk["entity"]
        if deleted:
            gone = pc.replace_substring(entities, '"status":"ACTIVE"', '"status":"DELETED"', max_replacements=1)
            lines = pc.binary_join_element_wise(gone, "", "\n")
        else:
            head = pc.binary_slice(entities.cast(pa.binary()), 0, -len(TAIL)).cast(pa.string())
            lines = pc.binary_join_element_wise(head, ',"incremental_state":"', chunk["label"], f'"{TAIL}\n', "")
        yield text_of(lines)
