"""A model as the shared run knows it: what is published, and how a killed run is finished or undone."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tidemark.control import ControlDatabase, RunRecord
from tidemark.errors import ModelStateUnreadable
from tidemark.lake import branch_of
from tidemark.lake_names import shadow_name
from tidemark.models.place import ModelPlace, quoted
from tidemark.models.spec import ModelMetadata
from tidemark.models.state import ModelStateManager, parsed
from tidemark.platform import Platform
from tidemark.publication import discard, discard_left, drop_shadow, visible
from tidemark.runs import Confirm, Mode, Visible, moved_by
from tidemark.runs.upkeep import TableUpkeep

# What a refresh in chunks was begun for: it goes on only if that is still so.
REFRESH = "tidemark.refresh"


@dataclass(frozen=True)
class ModelSubject:
    """One model and the places where its rows and its state are kept."""

    platform: Platform
    name: str
    # What its header says; None where only its places are needed.
    metadata: ModelMetadata | None = None

    @property
    def place(self) -> ModelPlace:
        return ModelPlace(self.name)

    @property
    def address(self) -> str:
        return self.place.address

    @property
    def control(self) -> ControlDatabase:
        return self.platform.control

    @property
    def states(self) -> ModelStateManager:
        return ModelStateManager(self.platform.control)

    def visible(self) -> Visible | None:
        return visible(self.platform.reader, self.place.table)

    def roll_forward(self, run: RunRecord, seen: Visible, confirm: Confirm) -> Mapping[str, Any]:  # noqa: ARG002
        """Readers have seen the rows: the state follows, unless somebody has moved it since."""
        expected, state = int(seen.record.get("expected", -1)), None
        if expected == self.states.version(self.name):
            with suppress(ModelStateUnreadable):  # the next run says so, and `--full` helps
                state = parsed(str(seen.record["state"]), self.name)
        if state is not None:
            # Somebody may have changed the table since: the next run looks at everything.
            state = replace(state, snapshot=seen.snapshot, made_from=None)
            why, back = "finished after an interruption", run.mode == Mode.ROLLBACK
            self.states.move(self.name, state, expected=expected, run_id=run.run_id, reason=why, back=back)
        return {}

    def conclude(self, run: RunRecord, seen: Visible | None, confirm: Confirm) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Nothing follows the state."""
        return {} if moved_by(self.control.marks.get(self.address), run, seen) else None

    def fence(self, run: RunRecord) -> None:
        table = self.platform.reader.table(self.place.table)
        if table is not None:
            discard(table, branch_of(run.run_id))

    def undo(self, run: RunRecord) -> None:
        self._drop_stale_shadows(run)

    def repair(self, confirm: Confirm) -> None:
        """A branch that is there was staged by a process that woke up after its lease was gone."""
        discard_left(self.platform.reader, self.place.table, self._running)
        self._drop_stale_shadows()
        self._follow_table(confirm)

    def _follow_table(self, confirm: Confirm) -> None:
        """A control database that was restored from a backup may be older than the table: rows that are there already would
        be appended again. The commit that published them carries the state that belongs to them."""
        seen, version = self.visible(), self.states.version(self.name)
        if seen is None or not 0 < version <= int(seen.record.get("expected", -1)):
            return
        with suppress(ModelStateUnreadable):
            state = replace(parsed(str(seen.record["state"]), self.name), snapshot=seen.snapshot, made_from=None)
            confirm()
            why = "the state was older than the table, as after a restored backup"
            self.states.move(self.name, state, expected=version, run_id=None, reason=why)

    def _running(self, ended: RunRecord | None = None) -> set[str]:
        """Runs that are under way. To who holds the lease there is none but itself; to who has lost it, the holder."""
        return {run.run_id for run in self.control.runs.running(self.address)} - {ended.run_id if ended else None}

    def _drop_stale_shadows(self, ended: RunRecord | None = None) -> None:
        """A shadow table is kept only for a refresh that can go on, one that began at what is published now: that of the
        run that got furthest, should several have been stopped."""
        reader, table = self.platform.reader, self.place.table
        listed = reader.shadows(table)
        # Asked after they were listed, as for branches.
        kept_for = {shadow_name(table, run_id) for run_id in self._running(ended)} if listed else set()
        found = [name for name in listed if name not in kept_for]
        published = reader.published(table) if found else None
        kept: dict[str, int] = {}
        for name in found:
            shadow = reader.table(name)
            began_at = json.loads(shadow.properties.get(REFRESH, "{}")).get("base") if shadow else None
            if shadow and published and began_at == published.snapshot_id:
                kept[name] = len(shadow.snapshots())
        furthest = max(kept, key=lambda name: kept[name], default=None)
        for name in found:
            if name != furthest:
                drop_shadow(reader, self.place.table, name)

    def tidy(self, run_id: str) -> None:
        """Nothing: a run publishes its branch or its shadow table away."""

    # --- upkeep ------------------------------------------------------------------------------------------------------

    def busy(self) -> str | None:
        waits = bool(self.platform.reader.shadows(self.place.table))
        return "a stopped rebuild waits to go on from its files" if waits else None

    def upkeep(self, keep_runs: int) -> Sequence[TableUpkeep]:
        """Rows by key, as merges look for them. What dropped columns are restored from stays."""
        table = self.platform.reader.table(self.place.table)
        if table is None or table.current_snapshot() is None:
            return []
        state = self.states.get(self.name)
        kept = {run.snapshot for run in self.control.runs.with_snapshot(self.address, keep_runs)}
        dropped = {each.snapshot for each in state.dropped} if state else set()
        # Without a key, a dropped column can be restored from the files that have its values, and from those only.
        bound = bool(dropped) and not self._keys
        order = None if bound else self._order([field.name for field in table.schema().fields])
        return [TableUpkeep(self.place.table, order, frozenset({each for each in kept | dropped if each is not None}))]

    @property
    def _keys(self) -> tuple[str, ...]:
        incremental = self.metadata.incremental if self.metadata else None
        return incremental.options.key_columns if incremental else ()

    def _order(self, columns: Sequence[str]) -> str:
        """By key; otherwise by the filter column, or by the first there is."""
        incremental = self.metadata.incremental if self.metadata else None
        chosen = incremental.options.filter_column if incremental else None
        wanted = [each.lower() for each in (self._keys or ((chosen,) if chosen else ()))] or [columns[0].lower()]
        return ", ".join(quoted(each) for each in columns if each.lower() in wanted)

    def record_now(self) -> Mapping[str, Any]:
        return {}

    def compacted(self, before: int, after: int, confirm: Confirm) -> None:
        """The state keeps the snapshot it was made with: the next run sees that the table is another, and looks."""

    def forget(self, keep_runs: int) -> int:  # noqa: ARG002
        return 0

    def close(self) -> None:
        """Nothing is held open."""
