"""What was dropped, and what was never there: dropped columns brought back, new columns filled for old rows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql import DataFrame

from spark_code.models.align import own
from spark_code.models.incoming import Incoming, bound, checked_columns, refuse_misfits
from spark_code.models.materialize import MaterializationHandler
from spark_code.models.merge import merge
from spark_code.models.run import ModelRun
from spark_code.models.strategies import gathered
from spark_code.models.target import Target, Written, renamed, same_keys
from spark_code.models.work import Outcome, Work, checked
from tidemark.errors import NotRestorable, UsageError
from tidemark.models.compare import compared
from tidemark.models.policy import SchemaStep
from tidemark.models.results import ModelResult
from tidemark.models.spec import MergeOptions, ModelMetadata
from tidemark.models.state import DroppedColumn
from tidemark.models.values import Value, in_type
from tidemark.runs import Mode, Reason


def restore(handler: MaterializationHandler, name: str, column: str, metadata: ModelMetadata) -> ModelResult:
    """Brings a dropped column back with the values it had. Rows written since are NULL in it."""
    with ModelRun(handler.adapter, name, str(uuid4())) as run:
        with run.step("restore"):
            outcome = _restored(run, column, metadata)
        return _finished(run, outcome)


def _finished(run: ModelRun, outcome: Outcome) -> ModelResult:
    result = outcome.result(run)
    run.finish(outcome.status, snapshot=outcome.snapshot, detail=result.summary())
    return result


def _restored(run: ModelRun, column: str, metadata: ModelMetadata) -> Outcome:
    state = run.subject.states.get(run.name)
    gone = next((each for each in reversed(state.dropped if state else ()) if each.name.lower() == column.lower()), None)
    if state is None or gone is None:
        known = ", ".join(each.name for each in (state.dropped if state else ())) or "none"
        raise UsageError(f"{run.name}: no dropped column '{column}' is recorded. Recorded: {known}.")
    keys = metadata.incremental.options.key_columns if metadata.incremental else ()
    field = NestedField.model_validate(gone.field)
    schema = _schema_with(run, gone, field, keys)
    run.decide(Mode.RESTORE, Reason.REQUESTED, gone.name, base_snapshot=run.base)
    run.stage(schema)
    filled = _filled(run, gone, keys, schema)
    checks = checked(run, metadata, run.adapter.frame(run.shadow))
    columns = {each.name: str(each.field_type) for each in schema.fields}
    dropped = tuple(each for each in state.dropped if each is not gone)
    after = replace(state, columns=columns, dropped=dropped, made_from=None)
    snapshot = run.publish_staged(after, schema)
    reason = f"{gone.name} restored from snapshot {gone.snapshot}"
    return Outcome("published", "full", reason, filled, snapshot, checks=checks)


def _schema_with(run: ModelRun, gone: DroppedColumn, field: NestedField, keys: Sequence[str]) -> Schema:
    """The table's schema with the old column in it, by its old number: files that have its values show them again."""
    table, reader = run.adapter.existing(run.name), run.adapter.reader
    named = next((each for each in table.schema().fields if each.name.lower() == gone.name.lower()), None)
    if named is not None and named.field_id != field.field_id:
        raise UsageError(f"{run.name}: there is another column {gone.name} in the table. Rename it, then restore.")
    if "." in gone.name:
        raise NotRestorable(_elsewhere(run, gone, "it was a field inside of a column"))
    if not keys and run.base is not None and reader.has_snapshot(run.place.table, gone.snapshot):
        had, has = (set(reader.files(run.place.table, each).data) for each in (gone.snapshot, run.base))
        if had - has:
            raise NotRestorable(_elsewhere(run, gone, "files with its values were rewritten since, and rows have no key"))
    return table.schema() if named is not None else Schema(*table.schema().fields, field)


def _filled(run: ModelRun, gone: DroppedColumn, keys: Sequence[str], schema: Schema) -> Written:
    """Rows that were rewritten since get their old value from the old snapshot, by key."""
    if not keys or not run.adapter.reader.has_snapshot(run.place.table, gone.snapshot):
        return Written()
    # Read from the shadow: the table no longer knows the column, and Iceberg checks conditions against its schema.
    old = run.adapter.lake.table(run.shadow, gone.snapshot)
    empty = run.adapter.frame(run.shadow).where(own(gone.name).isNull()).select(*renamed(keys))
    wanted = old.where(own(gone.name).isNotNull()).select(*map(own, keys), own(gone.name))
    wanted = wanted.join(empty, same_keys(keys), "left_semi")
    return _merged(run, wanted, keys, Target(run.adapter.spark, run.stage(schema), schema.fields, run.stage))


def _merged(run: ModelRun, rows: DataFrame, keys: Sequence[str], target: Target) -> Written:
    """Puts the values of the rows into the rows of their keys, where they are staged; each must fit into its column."""
    fields, given = target.fields, run.adapter.query_fields(rows, run.name)
    casts = [SchemaStep("cast", change, change.told()) for change in compared(given, fields).type_mismatches]
    refuse_misfits(run.name, rows, casts, {field.name.lower(): field for field in fields})
    incoming = Incoming(run.name, rows, given, MergeOptions(unique_key=tuple(keys)))
    with gathered(incoming, whole=False) as batch:
        return merge(target, batch, insert=False)


def _elsewhere(run: ModelRun, gone: DroppedColumn, why: str) -> str:
    return (
        f"{run.name}: {gone.name} cannot be restored in place: {why}. Its values are in snapshot {gone.snapshot}: "
        f"SELECT * FROM {run.place.spark_name} VERSION AS OF {gone.snapshot}."
    )


def backfill(
    handler: MaterializationHandler,
    name: str,
    sql: str,
    metadata: ModelMetadata,
    columns: Sequence[str],
    *,
    keys: Sequence[Mapping[str, Any]] | None = None,
    between: tuple[Value, Value] | None = None,
) -> ModelResult:
    """Fills columns of rows that are there already from the query: those of the keys, or of a range of the filter column."""
    with ModelRun(handler.adapter, name, str(uuid4())) as run:
        with run.step("backfill"):
            outcome = _backfilled(run, sql, metadata, columns, keys, between)
        return _finished(run, outcome)


def _backfilled(
    run: ModelRun,
    sql: str,
    metadata: ModelMetadata,
    columns: Sequence[str],
    keys: Sequence[Mapping[str, Any]] | None,
    between: tuple[Value, Value] | None,
) -> Outcome:
    state = run.subject.states.get(run.name)
    work = Work.begun(run, metadata, sql, state)
    options = work.options
    if not options.key_columns or state is None:
        raise UsageError(f"{run.name}: rows can be filled by key only, and the model has no unique_key, or has not run yet.")
    checked_columns(run.name, work.fields, MergeOptions(unique_key=tuple(columns)))
    rows = work.rows
    if keys is not None:
        given = [tuple(key[each] for each in options.key_columns) for key in keys]
        wanted = run.adapter.spark.createDataFrame(given, rows.select(*renamed(options.key_columns)).schema)
        rows = rows.join(wanted, same_keys(options.key_columns), "left_semi")
    field = work.incoming_filter
    if between is not None:
        if field is None:
            raise UsageError(f"{run.name}: a range is of the filter_column, and the model names none.")
        ends = [bound(in_type(end, field.field_type), field.field_type) for end in between]
        rows = rows.where(own(field.name).between(*ends))
    rows = rows.select(*map(own, [*options.key_columns, *columns]))
    run.decide(Mode.BACKFILL, Reason.REQUESTED, ", ".join(columns), base_snapshot=run.base)
    stored = run.adapter.existing(run.name).schema().fields
    did = _merged(run, rows, options.key_columns, Target(run.adapter.spark, run.place.spark_name, stored, run.stage))
    if not did.changed:
        run.discard_staged()
        return Outcome("unchanged", "unchanged", "nothing to fill", did, run.base)
    checks = work.check(run.adapter.frame(run.place.table, run.branch))
    return Outcome(
        "published", "incremental", "backfill", did, run.publish_staged(replace(state, made_from=None)), checks=checks
    )
