"""A connection together with the places where its state, mark and runs are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import orjson
from pydantic import ValidationError

from spark_code.catalog.diff import DiffWriter
from spark_code.catalog.state import StagedState
from spark_code.lake import Lake
from spark_code.parts import Parts, save_index, saved_parts
from spark_code.platform import Platform
from tidemark.catalog.entities import EntityWriter
from tidemark.catalog.manifest import damaged_files, read_manifest
from tidemark.catalog.marker import Marker, format_marker, parse_marker
from tidemark.catalog.mirror import Mirror
from tidemark.catalog.packs.base import SourcePack, pack_for
from tidemark.catalog.plan import RunPlan
from tidemark.catalog.rows import STATE_SCHEMA
from tidemark.catalog.scope import Scope
from tidemark.catalog.view import CatalogView
from tidemark.clock import Clock
from tidemark.control import RunRecord, actor
from tidemark.faults import fault_point
from tidemark.lake import branch_of
from tidemark.lake_sweep import MINIMUM_AGE
from tidemark.publication import discard, discard_left, visible
from tidemark.runs import Confirm, Mode, Visible, moved_by
from tidemark.runs.upkeep import TableUpkeep

# How far back a run looks for what failed ones left: upkeep removes the rest.
KEPT_TO_TIDY = 20
# Every run clears away what failed before the last one, so there is never much of it.
RECENT = 4
# Of `staged.json`, and of what checks expect of the objects next to it. Raise it when they expect something else.
STAGED_FORM = 1


@dataclass(frozen=True)
class CatalogSubject(CatalogView):
    """What a run or a rollback of one connection works with."""

    platform: Platform

    @property
    def lake(self) -> Lake:
        return self.platform.lake

    @property
    def clock(self) -> Clock:
        return self.platform.clock

    @cached_property
    def pack(self) -> SourcePack:
        return pack_for(self.connection.app, self.connection.resolved_url())

    @property
    def scope(self) -> Scope:
        return Scope(tuple(self.connection.include), tuple(self.connection.exclude))

    @property
    def writer(self) -> EntityWriter:
        return EntityWriter(self.connection.app, self.connection.id)

    @property
    def mirror(self) -> Mirror:
        settings = self.connection
        return Mirror(
            self.lake.reader, self.store, self.layout, self.clock, settings.column_chunk_size, settings.copy_workers
        )

    def fingerprint(self) -> str | None:
        """The source's own signal, for those who watch it; nobody else pays for it."""
        return self.pack.fingerprint(self.scope) if self.connection.watch else None

    # --- what the shared run asks for --------------------------------------------------------------------------------

    def visible(self) -> Visible | None:
        return visible(self.platform.reader, self.layout.table)

    def roll_forward(self, run: RunRecord, seen: Visible, confirm: Confirm) -> Mapping[str, Any]:
        """Readers of the lake have seen the state: the mirror follows, and the marker last."""
        version, published = self.control.marks.version(self.address), self.published()
        assert seen.snapshot is not None, "a run of a connection publishes rows"
        if run.mode == Mode.UPKEEP:
            # The same rows in other files: labels and marker stay as they are, whoever moved them.
            self.mirror.bring_to(self.layout.table, seen.snapshot, published.labels_of, None, confirm=confirm)
            return {}
        labels_of = str(run.detail.get("rolled back to", run.run_id))
        manifest = self.mirror.bring_to(self.layout.table, seen.snapshot, labels_of, None, confirm=confirm)
        marker = self.marker.read()
        recorded = published.recorded_marker
        if recorded is not None and (marker.moment is None or marker.moment < recorded):
            confirm()
            reason = "finished after an interruption"
            self.move_marker(marker, recorded, seen.snapshot, run.run_id, reason, expected=version)
        return {"entities": manifest.counts, **self._on_record(run)}

    def conclude(self, run: RunRecord, seen: Visible | None, confirm: Confirm) -> Mapping[str, Any] | None:
        """marker.txt follows the mark."""
        mark = self.control.marks.get(self.address)
        if mark is None or not moved_by(mark, run, seen):
            return None
        marker, moved = self.marker.read(), parse_marker(mark.value)
        if marker.moment != moved:
            confirm()
            self.marker.swap(marker, moved)
        manifest = read_manifest(self.store, self.layout)
        return {**({"entities": manifest.counts} if manifest else {}), **self._on_record(run)}

    def _on_record(self, run: RunRecord) -> dict[str, Any]:
        """What the next run must know of a run that died, as far as that kept it."""
        plan, staged = self.find_plan(run.run_id), self.find_staged(run.run_id)
        seen_then = plan.on_record(staged.vanished if staged else ()) if plan else {}
        return {**seen_then, **({"labels": staged.counts} if staged else {})}

    def fence(self, run: RunRecord) -> None:
        """Drops the branch with its files: without it the run cannot publish any more."""
        table = self.platform.reader.table(self.layout.table)
        if table is not None:
            discard(table, branch_of(run.run_id))

    def undo(self, run: RunRecord) -> None:
        """Removes the objects of an unpublished run."""
        self.store.delete_prefix(self.layout.run(run.run_id) + "/")

    def repair(self, confirm: Confirm) -> None:
        """Keeps one failed stage to look at, and rebuilds the mirror if it is not what the published state says."""
        self.store.sweep()
        recent = self.control.runs.history(self.address, limit=RECENT)
        self._discard_stages(keep=recent[:1])
        for run in recent[1:]:
            if run.status in ("failed", "abandoned"):
                self.store.delete_prefix(self.layout.run(run.run_id) + "/")
        published = self.published()
        if published.snapshot is None:
            return
        manifest = read_manifest(self.store, self.layout)
        shown = manifest is not None and manifest.snapshot_id == published.snapshot
        if not (shown and manifest and not damaged_files(self.store, self.layout, manifest)):
            self.mirror.bring_to(self.layout.table, published.snapshot, published.labels_of, None, confirm=confirm)

    def tidy(self, run_id: str) -> None:
        """After a publication: no stage, no extracted rows but the last, no objects of failed runs."""
        del run_id  # the history begins with it
        self._discard_stages()
        # Published diffs are an audit trail and stay. What the last run extracted is what `check` judges by, also if
        # upkeep, which extracts nothing, came after it.
        extracting = 0
        for record in self.control.runs.history(self.address, limit=KEPT_TO_TIDY):
            if record.status in ("failed", "abandoned"):
                self.store.delete_prefix(self.layout.run(record.run_id) + "/")
            elif record.mode not in (Mode.UPKEEP, Mode.REWIND):
                extracting += 1
                if extracting > 1:
                    self.store.delete_prefix(self.layout.extracted(record.run_id) + "/")
                    return

    def _discard_stages(self, keep: Sequence[RunRecord] = ()) -> None:
        def kept() -> list[str]:
            return [run.run_id for run in (*keep, *self.control.runs.running(self.address))]

        discard_left(self.platform.reader, self.layout.table, kept)

    def close(self) -> None:
        """Packs hold nothing open between two questions."""

    # --- upkeep ------------------------------------------------------------------------------------------------------

    def busy(self) -> str | None:
        return None

    def upkeep(self, keep_runs: int) -> Sequence[TableUpkeep]:
        """Rows sorted as they are written; snapshots that the last runs began from or left behind stay."""
        if self.published().snapshot is None:
            return []
        runs = self._kept_runs(keep_runs)
        kept = {snapshot for run in runs for snapshot in (run.base_snapshot, run.snapshot) if snapshot is not None}
        return [TableUpkeep(self.layout.table, "kind, unit_key, ordinal", frozenset(kept))]

    def _kept_runs(self, keep_runs: int) -> list[RunRecord]:
        return self.control.runs.with_snapshot(self.address, keep_runs)

    def record_now(self) -> Mapping[str, Any]:
        """The marker that is on record for the published rows, whatever marker.txt says."""
        recorded = self.published().recorded_marker
        return {"marker": format_marker(recorded)} if recorded else {}

    def compacted(self, before: int, after: int, confirm: Confirm) -> None:
        self.mirror.follow(before, after, confirm=confirm)

    def forget(self, keep_runs: int) -> int:
        # Listed first: a run that begins now, should this process be stopped and woken, is kept or not listed.
        written: dict[str, datetime] = {}
        for info in self.store.list(self.layout.runs):
            run_id = info.key.removeprefix(f"{self.layout.runs}/").split("/")[0]
            written[run_id] = max(info.modified, written.get(run_id, info.modified))
        history = self.control.runs.history(self.address)
        kept = {run.run_id for run in (*self._kept_runs(keep_runs), *history[:1])}
        # What this ledger does not know may be a run of another one that is under way.
        young = self.clock.now() - MINIMUM_AGE
        kept |= {run_id for run_id in written.keys() - {run.run_id for run in history} if written[run_id] > young}
        return sum(self.store.delete_prefix(f"{self.layout.runs}/{run_id}/") for run_id in written.keys() - kept)

    # --- the marker --------------------------------------------------------------------------------------------------

    def move_marker(
        self,
        read: Marker,
        to: datetime,
        snapshot: int,
        run_id: str | None,
        reason: str,
        *,
        expected: int,
        back: bool = False,
    ) -> None:
        """Records the move, with an audit row, and then swaps marker.txt for the one that was read.

        `expected` is the version of the mark when the work began: a process that was stopped and woken moves nothing.

        In this order a crash in between leaves an old marker.txt, which is safe; a marker.txt without a record is refused.
        `back` if somebody wanted an older one.
        """
        marks = self.control.marks
        said: dict[str, Any] = {"snapshot": snapshot, "run_id": run_id, "actor": actor(), "reason": reason}
        if back and expected:
            marks.rewind(self.address, to_value=format_marker(to), expected_version=expected, **said)
        else:
            marks.move(self.address, expected or None, format_marker(to), **said)
        fault_point("marks.before_marker")
        self.marker.swap(read, to)

    def diff_writer(self, run_id: str) -> DiffWriter:
        root = self.layout.diff(run_id)
        return DiffWriter(self.store, root, self.connection.column_chunk_size, self.connection.copy_workers)

    # --- what a run keeps between its steps --------------------------------------------------------------------------

    def save_plan(self, plan: RunPlan) -> None:
        self.store.put(f"{self.layout.run(plan.run_id)}/plan.json", plan.model_dump_json(indent=2).encode())

    def find_plan(self, run_id: str) -> RunPlan | None:
        """What the run planned; None if that is gone, or was kept by another version of Tidemark: nothing that is only good
        to know may stop a recovery."""
        found = self.store.find(f"{self.layout.run(run_id)}/plan.json")
        try:
            return None if found is None else RunPlan.model_validate_json(bytes(found.body))
        except ValidationError:
            return None

    def save_staged(self, staged: StagedState) -> None:
        saved = {"form": STAGED_FORM, **asdict(staged)}
        self.store.put(f"{self.layout.extracted(staged.run_id)}/staged.json", orjson.dumps(saved))

    def find_staged(self, run_id: str) -> StagedState | None:
        """What the run staged; None if that is gone, or was kept by another version of Tidemark."""
        saved = self._staged_document(run_id)
        if saved is None or saved.pop("form", None) != STAGED_FORM:
            return None
        return StagedState(**saved | {"vanished": tuple(saved["vanished"])})

    def is_of_another_version(self, run_id: str) -> bool:
        """Whether the run staged something that this version cannot compare."""
        saved = self._staged_document(run_id)
        return saved is not None and saved.get("form") != STAGED_FORM

    def _staged_document(self, run_id: str) -> dict[str, Any] | None:
        found = self.store.find(f"{self.layout.extracted(run_id)}/staged.json")
        return orjson.loads(found.body) if found else None

    def save_extract(self, run_id: str, asset: str, rows: Parts) -> None:
        """Notes which objects a step has extracted: from then on they count."""
        save_index(self.store, f"{self.layout.extracted(run_id)}/{asset}", rows.parts)

    def extract(self, run_id: str, asset: str) -> Parts | None:
        return saved_parts(self.store, STATE_SCHEMA, f"{self.layout.extracted(run_id)}/{asset}")
