"""A stream of a tenant together with the places where its state, its runs and its table are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from spark_code.connectors.bronze import BronzeTable
from spark_code.connectors.moving import move_state
from spark_code.connectors.plan import delete_left, load_plan, meaning, resumable_plan
from spark_code.platform import Platform
from tidemark.connectors.contract import CheckpointConnector, Connector
from tidemark.connectors.manifest import Manifest
from tidemark.connectors.manifests import opened_connector
from tidemark.connectors.place import StreamPlace
from tidemark.connectors.stream import StreamSpec
from tidemark.control import ControlDatabase, Mark, Marks, RunRecord
from tidemark.errors import ConfigError, SourceError
from tidemark.lake import branch_of
from tidemark.publication import discard, discard_left, visible
from tidemark.runs import Confirm, Visible, moved_by
from tidemark.runs.upkeep import TableUpkeep


@dataclass(frozen=True)
class StreamSubject:
    """What a run, a rewind or a reader of one stream works with."""

    platform: Platform
    tenant: str
    manifest: Manifest
    described: StreamSpec

    @cached_property
    def stream(self) -> StreamSpec:
        """The stream as it is read: a connector with checkpoints brings the cursor itself."""
        self._refuse_impossible_deletes()
        if not isinstance(self.connector, CheckpointConnector):
            return self.described
        if self.described.cursor is not None:
            kind = self.manifest.kind
            raise ConfigError(f"{self.described.id}: the kind '{kind}' keeps its own progress. Leave `cursor` out.")
        own = {"cursor": self.connector.checkpoint_field, "cursor_type": "text"}
        return self.described.model_copy(update=own)

    def _refuse_impossible_deletes(self) -> None:
        """What the manifest says of deletions must be something that the kind can do."""
        said, connector = self.described.deletes, self.connector
        has_log = isinstance(connector, CheckpointConnector) and connector.has_log
        lists_keys = type(connector).keys is not Connector.keys
        if (
            (said == "log" and not has_log)
            or (said in ("compare", "flag") and has_log)
            or (said == "compare" and not lists_keys)
        ):
            can = ["log"] if has_log else ["none", *(["compare"] if lists_keys else []), "flag"]
            raise ConfigError(
                f"{self.described.id}: the kind '{self.manifest.kind}' cannot find deletions by `{said}`. "
                f"It can: {', '.join(can)}."
            )

    @property
    def place(self) -> StreamPlace:
        return StreamPlace(self.tenant, self.manifest.connector, self.described.id)

    @property
    def name(self) -> str:
        """The name behind `stream/`: TENANT/CONNECTOR/STREAM."""
        return str(self.place)

    @property
    def address(self) -> str:
        return self.place.address

    @property
    def control(self) -> ControlDatabase:
        return self.platform.control

    @property
    def tables(self) -> tuple[str, str]:
        """Bronze and its quarantine."""
        return self.place.table, self.place.quarantine

    @cached_property
    def marks(self) -> Marks:
        return self.platform.control.sealed_marks(self.tenant)

    def state(self) -> Mark | None:
        """How far the stream was read; None if it never was, or was reset."""
        return self.marks.get(self.address)

    @cached_property
    def connector(self) -> Connector:
        return opened_connector(self.platform.config, self.manifest, self.tenant)

    # --- what the shared run asks for --------------------------------------------------------------------------------

    def visible(self) -> Visible | None:
        return visible(self.platform.reader, self.place.table)

    def roll_forward(self, run: RunRecord, seen: Visible, confirm: Confirm) -> Mapping[str, Any]:  # noqa: ARG002
        """Readers have seen what it landed: the state follows, unless somebody has moved it since."""
        plan, state = load_plan(self, run.run_id), self.state()
        if plan is not None and plan.state_version == (state.version if state else None) and plan.spec == meaning(self):
            files = [path for done in plan.finished(self.platform.store).values() for path in done.files]
            move_state(self, run.run_id, plan, seen.snapshot, files, "finished after an interruption")
        return {}

    def conclude(self, run: RunRecord, seen: Visible | None, confirm: Confirm) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Nothing follows the state."""
        return {} if moved_by(self.state(), run, seen) else None

    def fence(self, run: RunRecord) -> None:
        """Drops the branches. Slices that were read to their end, and their files, are kept for the next run."""
        for name in self.tables:
            table = self.platform.reader.table(name)
            if table is not None:
                discard(table, branch_of(run.run_id), keep_files=True)

    def undo(self, run: RunRecord) -> None:
        """Nothing more: what is kept is deleted once a run has published."""

    def repair(self, confirm: Confirm) -> None:  # noqa: ARG002
        """A branch that is there was staged by a process that woke up after its lease was gone."""
        for name in self.tables:
            discard_left(self.platform.reader, name, self._running, keep_files=True)

    def _running(self) -> list[str]:
        return [run.run_id for run in self.control.runs.running(self.address)]

    def tidy(self, run_id: str) -> None:
        """After success nothing of a run is left but its row in the ledger and what it published."""
        delete_left(self, run_id)

    # --- upkeep ------------------------------------------------------------------------------------------------------

    def busy(self) -> str | None:
        """The plan of a stopped run names files and snapshots; once they were rewritten, no run could go on from it."""
        if not any(self.platform.store.list(f"{self.place.root}/runs/")):
            return None
        state = self.state()
        try:
            waits = resumable_plan(self, state.version if state else None) is not None
        except SourceError:
            waits = True  # the source would have to say, and is away
        return "a stopped run waits to go on from its files" if waits else None

    def upkeep(self, keep_runs: int) -> Sequence[TableUpkeep]:
        """Rows by arrival; of Bronze the snapshots that the last runs left behind stay."""
        runs = self.control.runs.with_snapshot(self.address, keep_runs)
        kept = [run.snapshot for run in runs if run.snapshot is not None]
        wanted = {self.place.table: frozenset(kept), self.place.quarantine: frozenset[int]()}
        return [
            TableUpkeep(name, "emitted_at", snapshots)
            for name, snapshots in wanted.items()
            if self.platform.reader.published(name) is not None
        ]

    def record_now(self) -> Mapping[str, Any]:
        return {}

    def compacted(self, before: int, after: int, confirm: Confirm) -> None:
        """Nothing names a snapshot of Bronze but the ledger, which keeps what was."""

    def forget(self, keep_runs: int) -> int:  # noqa: ARG002
        return 0

    def close(self) -> None:
        """Lets go of what the connector holds open at the source, if it was ever used."""
        if "connector" in self.__dict__:
            self.connector.close()

    @property
    def bounded(self) -> tuple[str, ...]:
        """Fields of records by which a run finds what landed before."""
        connector = self.connector
        return connector.bounded if isinstance(connector, CheckpointConnector) else tuple(self.stream.cursor_fields)

    @property
    def bronze(self) -> BronzeTable:
        return BronzeTable(self.platform.lake, self.place.table)

    @property
    def quarantine(self) -> BronzeTable:
        return BronzeTable(self.platform.lake, self.place.quarantine)
