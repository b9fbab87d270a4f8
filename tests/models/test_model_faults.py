"""Models on bad days: kill -9 at every point of every policy. Readers see the old or the new, and the next run is right."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from spark_code.lake import without_checksum
from tests.catalog.harness import SparkForTests
from tests.catalog.killing import KILLED, in_child
from tests.models.harness import ModelLab, incremental
from tidemark.lake import plain_path
from tidemark.models.place import ModelPlace

pytestmark = pytest.mark.fault

COLUMNS = "id int, at int, v string, w string, n bigint"
NAME = "shop.t"


@dataclass(frozen=True)
class Scenario:
    """A model that has run once, and what it is to become."""

    policy: str
    strategy: str
    first: str | None
    then: str
    more: dict[str, Any] = field(default_factory=dict)
    # Points that the run must pass, so that the test cannot lose sight of them.
    passes: tuple[str, ...] = ()

    @property
    def metadata(self) -> dict[str, Any]:
        keys = {} if self.strategy == "append" else {"unique_key": "id"}
        chunks = [{"name": "from", "column": "at", "start_value": 1, "end_value": "max(at)", "step": 1}]
        model = {"incremental": incremental(self.strategy, self.policy, filter_column="at", **keys)}
        return model | self.more | {"full_incremental_refresh": {"parameters": chunks}}

    def prepared(self, folder: Path, spark: SparkForTests) -> ModelLab:
        lab = ModelLab.make(folder, spark)
        lab.source(COLUMNS, (1, 1, "a", "A", 10), (2, 1, "b", "B", 20))
        if self.first:
            lab.run(NAME, f"SELECT {self.first} FROM source", **self.metadata)
        self.feed(lab)
        return lab

    def feed(self, lab: ModelLab) -> None:
        lab.source(COLUMNS, (1, 1, "a", "A", 10), (2, 2, "b", "BB", 21), (3, 3, "c", "C", 30))

    def run(self, lab: ModelLab) -> bool:
        lab.run(NAME, f"SELECT {self.then} FROM source", **self.metadata)
        return True


COPY = ("models.before_copy", "models.after_copy", "models.after_write", "models.before_publish", "models.after_publish")
BESIDE = ("models.after_make", "models.after_write", "models.before_publish", "models.after_publish", "models.after_state")

SCENARIOS = {
    "first run": Scenario("fail", "merge", None, "id, at, v", passes=("models.after_make", "models.after_publish")),
    "ignore": Scenario("ignore", "merge", "id, at, w", "id, at, w, v", passes=("models.between_delete_and_insert",)),
    "append_new_columns": Scenario(
        "append_new_columns", "append", "id, at, CAST(n AS int) AS n, v", "id, at, n, v, w", passes=COPY
    ),
    "sync_all_columns": Scenario(
        "sync_all_columns", "delete_insert", "id, at, v, n", "id, at, v AS name, w", {"renames": {"v": "name"}}, COPY
    ),
    "sync_all_columns converts": Scenario(
        "sync_all_columns", "merge", "id, at, n, v", "id, at, CAST(n AS int) AS n", passes=BESIDE
    ),
    "full_refresh": Scenario("full_refresh", "merge", "id, at, v", "id, at, v, w", passes=BESIDE),
    "full_incremental_refresh": Scenario(
        "full_incremental_refresh", "append", "id, at, v", "id, at, v, w", passes=(*BESIDE, "models.after_chunk")
    ),
    "recreate_empty": Scenario("recreate_empty", "append", "id, at, v", "id, at, v, w", passes=("models.after_publish",)),
}


def told(lab: ModelLab) -> tuple[Any, ...]:
    """What a model is, whatever the way it got there."""
    state = lab.state(NAME)
    assert state is not None
    recorded = [(gone.name, gone.field["type"]) for gone in state.dropped]
    hashes = (state.sql_hash, state.config_hash, state.strategy)
    return lab.rows(NAME), lab.columns(NAME), state.last_processed_value, hashes, recorded


def seen(lab: ModelLab) -> tuple[list[dict[str, Any]], dict[str, str]] | None:
    """What a reader sees: rows, and columns with their types. None before the first publication."""
    table = lab.platform.lake.reader.table(NAME)
    return None if table is None or table.current_snapshot() is None else (lab.rows(NAME), lab.columns(NAME))


def strays(lab: ModelLab) -> list[str]:
    """What no published snapshot accounts for."""
    reader = lab.platform.lake.reader
    known = reader.referenced(NAME)
    folder = Path(reader.settings.warehouse) / NAME.replace(".", "/")
    folders = (folder, folder.with_name(folder.name + "__beside"))
    files = [str(path) for each in folders for path in each.rglob("*") if path.is_file()]
    left = [path for path in files if without_checksum(path) not in known]
    beside = [ModelPlace(NAME).beside] if reader.table(ModelPlace(NAME).beside) is not None else []
    return [*left, *reader.branches(NAME), *beside]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_a_run_killed_at_any_point_leaves_the_old_or_the_new_and_the_next_run_is_right(
    tmp_path: Path, spark: SparkForTests, scenario: Scenario
) -> None:
    wanted = scenario.prepared(tmp_path / "undisturbed", spark)
    before = seen(wanted)
    trace = tmp_path / "trace"
    assert in_child(wanted.platform, lambda: scenario.run(wanted), TIDEMARK_FAULT_TRACE=str(trace)) == 0
    after = seen(wanted)
    points = [point for point in dict.fromkeys(trace.read_text().split()) if worth(point)]
    assert set(scenario.passes) <= set(points)

    lab = scenario.prepared(tmp_path / "here", spark)
    lab.platform.control.close()
    shutil.copytree(lab.folder, tmp_path / "aside")
    for point in points:
        anew(scenario, lab, tmp_path / "aside")
        assert in_child(lab.platform, work(scenario, lab), TIDEMARK_FAULT=point) == KILLED, point
        now = seen(lab)
        assert now in (before, after), (point, now)
        scenario.run(lab)
        if scenario.policy == "recreate_empty" and now == after:
            # It was published before the kill: the run after it is the one that fills.
            assert [(row["id"], row["w"]) for row in lab.rows(NAME, "id")] == [(1, "A"), (2, "BB"), (3, "C")], point
            assert lab.states.get_last_processed_value(NAME) == 3, point
        else:
            assert told(lab) == told(wanted), point
        assert strays(lab) == [], point


def worth(point: str) -> bool:
    """All points of models and of the lake, and the moves of state; leases and ledger have tests of their own."""
    return point.startswith(("models.", "lake.")) or "mark_move" in point


def work(scenario: Scenario, lab: ModelLab) -> Callable[[], bool]:
    return lambda: scenario.run(lab)


def anew(scenario: Scenario, lab: ModelLab, aside: Path) -> None:
    """Everything as it was before the run; a new session, since the old one holds the catalogue's file open."""
    lab.platform.control.close()
    shutil.rmtree(lab.folder)
    shutil.copytree(aside, lab.folder)
    lab.reopen()
    scenario.feed(lab)


def test_a_refresh_that_was_killed_goes_on_behind_the_last_chunk(tmp_path: Path, spark: SparkForTests) -> None:
    scenario = SCENARIOS["full_incremental_refresh"]
    lab = scenario.prepared(tmp_path / "here", spark)
    assert in_child(lab.platform, lambda: scenario.run(lab), TIDEMARK_FAULT="models.after_chunk") == KILLED
    beside = lab.platform.lake.reader.table(ModelPlace(NAME).beside)
    assert beside is not None
    first = beside.current_snapshot()
    assert first is not None
    manifests = {plain_path(manifest.manifest_path) for manifest in first.manifests(beside.io)}
    scenario.run(lab)
    assert "resumed" in str(lab.last_run(NAME).reason)
    assert manifests <= lab.platform.lake.reader.referenced(NAME), "the first chunk was written again"
    assert [row["w"] for row in lab.rows(NAME, "id")] == ["A", "BB", "C"]
