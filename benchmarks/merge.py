"""The ancestral merge at size: the same 1,000 changed tables in states of 1, 5 and 10 million columns."""

import shutil
import statistics
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import yaml
from pyspark.sql import DataFrame

from benchmarks.machine import Memory, timed
from spark_code.catalog.state import COLUMNS, PROPERTIES, ROWS_PER_FILE, StateMerge, stage_state
from spark_code.catalog.subject import CatalogSubject
from spark_code.parts import Parts, PartsWriter, regrouped, write_part
from spark_code.platform import Platform
from tidemark.catalog.checks import EXTRACTED, SCOPE, Evidence, Verification
from tidemark.catalog.entities import EntityWriter
from tidemark.catalog.labelled import UNITS_AT_ONCE
from tidemark.catalog.mode import Mode, Reason
from tidemark.catalog.names import unit_key
from tidemark.catalog.packs.base import ColumnFacts, TableFacts, TableRef
from tidemark.catalog.plan import RunPlan
from tidemark.catalog.rows import STATE_SCHEMA, Kind, Label, Row, as_table
from tidemark.catalog.settled import Settled
from tidemark.catalog.units import FIELDS, UnitLabels
from tidemark.checks import failed
from tidemark.config import load_config
from tidemark.publication import publish_branch

WIDTH = 50
CHANGED = 1_000
WRITER = EntityWriter("synthetic", "1")


def open_subject(folder: Path) -> CatalogSubject:
    connection = {"app": "sqlite", "id": "1", "url": "sqlite:///none.db", "incremental-extraction": True}
    document = {"store": str(folder / "store"), "connections": {"big": connection}}
    (folder / "tidemark.yaml").write_text(yaml.safe_dump(document))
    config = load_config(folder / "tidemark.yaml")
    return CatalogSubject(Platform(config), config.connection("big"))


def table_name(number: int) -> str:
    return f"table_{number:07d}"


def unit_row(number: int, label: Label, run_id: str) -> Row:
    name = WRITER.name("db", "public", table_name(number))
    facts = TableFacts("db", "public", table_name(number), "table", str(number), run_id, "a table", None, WIDTH)
    return Row(Kind.TABLE, unit_key(name), 0, name, name, str(number), run_id, label, run_id, WRITER.table(facts))


def column_rows(number: int, label: Label, run_id: str) -> list[Row]:
    table = TableRef("db", "public", table_name(number))
    unit = WRITER.name("db", "public", table.name)
    key = unit_key(unit)
    columns = [
        ColumnFacts(
            f"column_{position}", position, "character varying(255)", 255, None, None, True, None,
            f"number {position} of table {number}, read by {run_id}", None, (),
        )
        for position in range(1, WIDTH + 1)
    ]  # fmt: skip
    return [
        Row(Kind.COLUMN, key, facts.ordinal, name, unit, None, None, label, run_id, entity)
        for facts, (name, entity) in zip(columns, WRITER.columns(table, columns), strict=True)
    ]


def base_state(subject: CatalogSubject, tables: int) -> DataFrame:
    """A state of `tables` tables, made by Spark tasks."""
    from pyspark.sql.pandas.types import from_arrow_schema

    def make(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            numbers = batch["id"].to_pylist()
            for start in range(0, len(numbers), 200):
                some = numbers[start : start + 200]
                rows = [unit_row(n, Label.CREATED, "run-0") for n in some]
                rows += [row for n in some for row in column_rows(n, Label.CREATED, "run-0")]
                yield from as_table(rows).to_batches()

    return subject.lake.spark.range(tables).mapInArrow(make, from_arrow_schema(STATE_SCHEMA))


def publish_base(subject: CatalogSubject, tables: int) -> None:
    subject.control.migrate()
    table = subject.layout.table
    subject.lake.create(table, COLUMNS, "kind", PROPERTIES)
    branch = subject.lake.stage(table, "run-0")
    files = -(-tables * WIDTH // ROWS_PER_FILE)
    rows = base_state(subject, tables).repartitionByRange(files, "kind", "unit_key")
    rows.sortWithinPartitions("kind", "unit_key", "ordinal").writeTo(branch).append()
    publish_branch(subject.lake.reader.existing(table), "run-0", None)


def plan_of(run_id: str, base: int, tables: int) -> RunPlan:
    counts = {str(label): 0 for label in Label} | {
        "UPDATED": CHANGED,
        "NO CHANGE": tables - CHANGED,
        "schemas and databases": 0,
    }
    return RunPlan(
        connection="big", run_id=run_id, mode=Mode.INCREMENTAL, reason=Reason.STATE_FOUND, base_snapshot=base,
        marker_etag=None, next_marker=datetime.now(UTC), since=None, identity="x", scope={}, unlisted={}, counts=counts,
        tables_before=tables,
    )  # fmt: skip


def one_run(subject: CatalogSubject, tables: int, number: int, *, mirror: bool, taken: dict[str, list[float]]) -> None:
    """One incremental run in which every (tables / 1,000)-th table changed."""
    table, run_id = subject.layout.table, f"run-{number}"
    published = subject.lake.reader.published(table)
    assert published
    step = tables // CHANGED
    changed = {step * n + number % step for n in range(CHANGED)}
    before = subject.lake.reader.read(table, published.snapshot_id, STATE_SCHEMA.names, "kind = 'table'").cast(STATE_SCHEMA)
    fresh_units = as_table(unit_row(n, Label.UPDATED, run_id) for n in sorted(changed))
    names = fresh_units["qualified_name"]
    still = before.filter(pc.invert(pc.is_in(before["qualified_name"], names.combine_chunks())))
    labels = pa.array([str(Label.NO_CHANGE)] * still.num_rows, pa.string())
    listed = PartsWriter(subject.store, STATE_SCHEMA, f"bench/{run_id}/tables", "label")
    for some in regrouped(
        [*fresh_units.to_batches(), *still.set_column(7, STATE_SCHEMA.field("label"), labels).to_batches()],
        STATE_SCHEMA,
        UNITS_AT_ONCE,
    ):
        listed.add(some)
    units = listed.written()
    rows = as_table(row for n in sorted(changed) for row in column_rows(n, Label.UPDATED, run_id))
    rows = pa.concat_tables([rows, fresh_units])  # as tasks write them: tables last
    columns = Parts(subject.store, STATE_SCHEMA, (write_part(subject.store, f"bench/{run_id}.parquet", rows, "kind"),))
    settled = Settled(UnitLabels.of(units.reader(FIELDS)))
    none = Parts(subject.store, STATE_SCHEMA, ())
    del before, still, labels, rows

    with timed(taken, "stage + publish"):
        plan = plan_of(run_id, published.snapshot_id, tables)
        merge = StateMerge(plan, settled, none, columns, subject.platform.parallelism)
        staged = stage_state(subject.lake, table, merge)
        snapshot = publish_branch(subject.lake.reader.existing(table), run_id, published.snapshot_id)
    assert snapshot is not None
    with timed(taken, "checks"):
        verification = Verification(
            Evidence(
                subject.lake.reader, table, run_id, staged.base, snapshot, settled.units,
                lambda: units.reader(SCOPE), lambda: columns.reader(EXTRACTED), 30, False,
            )
        )  # fmt: skip
        wrong = failed(verification.results())
        verification.close()
    assert not wrong, wrong
    if mirror:
        with timed(taken, "JSON mirror"):
            subject.mirror.bring_to(table, snapshot, run_id, settled.units.touched)


def measure(tables: int, repeat: int, *, mirror: bool) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="tidemark-bench-"))
    try:
        subject = open_subject(folder)
        publish_base(subject, tables)
        warm: dict[str, list[float]] = {}
        for number in (1, 2):
            one_run(subject, tables, number, mirror=mirror, taken=warm)
        taken: dict[str, list[float]] = {}
        for number in range(3, 3 + repeat):
            one_run(subject, tables, number, mirror=mirror, taken=taken)
        # Watching slows down what it watches, so that has a run of its own.
        with Memory() as memory:
            one_run(subject, tables, 3 + repeat, mirror=mirror, taken=warm)
        medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
        subject.lake.spark.stop()  # the next size has a lake of its own
        return medians | {"peak GB": memory.peak}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
