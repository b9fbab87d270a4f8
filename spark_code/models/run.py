"""One run of one model: staged on a branch or in a shadow table, published by one commit, and the state last."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot

from spark_code.models.adapter import ModelAdapter
from spark_code.models.target import Written
from tidemark.checks import CheckResult
from tidemark.errors import ChecksFailed
from tidemark.faults import fault_point
from tidemark.lake import MAIN, snapshot_files
from tidemark.lake_names import shadow_name
from tidemark.models.place import ModelPlace, spark_name
from tidemark.models.state import ModelState
from tidemark.models.subject import ModelSubject
from tidemark.publication import (
    Contents,
    Publication,
    claim,
    contents_of,
    discard,
    drop_shadow,
    publish,
    shadow,
    staged_snapshots,
)
from tidemark.runs import Run


class ModelRun(Run[ModelSubject]):
    """The shared run, with the two places where a model's rows are staged."""

    def __init__(self, adapter: ModelAdapter, name: str, run_id: str, **options: Any) -> None:
        super().__init__(ModelSubject(adapter.platform, name), run_id, **options)
        self.adapter = adapter
        self.base: int | None = None
        # Shadow tables that stopped runs left. Those of a later run are never among them.
        self.left: tuple[str, ...] = ()
        self._expected = 0
        # The table that the run stages in: the model's own, on a branch, or its shadow.
        self._staged: str | None = None

    @property
    def name(self) -> str:
        return self.subject.name

    @property
    def shadow(self) -> str:
        """The table that a rebuild works on until its contents are published. No other run writes to it."""
        return shadow_name(self.place.table, self.run_id)

    @property
    def place(self) -> ModelPlace:
        return self.subject.place

    def prepare(self) -> None:
        self._expected = self.subject.states.version(self.name)
        published = self.adapter.reader.published(self.place.table)
        self.base = published.snapshot_id if published else None
        self.left = tuple(self.adapter.reader.shadows(self.place.table))

    # --- staging -----------------------------------------------------------------------------------------------------

    def stage(self, schema: Schema | None = None) -> str:
        """Where nobody reads, with all that is published: a branch, or a shadow table if columns are to change.

        Branches of a table share its schema, so a new one would be every reader's at once. Returns the name to write to,
        the same one when asked again.
        """
        if self._staged is None:
            self.confirm()
            self._staged = self.place.table if schema is None else self.shadow
            if schema is None:
                self.adapter.lake.stage(self.place.table, self.run_id)
            else:
                claim(self.adapter.existing(self.name), self.run_id)
                shadow(self.adapter.reader, self.place.table, self.run_id, schema)
        return spark_name(self._staged, None if self._staged == self.shadow else self.branch)

    def counted(self, did: Written) -> Written:
        """What was written, with the number of rows that are gone for it."""
        reader = self.adapter.reader
        shadowed = self._staged == self.shadow
        table = reader.table(self.shadow if shadowed else self.place.table)
        head = table.snapshot_by_name(MAIN if shadowed else self.branch) if table and self._staged else None
        if table is None or head is None or self.base is None:
            return did
        gone = reader.gone(*(snapshot_files(table, each) for each in (self.base, head.snapshot_id)))
        return replace(did, deleted=gone - did.updated)

    def discard_staged(self) -> None:
        if self._staged == self.shadow:
            drop_shadow(self.adapter.reader, self.place.table, self.shadow)
        if self._staged:
            discard(self.adapter.existing(self.name), self.branch)
        self._staged = None

    # --- checks and publication --------------------------------------------------------------------------------------

    def require(self, results: Iterable[CheckResult], advice: str = "") -> None:
        """Rows that failed a check are no beginning for the next run, not even those of a refresh that could go on."""
        try:
            super().require(results, advice)
        except ChecksFailed:
            if self.shadow in self.adapter.reader.shadows(self.place.table):
                self.confirm()
                drop_shadow(self.adapter.reader, self.place.table, self.shadow)
            raise

    def publish_staged(self, state: ModelState, schema: Schema | None = None) -> int | None:
        """What was staged, together with the schema, becomes what readers see; then the state."""
        if self._staged == self.shadow:
            assert schema is not None, "staged there for another schema"
            return self.publish_shadow(state, schema)
        table = self.adapter.existing(self.name)
        staged = staged_snapshots(table, self.branch, self.base) if self._staged else []
        contents: Snapshot | Contents | None = None
        if staged:
            whole = len(staged) == 1 and schema is None
            contents = staged[0] if whole else contents_of(table, staged[0])
        # Without rows nothing was staged, and nothing could be dropped to stop this run.
        branch = self.branch if self._staged else claim(table, self.run_id)
        return self._publish(contents, state, schema, branch)

    def publish_shadow(self, state: ModelState, schema: Schema) -> int | None:
        """What the shadow table has takes the place of all that is published; then the state."""
        staged = self.adapter.reader.existing(self.shadow)
        head = staged.current_snapshot()
        branch = claim(self.adapter.existing(self.name), self.run_id)
        snapshot = self._publish(contents_of(staged, head) if head else Contents([]), state, schema, branch)
        drop_shadow(self.adapter.reader, self.place.table, self.shadow)
        return snapshot

    def publish_nothing(self, state: ModelState, schema: Schema) -> int | None:
        """An empty table of this schema takes the place of all that is published."""
        return self._publish(Contents([]), state, schema, claim(self.adapter.existing(self.name), self.run_id))

    def _publish(
        self, contents: Snapshot | Contents | None, state: ModelState, schema: Schema | None, branch: str | None
    ) -> int | None:
        self.confirm()
        record = {"expected": self._expected, "state": state.to_json()}
        with self.step("publish"):
            table = self.adapter.existing(self.name)
            snapshot = publish(table, Publication(self.run_id, self.base, contents, schema, record, branch=branch))
        self.published = True
        fault_point("models.before_state")
        with self.step("state"):
            self._move(replace(state, snapshot=snapshot))
        fault_point("models.after_state")
        return snapshot

    def move_state(self, state: ModelState) -> None:
        """Moves the state where nothing was published: what is published stays what it was."""
        self.confirm()
        self._move(replace(state, snapshot=self.base))

    def _move(self, state: ModelState) -> None:
        self.subject.states.move(self.name, state, expected=self._expected, run_id=self.run_id, reason="run")
