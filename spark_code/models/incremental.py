"""An incremental model brought up to date: schemas first, then the policy, then hashes and state, then rows."""

from dataclasses import dataclass, replace

from pyiceberg.schema import Schema
from pyspark.sql import DataFrame

from spark_code.models.align import aligned
from spark_code.models.incoming import Incoming, refuse_misfits
from spark_code.models.kept import lost_values, told_lost
from spark_code.models.rebuild import Rebuild, beside
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
from spark_code.models.work import SETTLED, Outcome, Work
from tidemark.models.hashes import config_hash, sql_hash
from tidemark.models.place import spark_name
from tidemark.models.policy import Decision
from tidemark.models.publish import taken_back
from tidemark.models.results import Action
from tidemark.models.spec import DeleteInsertOptions, Incremental, ModelMetadata, Strategy
from tidemark.models.state import ModelState, ModelStateManager
from tidemark.models.windows import TimeWindow


@dataclass(frozen=True)
class Mode:
    """Whether a run brings what is new or everything, and why."""

    incremental: bool
    reason: str

    @property
    def action(self) -> Action:
        return "incremental" if self.incremental else "full"


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

    def should_run_incremental(self, state: ModelState | None, sql: str, incremental: Incremental, *, handled: bool) -> Mode:
        """Decides from state and hashes, after the policy has spoken.

        An edited query whose new columns the policy has just dealt with is what the policy is for: no reason to read
        everything. Edited otherwise, its old rows may mean something else.
        """
        if state is None:
            return Mode(False, "no state")
        if state.strategy is None:
            return Mode(False, "it was made anew by every run")
        if state.strategy != incremental.strategy:
            return Mode(False, f"the strategy was {state.strategy}")
        adds = incremental.strategy == "append" and incremental.options.filter_column and self.window is None
        if adds and state.last_processed_value is None:
            return Mode(False, "no last value")  # all rows would be added to those that are there
        if state.config_hash not in (None, config_hash(incremental)):
            return Mode(False, "the options of the strategy changed")
        if not handled and state.sql_hash not in (None, sql_hash(sql)):
            return Mode(False, "the query changed")
        return Mode(True, "state found")

    def _execute(self, table_name: str, sql_query: str, strategy: Strategy) -> Outcome:
        incremental = self.metadata.incremental
        assert incremental is not None, "the metadata are refused without"
        assert incremental.strategy == strategy, "chosen by the metadata"
        run, adapter = self.run, self.run.adapter
        state = self.state_manager.get(table_name)
        with run.step("read query"):
            work = Work.begun(run, self.metadata, sql_query, state, self.window)
        if not adapter.table_exists(table_name):
            return Rebuild(work).first("no table" if state is None else "the table is gone")
        if work.settled():
            run.decided("unchanged", SETTLED)
            return Outcome("unchanged", "unchanged", SETTLED, snapshot=run.base)
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
        return Update(work, decision, self.mode(work, decision)).done()

    def mode(self, work: Work, decision: Decision) -> Mode:
        """Whether the run brings what is new or everything, once the policy has decided."""
        incremental, state = self.metadata.incremental, work.state
        assert incremental is not None, "the metadata are refused without"
        if state is not None and taken_back(work.adapter.existing(work.name), state.snapshot):
            return Mode(False, "the table was taken back")
        # A difference that the table was left with before explains no edit of the query since.
        news = decision.standing is not None and decision.standing != (state.standing if state else None)
        mode = self.should_run_incremental(state, work.sql, incremental, handled=decision.changes_table or news)
        if self.window is None:
            return mode
        told = f"the window {self.window.told()} is made anew"
        return replace(mode, reason=told if mode.incremental else f"{mode.reason}, so all windows are made anew")


class Update:
    """New rows in a table that stays. Nothing that a reader sees changes before the commit that publishes."""

    def __init__(self, work: Work, decision: Decision, mode: Mode) -> None:
        self.work = work
        self.run = work.run
        self.adapter = work.adapter
        self.decision = decision
        self.mode = mode

    def done(self) -> Outcome:
        work, decision = self.work, self.decision
        self.run.decided(self.mode.action, self.mode.reason)
        last = work.state.last_processed_value if work.state and self.mode.incremental else None
        windowed = work.window is not None and self.mode.incremental
        incoming = work.windowed(work.window) if work.window and windowed else work.incoming(last)
        stored = {field.name.lower(): field for field in self.adapter.existing(work.name).schema().fields}
        with self.run.step("check values"):
            refuse_misfits(work.name, incoming.rows, decision.of("cast"), stored)
        return self._converted(incoming) if decision.of("convert") else self._staged(incoming)

    # --- where the table's rows stay ---------------------------------------------------------------------------------

    def _staged(self, incoming: Incoming) -> Outcome:
        work, run, whole = self.work, self.run, not self.mode.incremental
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
        rows = self._as_published(self.adapter.spark.table(run.stage(staged)), after) if did.changed else None
        checks = work.check(rows) if rows is not None else ()
        lost = self._lost(rows) if whole and rows is not None else {}
        greatest = work.furthest(did.greatest) if self.mode.incremental else did.greatest
        state = work.state_after(greatest, (after or table.schema()).fields, self.decision, emptied=lost)
        told = told_lost(work.name, lost, run.base)
        snapshot = run.publish_staged(state, after)
        return Outcome("published", self.mode.action, self.mode.reason, did, snapshot, self.decision, checks, told)

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
        reason = f"{self.mode.reason}; nothing new"
        return Outcome("unchanged", "unchanged", reason, did, self.run.base, self.decision)

    # --- where types are converted -----------------------------------------------------------------------------------

    def _converted(self, incoming: Incoming) -> Outcome:
        """Stored rows converted into a table beside, new ones added there, and all of it put in place at once."""
        work, run, whole = self.work, self.run, not self.mode.incremental
        table = self.adapter.existing(work.name)
        fields, schema = converted_fields(table, self.decision, work.fields)
        name = spark_name(run.place.beside)
        before = Target(self.adapter.spark, run.place.spark_name, fields, lambda: name, self.decision.renames)
        with run.step("check keys"), gathered(without_superseded(before, incoming), whole=whole) as batch:
            beside(work, fields, {})
            target = replace(before, stored_in=name, identity=frozenset(work.identity))
            if not whole:
                with run.step("convert"):
                    aligned(self.adapter.frame(run.place.table), fields, {}).writeTo(name).append()
            did = work.write(target, batch, whole=whole)
        checks = work.check(self._as_published(target.rows, schema))
        greatest = work.furthest(did.greatest) if self.mode.incremental else did.greatest
        state = work.state_after(greatest, schema.fields, self.decision)
        snapshot = run.publish_beside(state, schema)
        return Outcome("published", self.mode.action, self.mode.reason, did, snapshot, self.decision, checks)
