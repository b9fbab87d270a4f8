"""One run of one model: a lease from beginning to end, a branch or a table beside, one commit that publishes, state last."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from spark_code.lake import without_checksum
from spark_code.models.adapter import REFRESH, STATE, ModelAdapter
from spark_code.models.target import Written
from spark_code.run import RunFrame
from tidemark.checks import CheckResult
from tidemark.control import RunRecord
from tidemark.errors import UnknownRun
from tidemark.faults import fault_point
from tidemark.lake import MAIN, RUN_ID, branch_of, plain_path, snapshot_files
from tidemark.models.place import SYSTEM, ModelPlace, spark_name
from tidemark.models.publish import Contents, Publication, contents_of, publish, staged_snapshots
from tidemark.models.state import ModelState, ModelStateManager, parsed


class ModelRun(RunFrame):
    """Only one run of a model at a time; what a killed one left behind is put right before anything else."""

    def __init__(self, adapter: ModelAdapter, name: str, run_id: str) -> None:
        super().__init__(run_id)
        self.adapter = adapter
        self.place = ModelPlace(name)
        self.states = ModelStateManager(adapter.platform.control)
        self.base: int | None = None
        self.notes: list[str] = []
        self._expected = 0
        # The table that the run stages in: the model's own, on a branch, or the one beside it.
        self._staged: str | None = None
        self._wrote = False

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def branch(self) -> str:
        return branch_of(self.run_id)

    # --- the frame ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._hold(self.adapter.platform.control.leases, self.place.lease, self._prepare)

    def _prepare(self) -> None:
        self.recover()
        self.adapter.platform.control.runs.begin(SYSTEM, self.place.subject, self.run_id)
        fault_point("models.after_begin")
        self._expected = self.states.version(self.name)
        table = self.adapter.table(self.name)
        published = table.current_snapshot() if table else None
        self.base = published.snapshot_id if published else None

    def recover(self) -> None:
        """Finishes a run that has published and undoes one that has not. Only for the holder of the lease."""
        runs = self.adapter.platform.control.runs
        published = self._finish_published()
        left = [run for run in runs.history(SYSTEM, self.place.subject, limit=20) if run.status == "running"]
        for run in left:
            if run.run_id == published:
                runs.finish(run.run_id, "published", detail={"finished after an interruption": True})
            else:
                self._undo(run)
        runs.abandon_running(SYSTEM, self.place.subject, self.run_id)
        if self._drop_stale_beside() or left:
            self.sweep()

    def _drop_stale_beside(self) -> bool:
        """A table beside is kept only for a refresh that can go on: one that began at what is published now."""
        beside = self.adapter.reader.table(self.place.beside)
        if beside is None:
            return False
        published = self.adapter.reader.published(self.place.table)
        began_at = json.loads(beside.properties.get(REFRESH, "{}")).get("base")
        if published is not None and began_at == published.snapshot_id:
            return False
        self.adapter.drop(self.place.beside)
        return True

    def _finish_published(self) -> str | None:
        """Readers have seen what the last publishing run wrote: its state follows. Returns that run."""
        recorded, table = self.adapter.recorded(self.name), self.adapter.table(self.name)
        if recorded is None or table is None:
            return None
        run_id, expected = str(recorded["run_id"]), int(str(recorded["expected"]))
        state = parsed(str(recorded["state"]), self.name) if expected == self.states.version(self.name) else None
        if state is not None:
            published = table.current_snapshot()
            # Somebody may have changed the table since: the next run looks at everything.
            state = replace(state, snapshot=published.snapshot_id if published else None, made_from=None)
            reason = "finished after an interruption"
            self.states.move(self.name, state, expected=expected, run_id=run_id, reason=reason)
        return run_id

    def _record(self, run_id: str, status: str) -> RunRecord | None:
        try:
            found = self.adapter.platform.control.runs.find(SYSTEM, self.place.subject, run_id)
        except UnknownRun:
            return None
        return found if found.status == status else None

    def _undo(self, run: RunRecord) -> None:
        fault_point("models.before_undo")
        self._discard(branch_of(run.run_id))
        self._drop_stale_beside()
        fault_point("models.after_undo")

    def end(self) -> None:
        """Gives the lease back; a run that did not publish leaves the table as it was."""
        runs = self.adapter.platform.control.runs
        try:
            run = self._record(self.run_id, "running")
            if run is not None:
                if self._reached_readers():
                    self._discard(self.branch)
                else:
                    self._undo(run)
                runs.finish(self.run_id, "failed", error=self._error, detail={"seconds": self.seconds})
        finally:
            self._held.close()

    def _reached_readers(self) -> bool:
        """Whether this run has published: the table says so, even if the run was stopped before it could know."""
        recorded = self.adapter.recorded(self.name)
        return recorded is not None and recorded["run_id"] == self.run_id

    # --- the steps ---------------------------------------------------------------------------------------------------

    def decided(self, action: str, reason: str) -> None:
        self.adapter.platform.control.runs.update(self.run_id, mode=action, reason=reason, base_snapshot=self.base)

    def stage(self, schema: Schema | None = None) -> str:
        """Where nobody reads, with all that is published: a branch, or beside the table if columns are to change.

        Branches of a table share its schema, so a new one would be every reader's at once. Returns the name to write to,
        the same one when asked again.
        """
        if self._staged is None:
            self._confirm()
            self._wrote = True
            self._staged = self.place.table if schema is None else self.place.beside
            if schema is None:
                self.adapter.lake.stage(self.place.table, self.run_id)
            else:
                self.adapter.copy_beside(self.name, schema)
        return spark_name(self._staged, None if self._staged == self.place.beside else self.branch)

    def counted(self, did: Written) -> Written:
        """What was written, with the number of rows that are gone for it."""
        reader = self.adapter.reader
        aside = self._staged == self.place.beside
        table = reader.table(self.place.beside if aside else self.place.table)
        head = table.snapshot_by_name(MAIN if aside else self.branch) if table and self._staged else None
        if table is None or head is None or self.base is None:
            return did
        gone = reader.gone(*(snapshot_files(table, each) for each in (self.base, head.snapshot_id)))
        return replace(did, deleted=gone - did.updated)

    def publish_staged(self, state: ModelState, schema: Schema | None = None) -> int | None:
        """What was staged, together with the schema, becomes what readers see; then the state."""
        if self._staged == self.place.beside:
            assert schema is not None, "staged there for another schema"
            return self.publish_beside(state, schema)
        table = self.adapter.existing(self.name)
        staged = staged_snapshots(table, self.branch, self.base) if self._staged else []
        contents: object = None
        if staged:
            whole = len(staged) == 1 and schema is None
            contents = staged[0] if whole else contents_of(table, staged[0])
        return self._publish(table, contents, state, schema, self.branch if self._staged else None)

    def publish_beside(self, state: ModelState, schema: Schema) -> int | None:
        """What the table beside has takes the place of all that is published; then the state."""
        beside = self.adapter.reader.table(self.place.beside)
        assert beside is not None, "the run made it"
        head = beside.current_snapshot()
        contents = contents_of(beside, head) if head else Contents([])
        snapshot = self._publish(self.adapter.existing(self.name), contents, state, schema, None)
        self.adapter.drop(self.place.beside)
        return snapshot

    def publish_nothing(self, state: ModelState, schema: Schema) -> int | None:
        """An empty table of this schema takes the place of all that is published."""
        return self._publish(self.adapter.existing(self.name), Contents([]), state, schema, None)

    def _publish(
        self, table: Table, contents: object, state: ModelState, schema: Schema | None, branch: str | None
    ) -> int | None:
        self._confirm()
        recorded = {"run_id": self.run_id, "expected": self._expected, "state": state.to_json()}
        publication = Publication(
            base=self.base,
            contents=contents,  # type: ignore[arg-type]
            schema=schema,
            summary={RUN_ID: self.run_id},
            properties={STATE: json.dumps(recorded)},
            branch=branch,
        )
        self._wrote = True
        with self.step("publish"):
            snapshot = publish(table, publication)
        fault_point("models.before_state")
        state = replace(state, snapshot=snapshot)
        with self.step("state"):
            self.states.move(self.name, state, expected=self._expected, run_id=self.run_id, reason="run")
        fault_point("models.after_state")
        return snapshot

    def move_state(self, state: ModelState) -> None:
        """Moves the state where nothing was published: what is published stays what it was."""
        self._confirm()
        self.states.move(
            self.name, replace(state, snapshot=self.base), expected=self._expected, run_id=self.run_id, reason="run"
        )

    def finish(self, status: str, snapshot: int | None, detail: Mapping[str, Any]) -> None:
        """The last word: killed before it, the run is found again as one that published, and is tidied up after."""
        try:
            if self._wrote:
                self.sweep()
        finally:
            runs = self.adapter.platform.control.runs
            runs.finish(self.run_id, status, snapshot=snapshot, detail={**detail, "seconds": self.seconds})
        fault_point("models.after_finish")

    def note_checks(self, results: Sequence[CheckResult]) -> None:
        self._note(results, self.name)
        if self._error:
            raise self._error

    # --- tidying -----------------------------------------------------------------------------------------------------

    def discard_staged(self) -> None:
        if self._staged == self.place.beside:
            self.adapter.drop(self.place.beside)
        elif self._staged:
            self._discard(self.branch)
        self._staged = None

    def _discard(self, branch: str) -> None:
        if branch in self.adapter.reader.branches(self.place.table):
            self.adapter.lake.discard(self.place.table, branch)

    def sweep(self) -> int:
        """Removes files of the model that nothing refers to; those of a rebuild that can be resumed stay."""
        reader, store = self.adapter.reader, self.adapter.platform.store
        table = reader.table(self.place.table)
        location = plain_path(table.location()) if table else ""
        if not location.startswith(f"{store.root}/"):
            return 0
        known = reader.referenced(self.place.table) | reader.referenced(self.place.beside)
        known = {path.removeprefix(f"{store.root}/") for path in known}
        own = location.removeprefix(f"{store.root}/")
        folders = (f"{own}/", f"{own}__beside/")
        strays = [info.key for folder in folders for info in store.list(folder) if without_checksum(info.key) not in known]
        store.delete(*strays)
        return len(strays)
