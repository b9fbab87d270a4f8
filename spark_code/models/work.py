"""What one run of a model works with, and what came of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyiceberg.types import NestedField
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark_code.models.adapter import ModelAdapter, first_words
from spark_code.models.checks import blocking_failures, run_checks
from spark_code.models.incoming import Incoming, checked_columns, checked_partitions, inside, since, start_of
from spark_code.models.run import ModelRun
from spark_code.models.sources import found_before
from spark_code.models.strategies import written
from spark_code.models.target import Batch, Target, Written
from tidemark.checks import CheckResult
from tidemark.errors import QueryInvalid
from tidemark.models.hashes import config_hash, sql_hash
from tidemark.models.policy import Decision
from tidemark.models.results import Action, ModelResult, Status
from tidemark.models.sources import repeatable
from tidemark.models.spec import AppendOptions, Filtered, ModelMetadata
from tidemark.models.state import DroppedColumn, ModelState
from tidemark.models.values import Value, in_type
from tidemark.models.windows import TimeWindow
from tidemark.runs import Reason

Fields = tuple[NestedField, ...]


def because(reason: Reason, words: str = "") -> str:
    """A reason out of the closed list, with what varies."""
    return f"{reason}: {words}" if words else str(reason)


@dataclass(frozen=True)
class Outcome:
    """What a run did."""

    status: Status
    action: Action
    reason: str
    written: Written = field(default_factory=Written)
    snapshot: int | None = None
    decision: Decision = field(default_factory=Decision)
    checks: tuple[CheckResult, ...] = ()
    notes: tuple[str, ...] = ()
    more: Mapping[str, int] = field(default_factory=dict)

    def result(self, run: ModelRun) -> ModelResult:
        did = self.written
        rows = {"inserted": did.inserted, "updated": did.updated, "deleted": did.deleted, "unchanged": did.unchanged}
        return ModelResult(
            run.name,
            self.status,
            self.action,
            self.reason,
            run.run_id,
            {**{what: count for what, count in rows.items() if count}, **self.more},
            self.snapshot,
            self.decision.steps,
            (*self.decision.warnings, *self.notes),
            self.checks,
            dict(run.seconds),
        )


@dataclass(frozen=True)
class Work:
    """A model, its query as Spark reads it, and the run that is under way."""

    run: ModelRun
    metadata: ModelMetadata
    sql: str
    state: ModelState | None
    rows: DataFrame
    fields: Fields
    # What alone is to be rebuilt, if not everything.
    window: TimeWindow | None = None
    # What the query was about to read, if that alone decides what it says.
    made_from: str | None = None

    @classmethod
    def begun(
        cls, run: ModelRun, metadata: ModelMetadata, sql: str, state: ModelState | None, window: TimeWindow | None = None
    ) -> "Work":
        """Reads the query and finds the columns that the model's options name."""
        made_from = None if window or not metadata.incremental else found_before(run.adapter, sql, metadata)
        rows = run.adapter.query(sql, run.name, cls._variables(metadata))
        fields = run.adapter.query_fields(rows, run.name)
        work = cls(run, metadata, sql, state, rows, fields, window, made_from)
        refresh = metadata.full_incremental_refresh
        chunked = [each.column for each in refresh.parameters] if refresh and work.chunked else []
        checked_columns(run.name, fields, work.options, chunked)
        if metadata.partitions and work.incoming_filter:
            checked_partitions(run.name, work.incoming_filter, metadata.partitions)
        return work

    @staticmethod
    def _variables(metadata: ModelMetadata) -> Mapping[str, object]:
        """A chunk's variable is at its beginning: the query is of everything, unless a chunk or a run says otherwise."""
        refresh = metadata.full_incremental_refresh
        return {**metadata.variables, **{each.name: each.start_value for each in (refresh.parameters if refresh else ())}}

    @property
    def adapter(self) -> ModelAdapter:
        return self.run.adapter

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def options(self) -> Filtered:
        return self.metadata.incremental.options if self.metadata.incremental else AppendOptions()

    @property
    def chunked(self) -> bool:
        incremental = self.metadata.incremental
        return incremental is not None and incremental.on_schema_change == "full_incremental_refresh"

    def settled(self) -> bool:
        """Whether a run would find what the last one found: nothing it reads has changed, nor has anyone its table."""
        state = self.state
        if state is None or self.made_from is None or state.made_from != self.made_from or not repeatable(self.options):
            return False
        table = self.adapter.existing(self.name)
        head = table.current_snapshot()
        columns = {each.name: str(each.field_type) for each in table.schema().fields}
        # A column that was dropped and added again has its old name and type, and none of its values.
        same_columns = columns == state.columns and (head is None or head.schema_id == table.metadata.current_schema_id)
        return same_columns and (head.snapshot_id if head else None) == state.snapshot

    def windowed(self, window: TimeWindow) -> Incoming:
        """The rows of a window."""
        rows = self._rows_since(window.start, look_back=False)
        return inside(Incoming(self.name, rows, self.fields, self.options), window)

    def incoming(self, last: Value | None = None) -> Incoming:
        """The rows beyond the last value; without one, all from where the model begins."""
        rows = self.rows if last is None else self._rows_since(last)
        return since(Incoming(self.name, rows, self.fields, self.options), last)

    def _rows_since(self, last: Value, *, look_back: bool = True) -> DataFrame:
        """The query of a run that begins at the last value: so do variables of chunks along the filter column."""
        refresh, field = self.metadata.full_incremental_refresh, self.incoming_filter
        options = self.options if look_back else self.options.model_copy(update={"lookback": None})
        start = start_of(self.name, options, last, field.field_type if field else None)
        if refresh is None or field is None or start is None or self.options.by_condition:
            return self.rows
        along = [each.name for each in refresh.parameters if each.column.lower() == field.name.lower()]
        return self.adapter.query(self.sql, self.name, {**self._variables(self.metadata), **dict.fromkeys(along, start)})

    def write(self, target: Target, batch: Batch, *, whole: bool, replacing: bool = False) -> Written:
        """Writes by the strategy; a query that fails while it runs is named."""
        with self.run.step("write"):
            try:
                return written(target, batch, whole=whole, replacing=replacing)
            except PySparkException as wrong:
                raise QueryInvalid(f"{self.name}: its query fails, nothing was published: {first_words(wrong)}") from wrong

    def check(self, staged: DataFrame) -> tuple[CheckResult, ...]:
        """The model's checks on rows that nobody reads yet; a blocking one that fails ends the run."""
        return checked(self.run, self.metadata, staged)

    def state_after(
        self, greatest: Value | None, columns: Fields, kept: Decision | None = None, emptied: Iterable[str] = ()
    ) -> ModelState:
        """The state to be. `kept` is what was decided for a table whose rows stay; without it all rows are new.

        Columns that were emptied are recorded as dropped ones are, so that the snapshot that has their values stays.
        """
        incremental = self.metadata.incremental
        names = [each.name for each in columns]
        identity = names if kept is None else [kept.renames.get(name, name) for name in self.identity]
        return ModelState(
            last_processed_value=greatest,
            sql_hash=sql_hash(self.sql),
            config_hash=config_hash(incremental) if incremental else None,
            strategy=incremental.strategy if incremental else None,
            columns={each.name: str(each.field_type) for each in columns},
            identity=tuple(name for name in identity if name in names),
            dropped=(self.state.dropped if self.state else ()) + (self._dropped(kept, emptied) if kept else ()),
            standing=kept.standing if kept else None,
            made_from=self.made_from,
        )

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns of the table that every row was written with, as far as is known."""
        stored = [each.name for each in self.adapter.existing(self.name).schema().fields]
        known = self.state.identity if self.state else ()
        return tuple(name for name in stored if name in known) if known else tuple(stored)

    def furthest(self, greatest: Value | None) -> Value | None:
        """Where the state is after rows were added: never before where it was.

        A window that begins behind the last value leaves a gap, which nobody has read: the last value stays before it.
        """
        before = self.state.last_processed_value if self.state else None
        field = self.incoming_filter
        if field is None:
            return greatest
        known = None if before is None else in_type(before, field.field_type)
        if self.window is not None:
            reached = known if known is not None else self._beginning(field)
            if reached is None or in_type(self.window.start, field.field_type) > reached:  # type: ignore[operator]
                return known
        if known is None or greatest is None:
            return greatest if known is None else known
        return max(known, greatest)

    def _beginning(self, field: NestedField) -> Value | None:
        """Where the model says that time begins."""
        given = self.options.start_value
        return None if given is None else in_type(given, field.field_type)

    @property
    def incoming_filter(self) -> NestedField | None:
        return Incoming(self.name, self.rows, self.fields, self.options).filter_field

    def _dropped(self, decision: Decision, emptied: Iterable[str]) -> tuple[DroppedColumn, ...]:
        """What is about to go, with the snapshot that still has it."""
        schema, base = self.adapter.existing(self.name).schema(), self.run.base
        return tuple(
            DroppedColumn(name, schema.find_field(name).model_dump(mode="json"), base, self.run.run_id)
            for name in (*(step.name for step in decision.of("drop")), *emptied)
            if base is not None
        )


def checked(run: ModelRun, metadata: ModelMetadata, staged: DataFrame) -> tuple[CheckResult, ...]:
    """The model's checks on staged rows; a blocking one that fails ends the run."""
    if not metadata.checks:
        return ()
    published = run.adapter.frame(run.place.table) if run.base is not None else None
    with run.step("checks"):
        results = run_checks(run.name, staged, published, metadata.checks)
    run.require(blocking_failures(results, metadata.checks))
    return tuple(results)
