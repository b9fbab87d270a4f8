"""A model in the kill suite: what every subject does, and every policy for a schema that changed."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.catalog.harness import SparkForTests
from tests.models.harness import ModelLab, incremental
from tests.runs.kills import Scenario, Victim, recovery
from tests.runs.places import strays_of
from tidemark.lake_names import SHADOW
from tidemark.models.going_back import rewind_model, roll_back_model
from tidemark.models.place import ModelPlace
from tidemark.models.spec import ModelMetadata
from tidemark.models.state import parsed
from tidemark.models.subject import ModelSubject
from tidemark.runs.upkeep import keep_up

COLUMNS = "id int, at int, v string, w string, n bigint"
FIRST = ((1, 1, "a", "A", 10), (2, 1, "b", "B", 20))
CHANGED = ((1, 1, "a", "A", 10), (2, 2, "b", "BB", 21), (3, 3, "c", "C", 30))
NAME = "shop.t"


@dataclass(frozen=True)
class Described:
    """A model, and what it is to become when its source changes."""

    policy: str = "fail"
    strategy: str = "merge"
    first: str = "id, at, v"
    then: str = "id, at, v"
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, Any]:
        keys = {} if self.strategy == "append" else {"unique_key": "id"}
        chunks = [{"name": "from", "column": "at", "start_value": 1, "end_value": "max(at)", "step": 1}]
        model = {"incremental": incremental(self.strategy, self.policy, filter_column="at", **keys)}
        return model | self.more | {"full_incremental_refresh": {"parameters": chunks}}


@dataclass
class ModelVictim(Victim):
    """A model over a view. Views are of a session, so the source is fed before every run."""

    lab: ModelLab
    model: Described = field(default_factory=Described)
    changed: bool = False
    # What an undisturbed run and the one after it leave.
    wanted: tuple[Any, ...] | None = None

    @classmethod
    def make(cls, folder: Path, spark: SparkForTests, **config: Any) -> "ModelVictim":
        return cls(ModelLab.make(folder, spark, **config))

    @property
    def subject(self) -> ModelSubject:
        metadata = ModelMetadata.parse({"materialization": "incremental", **self.model.metadata})
        return ModelSubject(self.lab.platform, NAME, metadata)

    @property
    def table(self) -> str:
        return ModelPlace(NAME).table

    def reopen(self) -> None:
        self.lab.reopen()

    def run(self) -> None:
        self.lab.source(COLUMNS, *(CHANGED if self.changed else FIRST))
        self.lab.run(NAME, self.sql, **self.model.metadata)

    @property
    def sql(self) -> str:
        return f"SELECT {self.model.then if self.changed else self.model.first} FROM source"

    def go_back(self) -> None:
        runs = self.subject.control.runs.history(self.subject.address)
        roll_back_model(self.subject, next(run for run in reversed(runs) if run.snapshot), "wrong rows", lambda _: [])

    def rewind(self) -> None:
        rewind_model(self.subject, "1", None, "late rows")

    def maintain(self) -> None:
        keep_up(self.subject, self.lab.platform.lake, keep_runs=1, older_than=timedelta(0))

    # --- what must hold ----------------------------------------------------------------------------------------------

    def kept(self) -> None: ...

    def undisturbed(self) -> None:
        self.wanted = self.left()

    def shown(self) -> Any:
        """Rows, and columns with their types."""
        table = self.lab.platform.reader.table(NAME)
        return None if table is None or table.current_snapshot() is None else (self.lab.rows(NAME), self.lab.columns(NAME))

    def left(self) -> tuple[Any, ...]:
        """What a model is, whatever the way it got there."""
        state = self.lab.state(NAME)
        assert state is not None
        recorded = [(gone.name, gone.field["type"]) for gone in state.dropped]
        return self.shown(), state.last_processed_value, (state.sql_hash, state.config_hash, state.strategy), recorded

    def check_settled(self) -> None:
        assert self.wanted is None or self.left() == self.wanted
        if self.model.first == self.model.then:
            rows = [row.asDict() for row in self.lab.spark.sql(self.sql).collect()]
            assert sorted(map(repr, self.lab.rows(NAME))) == sorted(map(repr, rows))

    def mark_is_ahead(self) -> bool:
        """The state that the commit carries counts: recovery moves the mark there before anything else is done."""
        seen, state = self.subject.visible(), self.lab.state(NAME)
        if seen is not None and seen.record.get("expected") == (state.version if state else 0):
            state = parsed(seen.record["state"], NAME)
        last = state.last_processed_value if state else None
        known = [row["at"] for row in self.lab.rows(NAME)] if self.shown() else []
        return last is not None and last > max(known, default=0)

    def moved_the_mark(self) -> str | None:
        moves = self.subject.control.marks.audit(self.subject.address)
        return moves[0].run_id if moves else None

    def strays(self) -> list[str]:
        self.lab.sweep(NAME)
        platform = self.lab.platform
        shadows = platform.reader.shadows(NAME)
        known = platform.reader.referenced(NAME)
        # Files of a shadow table that was published are the table's.
        return [*strays_of(platform, NAME), *shadows, *strays_of(platform, f"{NAME}{SHADOW}", known)]


def ran(victim: ModelVictim) -> None:
    victim.run()


def changed(victim: ModelVictim) -> None:
    victim.run()
    victim.changed = True


def twice(victim: ModelVictim) -> None:
    changed(victim)
    victim.run()


def nothing(victim: ModelVictim) -> None: ...


def of(policy: str, strategy: str, first: str, then: str, passes: tuple[str, ...], **more: Any) -> Scenario[ModelVictim]:
    """What a policy does. Leases and ledger are those of every run, and are killed in the other scenarios."""

    def prepare(victim: ModelVictim) -> None:
        victim.model = Described(policy, strategy, first, then, more)
        changed(victim)

    # An empty table is filled by the run that follows.
    runs = 2 if policy == "recreate_empty" else 1
    return Scenario(prepare, ModelVictim.run, passes, only=of_rows_and_state, runs=runs)


def of_rows_and_state(point: str) -> bool:
    return point.startswith(("models.", "lake.")) or "mark_move" in point


COPY = ("lake.before_shadow", "lake.after_shadow", "models.after_write", "lake.before_publish", "lake.after_publish")
SHADOWED = ("models.after_make", "models.after_write", "lake.before_publish", "lake.after_publish", "models.after_state")
WRITTEN = ("models.before_write", "lake.before_publish", "lake.after_publish", "models.before_state", "run.after_finish")
INCREMENTAL = Scenario(changed, ModelVictim.run, WRITTEN, whole=True)
COMMON = {
    "first run": Scenario(nothing, ModelVictim.run, ("models.after_make", "lake.after_publish")),
    "incremental run": INCREMENTAL,
    "unchanged run": Scenario(ran, ModelVictim.run, ("run.after_finish",)),
    "rollback": Scenario(twice, ModelVictim.go_back, ("lake.after_publish", "rollback.before_state")),
    "rewind": Scenario(twice, ModelVictim.rewind, ("control.before_mark_rewind", "control.after_mark_rewind")),
    "upkeep": Scenario(twice, ModelVictim.maintain, ("lake.after_compact", "lake.after_publish", "lake.after_expire")),
    "recovery of a published run": recovery(INCREMENTAL, "models.before_state"),
    "recovery of a staged run": recovery(INCREMENTAL, "lake.before_publish"),
}
POLICIES = {
    "ignore": of("ignore", "merge", "id, at, w", "id, at, w, v", ("models.between_delete_and_insert",)),
    "append_new_columns": of("append_new_columns", "append", "id, at, CAST(n AS int) AS n, v", "id, at, n, v, w", COPY),
    "sync_all_columns": of(
        "sync_all_columns", "delete_insert", "id, at, v, n", "id, at, v AS name, w", COPY, renames={"v": "name"}
    ),
    "sync_all_columns converts": of("sync_all_columns", "merge", "id, at, n, v", "id, at, CAST(n AS int) AS n", SHADOWED),
    "full_refresh": of("full_refresh", "merge", "id, at, v", "id, at, v, w", SHADOWED),
    "full_incremental_refresh": of(
        "full_incremental_refresh", "append", "id, at, v", "id, at, v, w", (*SHADOWED, "models.after_chunk")
    ),
    "recreate_empty": of("recreate_empty", "append", "id, at, v", "id, at, v, w", ("lake.after_publish",)),
}
SCENARIOS = {**COMMON, **POLICIES}
