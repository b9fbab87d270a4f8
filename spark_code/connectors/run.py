"""One run of one stream: window → slices → land → verify → publish, and the state last."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_code.connectors.bronze import record_schema
from spark_code.connectors.deletions import gone_keys
from spark_code.connectors.moving import acknowledge, move_state
from spark_code.connectors.plan import EMITTED_AT, IngestPlan, load_plan, meaning, resumable_plan, save_plan
from spark_code.connectors.planning import planned
from spark_code.connectors.quarantine import not_yet_held
from spark_code.connectors.slices import QUARANTINE, SliceDone, SliceLander, first_of, land_slices
from spark_code.connectors.subject import StreamSubject
from spark_code.connectors.watching import watched
from spark_code.run import RunFrame
from tidemark.connectors import lateness
from tidemark.connectors.bronze import Envelope
from tidemark.connectors.contract import CheckpointConnector, OutputState
from tidemark.connectors.fitting import declared_schema
from tidemark.connectors.place import SYSTEM
from tidemark.connectors.verification import CheckResult, count_agrees, failed, verify_landing
from tidemark.errors import CursorInvalid, PartialRun, SourceError
from tidemark.faults import fault_point
from tidemark.lake import RUN_ID


@dataclass(frozen=True)
class StagedLanding:
    """What waits on the run's branch. `snapshot` is None when nothing new was read: there is nothing to publish."""

    base: int | None
    snapshot: int | None
    slices: tuple[SliceDone, ...]
    # Whether the quarantine has something to publish too.
    quarantines: bool = False
    # Records in the window, as the source counts them after they were read.
    at_source: int | None = None

    @property
    def read(self) -> int:
        return sum(each.read for each in self.slices)

    @property
    def landed(self) -> int:
        return sum(each.landed for each in self.slices)


class IngestRun(RunFrame):
    """One run of one stream."""

    def __init__(self, subject: StreamSubject, run_id: str) -> None:
        super().__init__(run_id)
        self.subject = subject
        self._plan: IngestPlan | None = None
        self._staged: StagedLanding | None = None
        self._deletions_allowed = False

    # --- the frame of a run ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Takes the lease, closes what killed runs left open, and enters the run into the ledger."""
        self._hold(self.subject.platform.control.leases, self.subject.place.lease, self._prepare)

    def _prepare(self) -> None:
        runs, place = self.subject.platform.control.runs, self.subject.place
        runs.abandon_running(SYSTEM, place.subject, self.run_id)
        self.recover()
        runs.begin(SYSTEM, place.subject, self.run_id, {"tenant": place.tenant, "stream": place.stream})
        fault_point("ingest.after_begin")

    def recover(self) -> None:
        """Puts right what a killed run left behind. Only for the holder of the stream's lease."""
        self._discard_branches()
        self._finish_published()

    def _finish_published(self) -> None:
        """Moves the state for a run that was stopped after it had published: readers have seen what it landed."""
        subject = self.subject
        published = subject.platform.lake.reader.published(subject.place.table)
        summary = published.summary.additional_properties if published and published.summary else {}
        run_id = summary.get(RUN_ID)
        plan = load_plan(subject, run_id) if run_id else None
        state = subject.registry.get(subject.manifest.connector, subject.stream.id)
        same_state = plan is not None and plan.state_version == (state.version if state else None)
        if plan is None or published is None or not same_state or plan.spec != meaning(subject):
            return
        files = [path for done in plan.finished(subject.platform.store).values() for path in done.files]
        move_state(subject, self.run_id, plan, published.snapshot_id, files, f"finished for run {run_id}")

    def end(self) -> None:
        """Gives the lease back. Finished slices of a run that failed are kept for the next one."""
        control = self.subject.platform.control
        try:
            record = control.runs.find(SYSTEM, self.subject.name, self.run_id)
            if record.status == "running":
                self._discard_branches()
                control.runs.finish(self.run_id, "failed", error=self._error, detail={"seconds": self.seconds})
        finally:
            self._held.callback(self.subject.close)
            self._held.close()

    # --- the steps ---------------------------------------------------------------------------------------------------

    def plan(self, *, full: bool = False, allow_deletions: bool = False) -> IngestPlan:
        """The window and its slices, fixed before anything is read; or those of a run that was stopped half-way."""
        self._deletions_allowed = allow_deletions
        subject = self.subject
        stream, state = subject.stream, subject.registry.get(subject.manifest.connector, subject.stream.id)
        if state is not None and not full and state.cursor_field != stream.cursor_field:
            raise CursorInvalid(
                f"{subject.name}: its state is of the cursor '{state.cursor_field}', and the manifest names another. Put "
                "that back, or `tidemark stream reset` and read everything."
            )
        # Again: the last run may have been stopped before it could.
        acknowledge(subject, state.last_cursor if state else None)
        resumed = None if full else resumable_plan(subject, state.version if state else None)
        if resumed:
            plan, reason = resumed.taken_over(self.run_id), "resumed"
        else:
            plan = planned(subject, self.run_id, state, full=full or state is None)
            backwards = "cursor backwards" if plan.full else "state found"
            reason = "asked for" if full else "no state" if state is None else backwards
        save_plan(subject, plan)
        subject.platform.control.runs.update(
            self.run_id,
            mode="full" if plan.full else "incremental",
            reason=reason,
            detail={"slices": len(plan.slices)},
        )
        fault_point("ingest.after_plan")
        self._plan = plan
        return plan

    def land(self, plan: IngestPlan) -> StagedLanding:
        """Reads what is missing of the slices and stages their files on the run's branch."""
        subject, stream = self.subject, self.subject.stream
        compares = stream.deletes == "compare" and (plan.full or stream.cursor is None)
        if not plan.slices and not compares:
            self._staged = self._stage([])
            return self._staged
        known = self._known(plan)
        while True:
            lander = self._lander(plan, known)
            finished = plan.finished(subject.platform.store)
            missing = [each for each in plan.slices if each.number not in finished]
            # Beside the reading: they only name the table.
            with ThreadPoolExecutor(1) as beside, watched(subject.platform.store, plan.done, len(missing)):
                views = beside.submit(subject.bronze.views, subject.place.latest, subject.place.changes, again=plan.full)
                landed = land_slices(subject.platform.spark, lander, missing)
                views.result()
            grown = [each.grew for each in landed if each.grew]
            if not grown:
                break
            plan = plan.widened(grown)
            save_plan(subject, plan)
        self._plan = plan
        done = sorted([*finished.values(), *landed], key=lambda each: each.number)
        self._same_schema(plan)
        if compares:
            done.append(self._compared(lander, len(plan.slices)))
        self._confirm()
        # The source counts while the files are staged.
        with ThreadPoolExecutor(1) as beside:
            at_source = beside.submit(self._at_source, plan)
            staged = self._stage(done)
            self._staged = replace(staged, at_source=at_source.result())
        return self._staged

    def _at_source(self, plan: IngestPlan) -> int | None:
        """How many records the source has in the window by now; None where it cannot count."""
        connector, stream = self.subject.connector, self.subject.stream
        if stream.cursor is None or isinstance(connector, CheckpointConnector):
            return None
        with suppress(SourceError):
            return connector.count(stream, plan.window(stream))
        return None

    def _lander(self, plan: IngestPlan, known: str | None) -> SliceLander:
        subject, stream = self.subject, self.subject.stream
        declared = declared_schema(subject.connector, stream, plan.described)
        loose = isinstance(subject.connector, CheckpointConnector)
        fields = record_schema(stream, declared, subject.bronze.table, loose=loose)
        emitted_at = datetime.fromtimestamp(plan.emitted_at / 1_000_000, UTC)
        envelope = Envelope(stream, fields, self.run_id, emitted_at)
        table = subject.bronze.prepared(envelope.bronze)
        held = subject.quarantine.prepared(QUARANTINE)
        committed = None
        if plan.committed is not None and not loose:
            committed = stream.parse_cursor(plan.committed).microseconds
        return SliceLander(
            connector=subject.connector,
            envelope=envelope,
            described=plan.described,
            declared=declared,
            page_size=plan.page_size,
            store=subject.platform.store,
            data=f"{table.location()}/data",
            quarantine_data=f"{held.location()}/data",
            io_properties=subject.platform.lake_settings.for_python(),
            done=plan.done,
            known=known,
            committed=committed,
            per_second=subject.manifest.rate_limit,
        )

    def _compared(self, lander: SliceLander, number: int) -> SliceDone:
        """What a complete listing of the source lacks, as one more slice of deletions."""
        published = self.subject.platform.lake.reader.published(self.subject.place.table)
        gone = gone_keys(self.subject, lander.envelope, published.snapshot_id if published else None)
        if not self._deletions_allowed:
            gone.guard(self.subject)
        files = lander.files()
        if gone.keys.num_rows:
            files.write(lander.envelope.gone(gone.keys, first=first_of(number)))
        return SliceDone(number, 0, files.rows, 0, 0, files.close(), ())

    def _stage(self, done: list[SliceDone]) -> StagedLanding:
        subject = self.subject
        published = subject.platform.lake.reader.published(subject.place.table)
        base = published.snapshot_id if published else None
        # A run that was stopped may have published some of them.
        rejected = not_yet_held(subject, [path for each in done for path in each.quarantine])
        if rejected:
            subject.quarantine.stage(self.run_id, rejected, {RUN_ID: self.run_id})
        files = [path for each in done for path in each.files]
        plan = self._plan
        emitted = {EMITTED_AT: str(plan.emitted_at)} if plan else {}
        snapshot = subject.bronze.stage(self.run_id, files, {RUN_ID: self.run_id, **emitted}) if files else None
        return StagedLanding(base, snapshot, tuple(done), bool(rejected))

    def verify(self) -> list[CheckResult]:
        """What a landing must satisfy before it is published."""
        plan, staged = self._landing()
        results = verify_landing(
            self.subject.platform.lake.reader,
            self.subject.place.table,
            staged.base,
            staged.snapshot,
            staged.landed,
            self.subject.stream,
            plan.window(self.subject.stream),
            lambda rows: plan.known_sql(self.subject, rows),
        )
        results.append(self._counted(plan, staged))
        self._note(results, self.subject.name)
        return results

    def _counted(self, plan: IngestPlan, staged: StagedLanding) -> CheckResult:
        without_cursor = {each.number for each in plan.slices if each.nulls}
        read = sum(each.read + each.quarantined for each in staged.slices if each.number not in without_cursor)
        return count_agrees(staged.at_source, read, self.subject.stream)

    def publish(self) -> OutputState | None:
        """Verifies once more, publishes, and moves the state: what makes the run count."""
        plan, staged = self._landing()
        subject, control = self.subject, self.subject.platform.control
        with self.step("verify"):
            if failed(self.verify()) and self._error:
                raise self._error
        self._confirm()
        with self.step("publish"):
            if staged.quarantines:
                subject.platform.lake.publish(subject.place.quarantine, self.run_id)
            if staged.snapshot is not None:
                subject.platform.lake.publish(subject.place.table, self.run_id)
        fault_point("ingest.before_state")
        with self.step("state"):
            files = [path for each in staged.slices for path in each.files]
            reason = "full run" if plan.full else "incremental run"
            value = move_state(subject, self.run_id, plan, staged.snapshot, files, reason)
        fault_point("ingest.after_state")
        detail = {**self.told(), "seconds": self.seconds}
        status = "unchanged" if staged.snapshot is None else "published"
        control.runs.finish(
            self.run_id, status, base_snapshot=staged.base, snapshot=staged.snapshot or staged.base, detail=detail
        )
        fault_point("ingest.after_finish")
        acknowledge(subject, value)
        self._tidy()
        if value is None or subject.stream.cursor_field is None:
            return None
        return OutputState(subject.stream.id, subject.stream.cursor_field, value, staged.landed)

    def told(self) -> dict[str, Any]:
        """The landing in numbers; no value of state among them."""
        _, staged = self._landing()
        return {
            "slices": len(staged.slices),
            "read": staged.read,
            "landed": staged.landed,
            "duplicates": sum(each.duplicates for each in staged.slices),
            "quarantined": sum(each.quarantined for each in staged.slices),
            "late": lateness.added(each.late for each in staged.slices),
        }

    def _landing(self) -> tuple[IngestPlan, StagedLanding]:
        if self._plan is None or self._staged is None:
            raise PartialRun(
                f"{self.subject.name}: run {self.run_id} has landed nothing: `landed` and `bronze` of a stream belong "
                "together. Materialise both."
            )
        return self._plan, self._staged

    # --- parts of steps ----------------------------------------------------------------------------------------------

    def _known(self, plan: IngestPlan) -> str | None:
        """Hashes of what landed before and could be read again, as an object that tasks read."""
        subject, key = self.subject, f"{self.subject.place.run(self.run_id)}/known.parquet"
        hashes = plan.known_hashes(subject)
        if hashes is None or not hashes.num_rows:
            return None
        sink = pa.BufferOutputStream()
        pq.write_table(hashes, sink, compression="zstd")
        subject.platform.store.put(key, sink.getvalue())
        return key

    def _same_schema(self, plan: IngestPlan) -> None:
        """Fields that came while the run was reading would be lost: their records may never be read again."""
        connector, stream = self.subject.connector, self.subject.stream
        if isinstance(connector, CheckpointConnector):
            plan.refuse_another_schema(connector.fields(stream, plan.slices))
        else:
            plan.refuse_another_schema(connector.discover(stream))

    def _discard_branches(self) -> None:
        lake, place = self.subject.platform.lake, self.subject.place
        for table in (place.table, place.quarantine):
            for branch in lake.reader.branches(table):
                lake.discard(table, branch)

    def _tidy(self) -> None:
        """After success nothing of a run but its row in the ledger and what it published is left."""
        platform, place = self.subject.platform, self.subject.place
        self._discard_branches()
        platform.store.delete_prefix(f"{place.root}/runs/")
        for table in (place.table, place.quarantine):
            platform.lake.sweep(table, platform.store)
