"""What a run of a stream needs Spark and the lake for: slices read by tasks, files staged, checked and published."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_code.connectors import moving
from spark_code.connectors.bronze import record_schema
from spark_code.connectors.deletions import gone_keys
from spark_code.connectors.known import Landed
from spark_code.connectors.plan import EMITTED_AT, IngestPlan, delete_left, resumable_plan, save_plan
from spark_code.connectors.planning import planned
from spark_code.connectors.quarantine import not_yet_held
from spark_code.connectors.slices import QUARANTINE, SliceLander, first_of, land_slices
from spark_code.connectors.subject import StreamSubject
from spark_code.connectors.watching import watched
from tidemark.connectors.bronze import Envelope
from tidemark.connectors.contract import CheckpointConnector
from tidemark.connectors.fitting import declared_schema
from tidemark.connectors.landing import SliceDone, StagedLanding
from tidemark.connectors.verification import CheckResult, verify_landing
from tidemark.control import Mark
from tidemark.errors import SourceError
from tidemark.lake import RUN_ID
from tidemark.publication import publish_branch
from tidemark.runs import Run


class SparkStreamEngine:
    """The engine of one run of one stream. The order of its methods is in `tidemark.connectors.run`."""

    def __init__(self, subject: StreamSubject, run: Run[Any], run_id: str) -> None:
        self.subject = subject
        # Hears how far the slices have come.
        self.run = run
        self.run_id = run_id
        self._before: Landed | None = None
        self._lander: SliceLander | None = None

    def resumed(self, state: Mark | None) -> IngestPlan | None:
        found = resumable_plan(self.subject, state.version if state else None)
        return found.taken_over(self.run_id) if found else None

    def planned(self, state: Mark | None, *, full: bool) -> IngestPlan:
        made = planned(self.subject, self.run_id, state, full=full)
        # Nobody goes on from what failed runs before this one left. Kept, it would fill the disk of a stream that fails.
        delete_left(self.subject, self.run_id, own=False)
        return made

    def keep(self, plan: IngestPlan) -> None:
        save_plan(self.subject, plan)

    def land(self, plan: IngestPlan) -> tuple[IngestPlan, list[SliceDone]]:
        subject, known = self.subject, self._known(plan)
        while True:
            lander = self.lander(plan, known)
            finished = plan.whole(subject)
            missing = [each for each in plan.slices if each.number not in finished]
            # While the slices are read: the views only name the table.
            with ThreadPoolExecutor(1) as meanwhile, watched(self.run, plan.done, len(missing)):
                views = meanwhile.submit(subject.bronze.views, subject.place.latest, subject.place.changes, again=plan.full)
                landed = land_slices(subject.platform.spark, lander, missing)
                views.result()
            grown = [each.grew for each in landed if each.grew]
            if not grown:
                break
            plan = plan.widened(grown)
            save_plan(subject, plan)
        self._same_schema(plan)
        self._lander = lander
        return plan, sorted([*finished.values(), *landed], key=lambda each: each.number)

    def gone(self, plan: IngestPlan, *, guarded: bool) -> SliceDone:
        number, lander = len(plan.slices), self._lander or self.lander(plan, None)
        published = self.subject.platform.lake.reader.published(self.subject.place.table)
        gone = gone_keys(self.subject, lander.envelope, published.snapshot_id if published else None)
        if guarded:
            gone.guard(self.subject)
        files = lander.files()
        if gone.keys.num_rows:
            files.write(lander.envelope.gone(gone.keys, first=first_of(number)))
        return SliceDone(number, 0, files.rows, 0, 0, files.close(), ())

    def stage(self, plan: IngestPlan, done: Sequence[SliceDone]) -> StagedLanding:
        # The source counts while the files are staged.
        with ThreadPoolExecutor(1) as meanwhile:
            at_source = meanwhile.submit(self._at_source, plan) if done else None
            staged = self._staged(plan, done)
            return replace(staged, at_source=at_source.result() if at_source else None)

    def verify(self, plan: IngestPlan, staged: StagedLanding) -> list[CheckResult]:
        subject = self.subject
        reader, stream, known = subject.platform.lake.reader, subject.stream, self._landed_before(plan).known_sql
        window, table = plan.window(stream), subject.place.table
        return verify_landing(reader, table, staged.base, staged.snapshot, staged.landed, stream, window, known)

    def publish(self, plan: IngestPlan, staged: StagedLanding) -> int | None:
        """The quarantine first: a record is held there once, however often it is read. Bronze makes the run visible."""
        reader, (bronze, quarantine) = self.subject.platform.reader, self.subject.tables
        if staged.quarantines:
            publish_branch(reader.existing(quarantine), self.run_id, staged.quarantine_base)
        if staged.snapshot is None:
            return None
        emitted = {EMITTED_AT: str(plan.emitted_at)}
        return publish_branch(reader.existing(bronze), self.run_id, staged.base, summary=emitted)

    def move_state(self, plan: IngestPlan, staged: StagedLanding, reason: str) -> str | None:
        return moving.move_state(self.subject, self.run_id, plan, staged.snapshot, staged.files, reason)

    def acknowledge(self, value: str | None) -> None:
        moving.acknowledge(self.subject, value)

    # --- parts of steps ----------------------------------------------------------------------------------------------

    def lander(self, plan: IngestPlan, known: str | None) -> SliceLander:
        """What tasks get: how to read a slice, and where to put its rows."""
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

    def _staged(self, plan: IngestPlan, done: Sequence[SliceDone]) -> StagedLanding:
        subject, reader = self.subject, self.subject.platform.reader
        bases = [found.snapshot_id if (found := reader.published(table)) else None for table in subject.tables]
        # A run that was stopped may have published some of them.
        rejected = not_yet_held(subject, [path for each in done for path in each.quarantine])
        if rejected:
            subject.quarantine.stage(self.run_id, rejected, {RUN_ID: self.run_id})
        files = [path for each in done for path in each.files]
        summary = {RUN_ID: self.run_id, EMITTED_AT: str(plan.emitted_at)}
        snapshot = subject.bronze.stage(self.run_id, files, summary, subject.bounded) if files else None
        return StagedLanding(bases[0], snapshot, tuple(done), bool(rejected), bases[1])

    def _at_source(self, plan: IngestPlan) -> int | None:
        """How many records the source has in the window by now; None where it cannot count."""
        connector, stream = self.subject.connector, self.subject.stream
        if stream.cursor is None or isinstance(connector, CheckpointConnector):
            return None
        with suppress(SourceError):
            return connector.count(stream, plan.window(stream))
        return None

    def _landed_before(self, plan: IngestPlan) -> Landed:
        """What had landed when the run began to read: nobody else publishes until it ends."""
        if self._before is None or self._before.plan != plan:
            published = self.subject.platform.reader.published(self.subject.place.table)
            self._before = Landed(self.subject, plan, published.snapshot_id if published else None)
        return self._before

    def _known(self, plan: IngestPlan) -> str | None:
        """Hashes of what landed before and could be read again, as an object that tasks read."""
        subject, key = self.subject, f"{self.subject.place.run(self.run_id)}/known.parquet"
        hashes = self._landed_before(plan).hashes()
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
