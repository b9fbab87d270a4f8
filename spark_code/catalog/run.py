"""One run of one connection, step by step: list → read → stage → diff → verify → publish → mirror, and the marker last."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_code.catalog.columns import ColumnReader, extract_columns, vanished_tables
from spark_code.catalog.diff import IncrementalDiff, departed
from spark_code.catalog.state import StagedState, StateMerge, stage_state
from spark_code.catalog.subject import CatalogSubject
from spark_code.parts import Parts, PartsWriter, write_parts
from tidemark.catalog.checks import EXTRACTED, SCOPE, Evidence, Verification
from tidemark.catalog.diff_check import diff_agrees_with_state
from tidemark.catalog.labelled import Labelling
from tidemark.catalog.labels import earliest, guard_removals
from tidemark.catalog.marker import Marker, format_marker, preponed
from tidemark.catalog.mode import Situation, decide
from tidemark.catalog.plan import RunPlan, unlisted_since
from tidemark.catalog.published import published_among, published_signals
from tidemark.catalog.rows import FRESH, STATE_SCHEMA, Kind, Label
from tidemark.catalog.settled import Settled, settle
from tidemark.catalog.units import FIELDS, UnitLabels, changes_nothing
from tidemark.checks import CheckResult
from tidemark.errors import PartialRun
from tidemark.faults import fault_point
from tidemark.lake import MARKER
from tidemark.publication import publish_branch
from tidemark.runs import Mode, Run

UNIT_KINDS = (Kind.DATABASE, Kind.SCHEMA, Kind.TABLE)
NO_KEYS = np.empty(0, np.int64)


class CatalogRun(Run[CatalogSubject]):
    """One run of one connection.

    What a step needs of those before it is what they kept. A run that begins in the middle, as a re-execution from failure
    or a selection of some assets does, does the steps before it first: nothing of another run is ever taken for its own.
    """

    keeps_failed_stage = True
    # What was requested of the whole run, for a step that has to list first.
    requested: Mapping[str, bool] = MappingProxyType({})

    # --- list → read → stage → diff ----------------------------------------------------------------------------------

    def list_units(self, *, force_full: bool = False, allow_removals: bool = False) -> tuple[RunPlan, dict[Kind, Parts]]:
        """Lists the source once, decides the mode, and labels every database, schema and table.

        The rows go into the store as they are labelled: the driver keeps their keys and labels.
        """
        with self.step("list"):
            extracted = self.subject.layout.extracted(self.run_id)
            writers = {
                kind: PartsWriter(self.subject.store, STATE_SCHEMA, f"{extracted}/{kind}s", tally="label")
                for kind in UNIT_KINDS
            }

            def keep(rows: pa.Table) -> None:
                writers[Kind(rows["kind"][0].as_py())].add(rows)

            plan, self.labels = plan_run(
                self.subject, self.run_id, keep, force_full=force_full, allow_removals=allow_removals
            )
            guard(self.subject, plan)
            marker = format_marker(plan.next_marker)
            self.decide(plan.mode, plan.reason, base_snapshot=plan.base_snapshot, marker=marker)
            fault_point("run.before_plan")
            self.subject.save_plan(plan)
            fault_point("run.after_plan")
        return plan, {kind: writer.written() for kind, writer in writers.items()}

    def read_columns(self, tables: Parts) -> Parts:
        """Columns of the fresh tables, read by Spark tasks; Spark need not start if there are none."""
        subject, connection = self.subject, self.subject.connection
        with self.step("columns"):
            wanted = tables.holding(*FRESH)
            if not wanted.parts:
                return Parts(subject.store, STATE_SCHEMA, ())
            reader = ColumnReader(subject.pack, subject.writer, self.run_id)
            cores, limit = subject.platform.parallelism, connection.source_connections
            extraction = extract_columns(subject.lake.spark, reader, wanted, connection.column_batch_size, cores, limit)
            prefix = f"{subject.layout.extracted(self.run_id)}/columns"
            return write_parts(extraction, STATE_SCHEMA, subject.store, prefix, tally="kind")

    def stage(self, columns: Parts) -> StagedState:
        """The ancestral merge, on the run's branch."""
        with self.step("stage"):
            self.confirm()
            settled = self._settle(columns)
            # Where nothing changed Spark need not start.
            cores = 1 if changes_nothing(settled.units.counts()) else self.subject.platform.parallelism
            places = self.extract("databases") + self.extract("schemas")
            merge = StateMerge(self.plan, settled, places, columns, cores)
            return stage_state(self.subject.lake, self.subject.layout.table, merge)

    def diff(self, staged: StagedState) -> IncrementalDiff:
        """What the staged state changes, for programs that follow."""
        with self.step("diff"):
            subject, touched = self.subject, self.settled.units.touched
            prefix = f"{subject.layout.extracted(self.run_id)}/deleted"
            deleted = departed(subject.lake, touched, self.columns.rows, staged, subject.store, prefix)
            databases, schemas = self.extract("databases"), self.extract("schemas")
            return IncrementalDiff(self.plan, staged.counts, databases, schemas, self.columns, deleted)

    # --- what the steps kept -----------------------------------------------------------------------------------------

    @cached_property
    def plan(self) -> RunPlan:
        found = self.subject.find_plan(self.run_id)
        if found is None:
            found, extracted = self.list_units(**self.requested)
            for kind, rows in extracted.items():
                self.subject.save_extract(self.run_id, f"{kind}s", rows)
        return found

    def extract(self, asset: str) -> Parts:
        """What this run extracted for an asset."""
        assert self.plan, "listed first"
        found = self.subject.extract(self.run_id, asset)
        if found is None:
            if asset != "columns":
                raise PartialRun(
                    f"{self.subject.address}: run {self.run_id} was stopped while it listed the source. Run again."
                )
            found = self.read_columns(self.extract("tables"))
            self.subject.save_extract(self.run_id, asset, found)
        return found

    @property
    def units(self) -> Parts:
        """Every database, schema and table with its label, as the run extracted them."""
        return self.extract("databases") + self.extract("schemas") + self.extract("tables")

    @cached_property
    def labels(self) -> UnitLabels:
        """Their keys and labels."""
        return UnitLabels.of(self.units.reader(FIELDS))

    @cached_property
    def columns(self) -> Parts:
        return self.extract("columns")

    @property
    def staged(self) -> StagedState:
        found = self.subject.find_staged(self.run_id)
        if found is None:
            found = self.stage(self.columns)
            self.subject.save_staged(found)
        return found

    def _ensure_diff(self, staged: StagedState) -> None:
        if self.subject.store.head(f"{self.subject.layout.diff(self.run_id)}/metadata.json") is None:
            self.subject.diff_writer(self.run_id).write(self.diff(staged))

    @cached_property
    def settled(self) -> Settled:
        """Every unit as it was settled once columns were read."""
        return self._settle(self.columns)

    def _settle(self, columns: Parts) -> Settled:
        vanished = vanished_tables(columns)
        reader, table = self.subject.platform.reader, self.subject.layout.table
        known = published_among(reader, table, self.plan.base_snapshot, vanished)
        return settle(self.labels, vanished, known, source_replaced=self.plan.source_replaced)

    # --- verify → publish → mirror → marker --------------------------------------------------------------------------

    def verify(self, staged: StagedState, *, whole: bool = False, rewritten: bool = False) -> list[CheckResult]:
        """The checks of the staged state."""
        verification = Verification(self._evidence(staged, whole=whole, rewritten=rewritten))
        try:
            results = verification.results()
        finally:
            verification.close()
        return self._judged(results)

    def verify_diff(self, staged: StagedState) -> CheckResult:
        self._ensure_diff(staged)
        result = diff_agrees_with_state(self._evidence(staged), self.subject.store, self.subject.layout.diff(self.run_id))
        self._judged([result])
        return result

    def publish(self, staged: StagedState) -> dict[str, Any]:
        """Verifies once more, publishes, mirrors, and moves the marker: what makes the run count."""
        with self.step("verify"):
            self.require([*self.verify(staged), self.verify_diff(staged)], self._advice)
        self.confirm()
        with self.step("publish"):
            snapshot = self._published(staged)
        with self.step("mirror"):
            changed = self.settled.units.touched if staged.snapshot is not None else NO_KEYS
            mirror = self.subject.mirror
            manifest = mirror.bring_to(staged.table, snapshot, self.run_id, changed, confirm=self.confirm)
        self.confirm()
        with self.step("marker"):
            read = Marker(None, self.plan.marker_etag)
            reason = f"{self.plan.mode} run: {self.plan.reason}"
            expected = self.plan.mark_version
            self.subject.move_marker(read, self.plan.next_marker, snapshot, self.run_id, reason, expected=expected)
        detail = self._detail(staged, manifest.counts)
        self.finish("unchanged" if staged.snapshot is None else "published", snapshot=snapshot, detail=detail)
        return detail

    def _published(self, staged: StagedState) -> int:
        """The snapshot that readers see from now on; a run that changed nothing leaves the one they see."""
        if staged.snapshot is None:
            assert staged.base is not None, "verified before"
            return staged.base
        marker = format_marker(self.plan.next_marker)
        table = self.subject.platform.reader.existing(staged.table)
        snapshot = publish_branch(table, self.run_id, staged.base, record={"marker": marker}, summary={MARKER: marker})
        self.published = True
        assert snapshot is not None, "something was staged"
        return snapshot

    @property
    def _advice(self) -> str:
        return f"`tidemark catalog diff {self.subject.name} --staged {self.run_id}` shows the stage."

    def _judged(self, results: list[CheckResult]) -> list[CheckResult]:
        self.judge(results, self._advice)
        return results

    def _evidence(self, staged: StagedState, *, whole: bool = False, rewritten: bool = False) -> Evidence:
        if staged.current is None:
            raise PartialRun(f"{self.subject.address}: run {self.run_id} has staged nothing, and nothing is published.")
        return Evidence(
            reader=self.subject.platform.reader,
            table=staged.table,
            run_id=self.run_id,
            base=staged.base,
            staged=staged.current,
            labels=self.labels,
            units=lambda: self.units.reader(SCOPE),
            extracted=lambda: self.columns.reader(EXTRACTED),
            source_replaced=self.plan.source_replaced,
            max_removed_percent=self.subject.connection.max_removed_percent,
            removals_allowed=self.plan.removals_allowed,
            whole=whole,
            rewritten=rewritten,
        )

    def _detail(self, staged: StagedState, counts: dict[str, int]) -> dict[str, Any]:
        read = self.columns.count(Kind.COLUMN)
        return {
            "labels": staged.counts,
            "entities": counts,
            "rows": {"columns read": read, "columns carried": counts["column"] - read},
            "vanished": len(staged.vanished),
            **self.plan.on_record(staged.vanished),
            "writes": [f"lake.{staged.table}"],
        }


def plan_run(
    subject: CatalogSubject,
    run_id: str,
    keep: Callable[[pa.Table], None],
    *,
    force_full: bool = False,
    allow_removals: bool = False,
) -> tuple[RunPlan, UnitLabels]:
    """What a run would do now: reads the source's listing and no columns, writes nothing.

    `keep` gets the labelled units, some thousand of one kind at a time.
    """
    connection, now = subject.connection, subject.clock.now()
    mark_version = subject.control.marks.version(subject.address)  # first: what is read below is not older
    published = subject.published()
    marker = subject.marker.read()
    hours = connection.prepone_marker_hours if connection.prepone_marker_timestamp else 0
    seen_until = published.seen_until(marker.moment)
    since = preponed(seen_until, hours) if seen_until else None
    fingerprint = subject.fingerprint()  # before the listing: a change in between is seen again, never missed
    listing = subject.pack.listing(subject.scope, published.before(since, hours).earliest)
    situation = Situation(
        forced=force_full,
        enabled=connection.incremental_extraction,
        has_state=published.snapshot is not None,
        marker=marker,
        recorded=published.recorded_marker,
        now=now,
        identity_before=published.identity,
        identity_now=listing.identity,
    )
    mode, reason = decide(situation)
    replaced = situation.source_replaced
    clock_only = subject.pack.signal == "clock" and mode is Mode.INCREMENTAL
    before = published.before(since if clock_only else None, hours)
    previous = published_signals(subject.lake.reader, subject.layout.table, published.snapshot)
    labelling = Labelling(listing, subject.writer, subject.scope, before, mode, run_id, source_replaced=replaced)
    labels = UnitLabels.of(kept(labelling.units(previous), keep))
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
        unlisted=unlisted_since(listing, subject.writer, {} if replaced else published.unlisted, run_id),
        previous_marker=None if replaced else earliest(seen_until, [published.recorded_marker]),
        waiting={} if replaced else published.waiting,
        source_replaced=replaced,
        counts=labels.counts(),
        removals_allowed=allow_removals,
        tables_before=pc.sum(pc.equal(previous["kind"], Kind.TABLE)).as_py() or 0,
        fingerprint=fingerprint,
        mark_version=mark_version,
    )
    return plan, labels


def kept(batches: Iterable[pa.Table], keep: Callable[[pa.Table], None]) -> Iterator[pa.Table]:
    """The keys and labels of rows that somebody has kept: the rest of a batch is not held longer than that."""
    for batch in batches:
        keep(batch)
        yield batch.select(FIELDS)


def guard(subject: CatalogSubject, plan: RunPlan) -> None:
    removed = plan.counts[Label.REMOVED]
    seen = sum(count for label, count in plan.counts.items() if label in FRESH or label == Label.NO_CHANGE)
    limit = subject.connection.max_removed_percent
    guard_removals(plan.tables_before, removed, seen, limit, plan.removals_allowed, plan.connection)
