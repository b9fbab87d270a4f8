"""The ancestral merge: on a branch, delete what changed or went and append what was read. The rest is not touched."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_code.catalog.columns import VANISHED
from spark_code.lake import Lake
from spark_code.parts import Parts
from tidemark.catalog.marker import format_marker
from tidemark.catalog.plan import RunPlan, fresh
from tidemark.catalog.rows import CARRIED, STATE_SCHEMA, Kind, Label
from tidemark.faults import fault_point
from tidemark.lake import MARKER, RUN_ID

COLUMNS = """kind string NOT NULL, unit_key bigint NOT NULL, ordinal int NOT NULL, qualified_name string NOT NULL,
    unit string NOT NULL, object_id string, digest string, label string NOT NULL, run_id string NOT NULL,
    entity string NOT NULL"""

# Deletes are written beside the files, not into them: carried rows stay in the files they are in. Small row groups let a
# reader of one range of keys skip the others.
PROPERTIES = {
    "format-version": "2",
    "write.delete.mode": "merge-on-read",
    "write.delete.distribution-mode": "none",
    "write.distribution-mode": "none",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.row-group-size-bytes": str(16 * 1024 * 1024),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
ROWS_PER_FILE = 250_000
ROWS_WORTH_A_TASK = 75_000


@dataclass(frozen=True, slots=True)
class StagedState:
    """A state that waits on its branch. `snapshot` is None when nothing changed: the published one stays."""

    table: str
    run_id: str
    base: int | None
    snapshot: int | None
    vanished: tuple[str, ...] = ()

    @property
    def current(self) -> int | None:
        """The snapshot that a reader sees once this is published."""
        return self.base if self.snapshot is None else self.snapshot


@dataclass(frozen=True)
class StateMerge:
    """A state that is yet to be staged: every unit with its label, and the columns that were read."""

    plan: RunPlan
    units: pa.Table
    columns: Parts


def stage_state(lake: Lake, table: str, merge: StateMerge) -> StagedState:
    """Stages the state of a run: carried units by reference, changed ones replaced, removed ones gone."""
    plan, units, columns = merge.plan, merge.units, merge.columns
    if plan.changes_nothing:
        return StagedState(table, plan.run_id, plan.base_snapshot, None)
    lake.create(table, COLUMNS, "kind", PROPERTIES)
    gone = columns.read(["kind", "unit"])
    vanished = gone.filter(pc.equal(gone["kind"], VANISHED))["unit"]
    brought = fresh(units)
    brought = brought.filter(pc.invert(pc.is_in(brought["unit"], vanished)))
    branch = lake.stage(table, plan.run_id)
    with lake.summary({RUN_ID: plan.run_id, MARKER: format_marker(plan.next_marker)}):
        drop_replaced(lake, branch, plan, units)
        fault_point("state.between_delete_and_append")
        append_fresh(lake, branch, brought, columns)
    fault_point("state.after_append")
    staged = lake.reader.staged(table, plan.run_id)
    assert staged is not None, "the branch was made above"
    return StagedState(table, plan.run_id, plan.base_snapshot, staged.snapshot_id, tuple(vanished.to_pylist()))


def drop_replaced(lake: Lake, branch: str, plan: RunPlan, units: pa.Table) -> None:
    """Deletes the rows of units that are replaced or gone; the label decides, never what was read."""
    if plan.base_snapshot is None:
        return
    labels = units["label"]
    if plan.mode == "full":
        carried = units.filter(pc.is_in(labels, pa.array(sorted(CARRIED))))
        if not carried.num_rows:
            lake.spark.sql(f"DELETE FROM {branch}")  # whole files: metadata only
            return
        replaced = units.filter(pc.invert(pc.is_in(labels, pa.array(sorted(CARRIED)))))
    else:
        replaced = units.filter(pc.is_in(labels, pa.array([Label.UPDATED, Label.REMOVED])))
    keys = replaced.select(["unit_key"])
    if not keys.num_rows:
        return
    lake.spark.createDataFrame(keys).createOrReplaceTempView("replaced_units")
    lake.spark.sql(f"DELETE FROM {branch} WHERE unit_key IN (SELECT unit_key FROM replaced_units)")


def append_fresh(lake: Lake, branch: str, brought: pa.Table, columns: Parts) -> None:
    """Appends the fresh rows, sorted by key, in as few files as they fill."""
    total = brought.num_rows + columns.rows
    if not total:
        return
    units = lake.spark.createDataFrame(brought)
    read = columns.frame(lake.spark).where(f.col("kind") == Kind.COLUMN)
    rows = read.unionByName(units).select(*STATE_SCHEMA.names)
    files = file_count(total)
    spread = rows.coalesce(1) if files == 1 else rows.repartitionById(files, place_of("unit_key", files))
    spread.sortWithinPartitions("kind", "unit_key", "ordinal").writeTo(branch).append()


def file_count(rows: int, cores: int = 2) -> int:
    """As few files as the rows fill, but a large write is shared by two tasks."""
    return max(-(-rows // ROWS_PER_FILE), min(cores, -(-rows // ROWS_WORTH_A_TASK)), 1)


def place_of(key: str, places: int) -> Column:
    """Which of equal ranges a key is in. Keys are hashes, so the ranges fill evenly and nothing need be sampled."""
    return ((f.shiftright(key, 32) + (1 << 31)) * places / (1 << 32)).cast("int")
