"""One run of one connection, step by step: list → read → stage → diff → verify → publish, and the marker last."""

from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_code.catalog.columns import ColumnReader, ColumnRequest, extract_columns
from spark_code.catalog.diff import IncrementalDiff, incremental_diff
from spark_code.catalog.marks import move_marker
from spark_code.catalog.recovery import Recovery
from spark_code.catalog.state import StagedState, StateMerge
from spark_code.catalog.subject import CatalogSubject
from spark_code.parts import Extraction, Parts
from spark_code.run import RunFrame
from tidemark.catalog.checks import Evidence, Verification
from tidemark.catalog.diff_check import diff_agrees_with_state
from tidemark.catalog.labels import guard_removals
from tidemark.catalog.marker import Marker, format_marker
from tidemark.catalog.mode import Mode, Situation, decide
from tidemark.catalog.names import parts_of
from tidemark.catalog.packs.base import TableRef
from tidemark.catalog.plan import RunPlan, fresh, labelled_units, unit_counts, unlisted_since
from tidemark.catalog.published import SYSTEM, published_units
from tidemark.catalog.rows import CARRIED, FRESH, Kind, Label
from tidemark.checks import CheckResult, failed
from tidemark.errors import ChecksFailed, PartialRun
from tidemark.faults import fault_point

UNIT_KINDS = (Kind.DATABASE, Kind.SCHEMA, Kind.TABLE)


class CatalogRun(RunFrame):
    """One run of one connection."""

    def __init__(self, subject: CatalogSubject, run_id: str) -> None:
        super().__init__(run_id)
        self.subject = subject
        self._published = False

    # --- the frame of a run ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Takes the lease, puts right what a killed run left behind, and enters the run into the ledger."""
        self._hold(self.subject.control.leases, self.subject.mark, self._prepare)

    def _prepare(self) -> None:
        subject = self.subject
        fault_point("run.after_lease")
        Recovery(subject).recover(self.run_id)
        fault_point("run.after_recovery")
        subject.control.runs.begin(SYSTEM, subject.name, self.run_id, {"connection": subject.connection.name})
        fault_point("run.after_begin")

    def end(self) -> None:
        """Gives the lease back. A run that did not publish leaves nothing but, if a check failed, its stage."""
        try:
            record = self.subject.control.runs.find(SYSTEM, self.subject.name, self.run_id)
            if record.status == "running" and not self._published:
                keep = isinstance(self._error, ChecksFailed)
                if not keep:
                    Recovery(self.subject).undo(self.run_id)
                self.subject.control.runs.finish(self.run_id, "failed", error=self._error, detail={"seconds": self.seconds})
        finally:
            self._held.close()

    # --- the steps ---------------------------------------------------------------------------------------------------

    def list_units(self, *, force_full: bool = False, allow_removals: bool = False) -> tuple[RunPlan, pa.Table]:
        """Lists the source once, decides the mode, and labels every database, schema and table."""
        plan, units = plan_run(self.subject, self.run_id, force_full=force_full, allow_removals=allow_removals)
        guard(self.subject, plan)
        self.subject.control.runs.update(
            self.run_id,
            mode=plan.mode,
            reason=plan.reason,
            base_snapshot=plan.base_snapshot,
            marker=format_marker(plan.next_marker),
        )
        fault_point("run.before_plan")
        self.subject.save_plan(plan)
        fault_point("run.after_plan")
        return plan, units

    @cached_property
    def plan(self) -> RunPlan:
        return self.subject.load_plan(self.run_id)

    @cached_property
    def units(self) -> pa.Table:
        """Every database, schema and table with its label, as the run extracted them."""
        listed = [self.subject.extracted(self.run_id, f"{kind}s").read() for kind in UNIT_KINDS]
        return pa.concat_tables(listed)

    @cached_property
    def columns(self) -> Parts:
        return self.subject.extracted(self.run_id, "columns")

    @property
    def staged(self) -> StagedState:
        return self.subject.load_staged(self.run_id)

    def read_columns(self, tables: pa.Table) -> Extraction | None:
        """Columns of the fresh tables, lazily; None if there is nothing to read and Spark need not start."""
        wanted = fresh(tables)
        if not wanted.num_rows:
            return None
        requests = [
            ColumnRequest(table_ref(row["qualified_name"], row["object_id"]), row["label"])
            for row in wanted.select(["qualified_name", "object_id", "label"]).to_pylist()
        ]
        reader = ColumnReader(self.subject.pack, self.subject.writer, self.run_id)
        return extract_columns(self.subject.lake.spark, reader, requests, self.subject.connection.column_batch_size)

    def merge(self, units: pa.Table, columns: Parts) -> StateMerge:
        """The state to stage, once more sure that this run may."""
        self._confirm()
        return StateMerge(self.plan, units, columns)

    def diff(self, staged: StagedState) -> IncrementalDiff:
        return incremental_diff(self.subject.lake, self.plan, self.units, self.columns, staged)

    def verify(self, staged: StagedState, *, whole: bool = False) -> list[CheckResult]:
        """The checks of the staged state."""
        verification = Verification(self._evidence(staged, whole=whole))
        try:
            results = verification.results()
        finally:
            verification.close()
        return self._judged(results)

    def verify_diff(self, staged: StagedState) -> CheckResult:
        root = self.subject.layout.diff(self.run_id)
        result = diff_agrees_with_state(self._evidence(staged), self.subject.store, root)
        self._judged([result])
        return result

    def _evidence(self, staged: StagedState, *, whole: bool = False) -> Evidence:
        if staged.current is None:
            raise PartialRun(f"{self.plan.connection}: run {self.run_id} has staged nothing, and nothing is published.")
        return Evidence(
            reader=self.subject.lake.reader,
            table=staged.table,
            run_id=self.run_id,
            base=staged.base,
            staged=staged.current,
            units=self.units,
            extracted=self.columns.reader(["kind", "unit_key", "unit", "qualified_name", "entity"]),
            max_removed_percent=self.subject.connection.max_removed_percent,
            removals_allowed=self.plan.removals_allowed,
            whole=whole,
        )

    def publish(self, staged: StagedState) -> dict[str, Any]:
        """Verifies once more, publishes, mirrors, and moves the marker: what makes the run count."""
        with self.step("verify"):
            if failed([*self.verify(staged), self.verify_diff(staged)]) and self._error:
                raise self._error
        self._confirm()
        snapshot = staged.current
        assert snapshot is not None, "verified above"
        with self.step("publish"):
            if staged.snapshot is not None:
                self.subject.lake.publish(staged.table, self.run_id)
        # From here on the run is published: if it dies, the next one finishes it.
        self._published = True
        with self.step("mirror"):
            changed = changed_keys(self.units, staged)
            manifest = self.subject.mirror.bring_to(staged.table, snapshot, self.run_id, changed)
        self._confirm()
        self._move_marker(snapshot)
        detail = self._detail(staged, manifest.counts)
        status = "unchanged" if staged.snapshot is None else "published"
        self.subject.control.runs.finish(self.run_id, status, snapshot=snapshot, detail=detail)
        fault_point("run.after_finish")
        Recovery(self.subject).tidy(self.run_id)
        return detail

    def _judged(self, results: list[CheckResult]) -> list[CheckResult]:
        name = self.plan.connection
        self._note(results, name, f"`tidemark diff {name} --staged {self.run_id}` shows the stage.")
        return results

    def _move_marker(self, snapshot: int) -> None:
        plan = self.plan
        read = Marker(None, plan.marker_etag)
        reason = f"{plan.mode} run: {plan.reason}"
        move_marker(self.subject, read, plan.next_marker, snapshot, self.run_id, reason)

    def _detail(self, staged: StagedState, counts: dict[str, int]) -> dict[str, Any]:
        plan = self.plan
        read = self.columns.rows - len(staged.vanished)
        return {
            "labels": plan.counts,
            "entities": counts,
            "columns read": read,
            "columns carried": counts["column"] - read,
            "vanished": len(staged.vanished),
            "scope": plan.scope,
            "identity": plan.identity,
            "unlisted": plan.unlisted,
            "seconds": self.seconds,
        }


def table_ref(qualified_name: str, object_id: str) -> TableRef:
    database, schema, name = parts_of(qualified_name)
    return TableRef(database, schema, name, object_id)


def plan_run(
    subject: CatalogSubject, run_id: str, *, force_full: bool = False, allow_removals: bool = False
) -> tuple[RunPlan, pa.Table]:
    """What a run would do now: reads the source's listing and no columns, writes nothing."""
    connection, now = subject.connection, subject.clock.now()
    published = subject.published()
    marker = subject.marker.read()
    hours = connection.prepone_marker_hours if connection.prepone_marker_timestamp else 0
    since = marker.preponed(hours)
    listing = subject.pack.listing(subject.scope, since)
    mode, reason = decide(
        Situation(
            forced=force_full,
            enabled=connection.incremental_extraction,
            has_state=published.snapshot is not None,
            marker=marker,
            recorded=published.recorded_marker,
            now=now,
            identity_before=published.identity,
            identity_now=listing.identity,
        )
    )
    clock_only = subject.pack.signal == "clock" and mode is Mode.INCREMENTAL
    before = published.before(since if clock_only else None)
    previous = published_units(subject.lake.reader, subject.layout.table, published.snapshot)
    units = labelled_units(listing, subject.writer, subject.scope, previous, before, mode, run_id)
    plan = RunPlan(
        connection=connection.name,
        run_id=run_id,
        mode=mode,
        reason=reason,
        base_snapshot=published.snapshot,
        marker_etag=marker.etag,
        next_marker=listing.clock,
        since=since if mode is Mode.INCREMENTAL else None,
        identity=listing.identity,
        scope={"include": list(subject.scope.include), "exclude": list(subject.scope.exclude)},
        unlisted=unlisted_since(listing, subject.writer, published.unlisted, run_id),
        counts=unit_counts(units),
        removals_allowed=allow_removals,
        tables_before=pc.sum(pc.equal(previous["kind"], Kind.TABLE)).as_py() or 0,
    )
    return plan, units


def guard(subject: CatalogSubject, plan: RunPlan) -> None:
    removed = plan.counts[Label.REMOVED]
    seen = sum(count for label, count in plan.counts.items() if label in FRESH or label == Label.NO_CHANGE)
    limit = subject.connection.max_removed_percent
    guard_removals(plan.tables_before, removed, seen, limit, plan.removals_allowed, plan.connection)


def changed_keys(units: pa.Table, staged: StagedState) -> Any:
    """Keys of the units whose rows are other than before; empty if nothing was staged."""
    if staged.snapshot is None:
        return pa.array([], pa.int64()).to_numpy()
    return units.filter(pc.invert(pc.is_in(units["label"], pa.array(sorted(CARRIED)))))["unit_key"].to_numpy()
