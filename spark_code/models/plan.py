"""What a run of a model would do now, found out without writing anything."""

from pyspark.errors import PySparkException

from spark_code.models.incoming import Incoming, refuse_misfits
from spark_code.models.incremental import IncrementalExecutor
from spark_code.models.kept import carries, kept_columns, values_of
from spark_code.models.materialize import MaterializationHandler
from spark_code.models.run import ModelRun
from spark_code.models.schema import SchemaChangeHandler
from spark_code.models.strategies import chosen, gathered
from spark_code.models.work import Work, because
from tidemark.errors import TidemarkError
from tidemark.models.compare import SchemaDiff, compared
from tidemark.models.policy import Decision
from tidemark.models.results import Action, ModelPlan
from tidemark.models.spec import ModelMetadata
from tidemark.models.windows import TimeWindow
from tidemark.runs import Reason


def planned(
    handler: MaterializationHandler,
    name: str,
    sql: str,
    metadata: ModelMetadata,
    *,
    full: bool = False,
    window: TimeWindow | None = None,
) -> ModelPlan:
    """The plan of one model; what would stop its run is part of it."""
    try:
        return _planned(handler, name, sql, metadata, full=full, window=window)
    except TidemarkError as error:
        return ModelPlan(name, "unchanged", type(error).__name__, refused=str(error))


def _planned(
    handler: MaterializationHandler,
    name: str,
    sql: str,
    metadata: ModelMetadata,
    *,
    full: bool,
    window: TimeWindow | None,
) -> ModelPlan:
    adapter = handler.adapter
    run = ModelRun(adapter, name, "plan")  # never begun: it only lends its names
    state = handler.state_manager.get(name)
    work = Work.begun(run, metadata, sql, state, window)
    if metadata.materialization == "view":
        return ModelPlan(name, "view", Reason.VIEW)
    exists = adapter.table_exists(name)
    if metadata.materialization == "table" or full or not exists:
        reasons = {"table": Reason.ALWAYS_REBUILT, "full": Reason.REQUESTED, "first": Reason.NO_TABLE}
        which = "table" if metadata.materialization == "table" else "full" if full and exists else "first"
        return ModelPlan(name, "full", reasons[which], rows_expected=_rows(work.incoming()))
    return (
        ModelPlan(name, "unchanged", Reason.NOTHING_CHANGED, rows_expected=0) if work.settled() else _updated(handler, work)
    )


def _updated(handler: MaterializationHandler, work: Work) -> ModelPlan:
    metadata, name, adapter = work.metadata, work.name, work.adapter
    incremental = metadata.incremental
    assert incremental is not None, "the metadata are refused without"
    stored = adapter.existing(name).schema().fields
    diff = compared(work.fields, stored)
    changes = tuple(change.told() for change in diff.changes)
    try:
        decision = SchemaChangeHandler(adapter).handle_schema_changes(
            name,
            work.fields,
            stored,
            incremental.on_schema_change,
            full_incremental_refresh_config=metadata.full_incremental_refresh,
            incremental_config=incremental,
            renames=metadata.renames,
        )
        if decision.rebuild:
            return _rebuilt(work, decision, diff)
        choice = IncrementalExecutor(handler.state_manager, work.run, metadata, work.window).chosen(work, decision)
        last = work.state.last_processed_value if work.state and choice.incremental else None
        windowed = work.window if choice.incremental else None
        incoming = work.windowed(windowed) if windowed else work.incoming(last)
        refuse_misfits(name, incoming.rows, decision.of("cast"), {each.name.lower(): each for each in stored})
        with gathered(incoming, whole=not choice.incremental) as batch:
            rows = batch.facts.rows if batch.facts is not None else _rows(batch.incoming)
        warnings = decision.warnings + (() if choice.incremental else _losing(work, decision))
    except TidemarkError as error:
        return ModelPlan(name, "unchanged", type(error).__name__, changes, refused=str(error))
    # A window without rows takes those away that the table has there.
    nothing = choice.incremental and not rows and not windowed and not decision.changes_table
    action: Action = "unchanged" if nothing else choice.action
    return ModelPlan(name, action, choice.why, changes, decision.steps, warnings, rows)


def _losing(work: Work, decision: Decision) -> tuple[str, ...]:
    """What a full load would take from columns that the query no longer has, where rows cannot be found again."""
    columns = [] if carries(work.options) else kept_columns(decision)
    had = values_of(work.adapter.frame(work.run.place.table), columns)
    words = "would not be in the table any more: all rows are rebuilt from a query without it"
    return tuple(f"{work.name}: {count:,} values of {name} {words}" for name, count in had.items() if count)


def _rebuilt(work: Work, decision: Decision, diff: SchemaDiff) -> ModelPlan:
    reason = because(Reason.SCHEMA_CHANGED, f"the policy is {decision.rebuild}")
    rows = 0 if decision.rebuild == "recreate_empty" else _rows(work.incoming())
    changes = tuple(change.told() for change in diff.changes)
    return ModelPlan(work.name, "rebuild", reason, changes, decision.steps, decision.warnings, rows)


def _rows(incoming: Incoming) -> int | None:
    try:
        return int(chosen(incoming).rows.count())
    except PySparkException:
        return None
