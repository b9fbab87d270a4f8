"""The ancestral merge: on a branch, delete what was changed or removed and append what was read. The rest is not touched."""

from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_code.lake import Lake
from spark_code.parts import Parts
from tidemark.catalog.marker import format_marker
from tidemark.catalog.plan import RunPlan
from tidemark.catalog.rows import CARRIED, FRESH, STATE_SCHEMA, VANISHED, Kind, Label
from tidemark.catalog.settled import Settled
from tidemark.catalog.units import UnitLabels, changes_nothing
from tidemark.faults import fault_point
from tidemark.lake import MARKER, RUN_ID

COLUMNS = """kind string NOT NULL, unit_key bigint NOT NULL, ordinal int NOT NULL, qualified_name string NOT NULL,
    unit string NOT NULL, object_id string, digest string, label string NOT NULL, run_id string NOT NULL,
    entity string NOT NULL"""

# Deletes are written next to the files, not into them: carried rows stay in the files they are in. Small row groups let a
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
    # Tables that were gone when their columns were to be read.
    vanished: tuple[str, ...] = ()
    # Labels as they were decided in the end.
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def current(self) -> int | None:
        """The snapshot that a reader sees once this is published."""
        return self.base if self.snapshot is None else self.snapshot


@dataclass(frozen=True)
class StateMerge:
    """A state that is yet to be staged: every unit as it was settled, and the objects that hold what is appended."""

    plan: RunPlan
    settled: Settled
    # Databases and schemas as they were listed.
    places: Parts
    # Tables and columns as they were read.
    columns: Parts
    cores: int


def stage_state(lake: Lake, table: str, merge: StateMerge) -> StagedState:
    """Stages the state of a run: carried units by reference, changed ones replaced, removed ones gone."""
    plan, vanished = merge.plan, merge.settled.vanished
    counts = merge.settled.units.counts()
    if changes_nothing(counts):
        return StagedState(table, plan.run_id, plan.base_snapshot, None, vanished, counts)
    lake.create(table, COLUMNS, "kind", PROPERTIES)
    branch = lake.stage(table, plan.run_id)
    with lake.summary({RUN_ID: plan.run_id, MARKER: format_marker(plan.next_marker)}):
        drop_replaced(lake, branch, plan, merge.settled.units)
        fault_point("state.between_delete_and_append")
        append_fresh(lake, branch, merge)
    fault_point("state.after_append")
    staged = lake.reader.staged(table, plan.run_id)
    assert staged is not None, "the branch was made above"
    return StagedState(table, plan.run_id, plan.base_snapshot, staged.snapshot_id, vanished, counts)


def drop_replaced(lake: Lake, branch: str, plan: RunPlan, units: UnitLabels) -> None:
    """Deletes the rows of units that are replaced or gone; the label decides, never what was read."""
    if plan.base_snapshot is None:
        return
    if plan.mode == "full" and not len(units.keys_of(CARRIED)):
        lake.spark.sql(f"DELETE FROM {branch}")  # whole files: metadata only
        return
    keys = units.touched if plan.mode == "full" else units.keys_of([Label.UPDATED, Label.REMOVED])
    if not len(keys):
        return
    lake.spark.createDataFrame(pa.table({"unit_key": keys})).createOrReplaceTempView("replaced_units")
    lake.spark.sql(f"DELETE FROM {branch} WHERE unit_key IN (SELECT unit_key FROM replaced_units)")


def append_fresh(lake: Lake, branch: str, merge: StateMerge) -> None:
    """Appends the fresh rows, sorted by key, in as few files as they fill. They come from the store, not through here."""
    places = merge.places.holding(*FRESH)
    total = places.count(*FRESH) + merge.columns.count(Kind.TABLE, Kind.COLUMN)
    if not total:
        return
    fresh = f.col("label").isin(*FRESH) & (f.col("kind") != VANISHED)
    rows = (places + merge.columns).frame(lake.spark).where(fresh).select(*STATE_SCHEMA.names)
    files = file_count(total, merge.cores)
    spread = rows.coalesce(1) if files == 1 else rows.repartitionById(files, place_of("unit_key", files))
    spread.sortWithinPartitions("kind", "unit_key", "ordinal").writeTo(branch).append()


def file_count(rows: int, cores: int) -> int:
    """As few files as the rows fill, but a large write is shared by all cores."""
    return max(-(-rows // ROWS_PER_FILE), min(cores, -(-rows // ROWS_WORTH_A_TASK)), 1)


def place_of(key: str, places: int) -> Column:
    """Which of equal ranges a key is in. Keys are hashes, so the ranges fill evenly and nothing need be sampled."""
    return ((f.shiftright(key, 32) + (1 << 31)) * places / (1 << 32)).cast("int")
