"""An incremental model brought up to date: schemas first, then the policy, then hashes and state, then rows."""

from dataclasses import dataclass, replace

from pyiceberg.schema import Schema
from pyspark.sql import DataFrame

from spark_code.models.align import aligned
from spark_code.models.incoming import Incoming, refuse_misfits
from spark_code.models.kept import lost_values, told_lost
from spark_code.models.rebuild import Rebuild, empty_shadow
from spark_code.models.run import ModelRun
from spark_code.models.schema import (
    ADDING,
    CHANGING,
    SchemaChangeHandler,
    SchemaComparator,
    converted_fields,
    schema_with,
)
from spark_code.models.strategies import gathered
from spark_code.models.target import Target, Written, is_large
from spark_code.models.window import without_superseded
from spark_code.models.work import Outcome, Work, because
from tidemark.models.hashes import config_hash, sql_hash
from tidemark.models.place import spark_name
from tidemark.models.policy import Decision
from tidemark.models.results import Action
from tidemark.models.spec import DeleteInsertOptions, Incremental, ModelMetadata, Strategy
from tidemark.models.state import ModelState, ModelStateManager
from tidemark.models.windows import TimeWindow
from tidemark.publication import taken_back
from tidemark.runs import Mode, Reason


@dataclass(frozen=True)
class Choice:
    """Whether a run brings what is new or everything, and why."""

    incremental: bool
    reason: Reason
    words: str = ""

    @property
    def mode(self) -> Mode:
        return Mode.INCREMENTAL if self.incremental else Mode.FULL

    @property
    def action(self) -> Action:
        return "incremental" if self.incremental else "full"

    @property
    def why(self) -> str:
        return because(self.reason, self.words)


class IncrementalExecutor:
    """Runs the three strategies, all in the same order."""

    def __init__(
        self, state_manager: ModelStateManager, run: ModelRun, metadata: ModelMetadata, window: TimeWindow | None = None
    ) -> None:
        self.state_manager = state_manager
        self.run = run
        self.metadata = metadata
        self.window = window

    def execute_append_strategy(self, table_name: str, sql_query: str) -> Outcome:
        """Adds new rows."""
        return self._execute(table_name, sql_query, "append")

    def execute_merge_strategy(self, table_name: str, sql_query: str) -> Outcome:
        """Adds rows of new keys and replaces those that differ."""
        return self._execute(table_name, sql_query, "merge")

    def execute_delete_insert_strategy(self, table_name: str, sql_query: str) -> Outcome:
        """Replaces rows by key, condition or range."""
        return self._execute(table_name, sql_query, "delete_insert")

    def should_run_incremental(
        self, state: ModelState | None, sql: str, incremental: Incremental, *, handled: bool
    ) -> Choice:
        """Decides from state and hashes, after the policy has spoken.

        An edited query whose new columns the policy has just dealt with is what the policy is for: no reason to read
        everything. Edited otherwise, its old rows may mean something else.
        """
        if state is None:
            return Choice(False, Reason.NO_STATE)
        if state.strategy is None:
            return Choice(False, Reason.WAS_REBUILT)
        if state.strategy != incremental.strategy:
            return Choice(False, Reason.STRATEGY_CHANGED, f"it was {state.strategy}")
        adds = incremental.strategy == "append" and incremental.options.filter_column and self.window is None
        if adds and state.last_processed_value is None:
            return Choice(False, Reason.NO_LAST_VALUE)  # all rows would be added to those that are there
        if state.config_hash not in (None, config_hash(incremental)):
            return Choice(False, Reason.OPTIONS_CHANGED)
        if not handled and state.sql_hash not in (None, sql_hash(sql)):
            return Choice(False, Reason.QUERY_CHANGED)
        return Choice(True, Reason.STATE_FOUND)

    def _execute(self, table_name: str, sql_query: str, strategy: Strategy) -> Outcome:
        incremental = self.metadata.incremental
        assert incremental is not None, "the metadata are refused without"
        assert incremental.strategy == strategy, "chosen by the metadata"
        run, adapter = self.run, self.run.adapter
        state = self.state_manager.get(table_name)
        with run.step("read query"):
            work = Work.begun(run, self.metadata, sql_query, state, self.window)
        if not adapter.table_exists(table_name):
            return Rebuild(work).first(Reason.NO_TABLE if state is None else Reason.TABLE_GONE)
        if work.settled():
            run.decide(Mode.INCREMENTAL, Reason.NOTHING_CHANGED, base_snapshot=run.base)
            return Outcome("unchanged", "unchanged", Reason.NOTHING_CHANGED, snapshot=run.base)
        with run.step("compare schemas"):
            comparator, handler = SchemaComparator(adapter), SchemaChangeHandler(adapter)
            decision = handler.handle_schema_changes(
                table_name,
                work.fields,
                comparator.get_table_schema(table_name),
                incremental.on_schema_change,
                sql_query=sql_query,
                full_incremental_refresh_config=self.metadata.full_incremental_refresh,
                incremental_config=incremental,
                renames=self.metadata.renames,
            )
        if decision.rebuild:
            return Rebuild(work).by_policy(decision)
        return Update(work, decision, self.chosen(work, decision)).done()

    def chosen(self, work: Work, decision: Decision) -> Choice:
        """Whether the run brings what is new or everything, once the policy has decided."""
        incremental, state = self.metadata.incremental, work.state
        assert incremental is not None, "the metadata are refused without"
        if state is not None and taken_back(work.adapter.existing(work.name), state.snapshot):
            return Choice(False, Reason.TABLE_ROLLED_BACK)
        # A difference that the table was left with before explains no edit of the query since.
        news = decision.standing is not None and decision.standing != (state.standing if state else None)
        choice = self.should_run_incremental(state, work.sql, incremental, handled=decision.changes_table or news)
        if self.window is None:
            return choice
        if choice.incremental:
            return Choice(True, Reason.WINDOW, self.window.told())
        return replace(choice, words=f"{choice.words}; so all windows are rebuilt".removeprefix("; "))


class Update:
    """New rows in a table that stays. Nothing that a reader sees changes before the commit that publishes."""

    def __init__(self, work: Work, decision: Decision, choice: Choice) -> None:
        self.work = work
        self.run = work.run
        self.adapter = work.adapter
        self.decision = decision
        self.choice = choice

    def done(self) -> Outcome:
        work, decision = self.work, self.decision
        self.run.decide(self.choice.mode, self.choice.reason, self.choice.words, base_snapshot=self.run.base)
        last = work.state.last_processed_value if work.state and self.choice.incremental else None
        windowed = work.window is not None and self.choice.incremental
        incoming = work.windowed(work.window) if work.window and windowed else work.incoming(last)
        stored = {field.name.lower(): field for field in self.adapter.existing(work.name).schema().fields}
        with self.run.step("check values"):
            refuse_misfits(work.name, incoming.rows, decision.of("cast"), stored)
        return self._converted(incoming) if decision.of("convert") else self._staged(incoming)

    # --- where the table's rows stay ---------------------------------------------------------------------------------

    def _staged(self, incoming: Incoming) -> Outcome:
        work, run, whole = self.work, self.run, not self.choice.incremental
        table = self.adapter.existing(work.name)
        staged, after = (schema_with(table, self.decision, kinds) for kinds in (ADDING, CHANGING))
        target = Target(
            self.adapter.spark,
            run.place.spark_name,
            (staged or table.schema()).fields,
            lambda: run.stage(staged),
            self.decision.renames,
            is_large(table),
            frozenset(work.identity),
        )
        with run.step("check keys"), gathered(without_superseded(target, incoming), whole=whole) as batch:
            did = work.write(target, batch, whole=whole, replacing=whole)
        if whole or incoming.end is not None or isinstance(work.options, DeleteInsertOptions):
            did = run.counted(did)
        if not did.changed:
            run.discard_staged()
            if not self.decision.changes_table:
                return self._unchanged(did)
        # Where only columns change, the rows that are published are those to be checked.
        found = self.adapter.spark.table(run.stage(staged)) if did.changed else self.adapter.frame(run.place.table)
        rows = self._as_published(found, after)
        checks = work.check(rows)
        lost = self._lost(rows) if whole and did.changed else {}
        greatest = work.furthest(did.greatest) if self.choice.incremental else did.greatest
        state = work.state_after(greatest, (after or table.schema()).fields, self.decision, emptied=lost)
        warnings = told_lost(work.name, lost, run.base)
        snapshot = run.publish_staged(state, after)
        return Outcome("published", self.choice.action, self.choice.why, did, snapshot, self.decision, checks, warnings)

    def _as_published(self, rows: DataFrame, schema: Schema | None) -> DataFrame:
        """Staged rows with the columns that they will have for readers."""
        if schema is None:
            return rows
        return aligned(rows.withColumnsRenamed(self.decision.renames), schema.fields, {})

    def _lost(self, rows: DataFrame) -> dict[str, int]:
        """Values that the policy keeps, and that are not among the rows of a full load."""
        return lost_values(self.adapter.frame(self.run.place.table), rows, self.decision)

    def _unchanged(self, did: Written) -> Outcome:
        """Nothing to publish; the state moves only if it has something new to say."""
        work = self.work
        fields = self.adapter.existing(work.name).schema().fields
        state = work.state_after(work.furthest(did.greatest), fields, self.decision)
        if work.state is None or state.to_json() != work.state.to_json() or work.state.snapshot != self.run.base:
            self.run.move_state(state)
        reason = f"{self.choice.why}; nothing new"
        return Outcome("unchanged", "unchanged", reason, did, self.run.base, self.decision)

    # --- where types are converted -----------------------------------------------------------------------------------

    def _converted(self, incoming: Incoming) -> Outcome:
        """Stored rows converted into a shadow table, new ones added there, and all of it put in place at once."""
        work, run, whole = self.work, self.run, not self.choice.incremental
        table = self.adapter.existing(work.name)
        fields, schema = converted_fields(table, self.decision, work.fields)
        name = spark_name(run.shadow)
        before = Target(self.adapter.spark, run.place.spark_name, fields, lambda: name, self.decision.renames)
        with run.step("check keys"), gathered(without_superseded(before, incoming), whole=whole) as batch:
            empty_shadow(work, fields, {})
            target = replace(before, stored_in=name, identity=frozenset(work.identity))
            if not whole:
                with run.step("convert"):
                    aligned(self.adapter.frame(run.place.table), fields, {}).writeTo(name).append()
            did = work.write(target, batch, whole=whole)
        checks = work.check(self._as_published(target.rows, schema))
        greatest = work.furthest(did.greatest) if self.choice.incremental else did.greatest
        state = work.state_after(greatest, schema.fields, self.decision)
        snapshot = run.publish_shadow(state, schema)
        return Outcome("published", self.choice.action, self.choice.why, did, snapshot, self.decision, checks)
