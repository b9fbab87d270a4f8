"""Table and state of a model back to what a run left, and its last value back by hand. No Spark is needed for that."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import StringType

from tidemark.checks import CheckResult
from tidemark.config import load_config
from tidemark.control import RunRecord
from tidemark.errors import ChecksFailed, RunInProgress, StateError, UsageError
from tidemark.models.differences import rows_between
from tidemark.models.going_back import reset_model, rewind_model, roll_back_model
from tidemark.models.spec import ModelMetadata
from tidemark.models.state import ModelState
from tidemark.models.subject import ModelSubject
from tidemark.platform import Platform
from tidemark.publication import PUBLISHED
from tidemark.runs import Mode, Reason, Run

MERGE = {
    "materialization": "incremental",
    "incremental": {"strategy": "merge", "merge": {"unique_key": ["id"], "filter_column": "id"}},
}
APPEND = {"materialization": "incremental", "incremental": {"strategy": "append", "append": {"filter_column": "id"}}}


def model(platform: Platform, metadata: dict[str, object]) -> ModelSubject:
    return ModelSubject(platform, "silver.lines", ModelMetadata.parse(metadata, file="lines.sql"))


def sound(snapshot: int) -> list[CheckResult]:
    """The verdict of a model without checks."""
    assert snapshot
    return []


class Lines:
    """A model of one column, whose runs append numbers by pyiceberg."""

    def __init__(self, folder: Path, metadata: dict[str, object]) -> None:
        (folder / "tidemark.yaml").write_text(yaml.safe_dump({"store": "store"}))
        self.platform = Platform(load_config(folder / "tidemark.yaml"))
        self.subject = model(self.platform, metadata)
        (folder / "store").mkdir()
        SqlCatalog("lake", **{**self.platform.lake_settings.for_python(), "init_catalog_tables": "true"})
        catalog = self.platform.reader.catalog
        catalog.create_namespace("silver")
        catalog.create_table("silver.lines", pa.schema([("id", pa.int64())]))

    def ran(self, run_id: str, *ids: int) -> RunRecord:
        table = self.platform.reader.existing("silver.lines")
        with Run(self.subject, run_id) as run:
            run.decide(Mode.INCREMENTAL, Reason.STATE_FOUND)
            nulls = {"name": pa.nulls(len(ids), pa.string())} if "name" in table.schema().column_names else {}
            table.append(pa.table({"id": pa.array(ids, pa.int64()), **nulls}))
            table = self.platform.reader.existing("silver.lines")
            with table.transaction() as transaction:
                transaction.set_properties({PUBLISHED: f'{{"run_id": "{run_id}"}}'})
            snapshot = table.current_snapshot().snapshot_id
            state = ModelState(max(ids), sql_hash=run_id, snapshot=snapshot)
            version = self.subject.states.version("silver.lines")
            self.subject.states.move("silver.lines", state, expected=version, run_id=run_id, reason="run")
            return run.finish("published", snapshot=snapshot)

    def widen(self) -> None:
        with self.platform.reader.existing("silver.lines").update_schema() as update:
            update.add_column("name", StringType())

    @property
    def ids(self) -> list[int]:
        return sorted(self.platform.reader.existing("silver.lines").scan().to_arrow()["id"].to_pylist())

    @property
    def state(self) -> ModelState | None:
        return self.subject.states.get("silver.lines")


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[Lines]:
    made = Lines(tmp_path, MERGE)
    yield made
    made.platform.control.close()


@pytest.mark.fast
def test_rows_columns_and_state_are_those_that_the_run_left(lines):
    first = lines.ran("r1", 1, 2)
    lines.widen()
    lines.ran("r2", 3)
    back = roll_back_model(lines.subject, first, "wrong numbers", sound)

    assert lines.ids == [1, 2]
    assert lines.platform.reader.existing("silver.lines").schema().column_names == ["id"]
    assert (lines.state.last_processed_value, lines.state.sql_hash, lines.state.snapshot) == (2, "r1", back.snapshot)
    assert (back.mode, back.status, back.detail["rows"]) == ("rollback", "published", {"deleted": 1})
    move = lines.subject.control.marks.audit("model/silver.lines")[0]
    assert (move.run_id, move.reason) == (back.run_id, "wrong numbers")
    assert back.snapshot not in (first.snapshot, None), "the past stays: what was published is still there"
    assert rows_between(lines.subject, first, back)["rows_removed"] == 0


@pytest.mark.fast
def test_a_rollback_can_be_rolled_back(lines):
    first = lines.ran("r1", 1)
    second = lines.ran("r2", 2)
    roll_back_model(lines.subject, first, "x", sound)
    roll_back_model(lines.subject, second, "x", sound)
    assert (lines.ids, lines.state.last_processed_value) == ([1, 2], 2)


@pytest.mark.fast
def test_a_file_that_is_gone_stops_the_rollback_before_anything_changes(lines):
    first = lines.ran("r1", 1)
    lines.ran("r2", 2)
    for path in lines.platform.reader.files("silver.lines", first.snapshot).data:
        Path(path).unlink()
    head = lines.platform.reader.published("silver.lines").snapshot_id
    with pytest.raises(ChecksFailed, match="1 of 1 files are missing"):
        roll_back_model(lines.subject, first, "x", sound)
    assert lines.platform.reader.published("silver.lines").snapshot_id == head
    assert lines.state.last_processed_value == 2


@pytest.mark.fast
def test_rows_that_fail_a_check_by_now_are_not_gone_back_to(lines):
    first = lines.ran("r1", 1)
    second = lines.ran("r2", 2)
    asked = []

    def judge(snapshot: int) -> list[CheckResult]:
        asked.append(snapshot)
        return [CheckResult("unique__id", False, "2 rows share a key")]

    with pytest.raises(ChecksFailed, match="unique__id: 2 rows share a key"):
        roll_back_model(lines.subject, first, "x", judge)
    assert (asked, lines.ids, lines.state.last_processed_value) == ([first.snapshot], [1, 2], 2)
    assert lines.platform.reader.published("silver.lines").snapshot_id == second.snapshot


@pytest.mark.fast
def test_what_no_run_left_cannot_be_gone_back_to(lines):
    first = lines.ran("r1", 1)
    lines.subject.control.runs.begin("model/silver.lines", "r2")
    failed = lines.subject.control.runs.finish("r2", "failed", error="x")
    with pytest.raises(UsageError, match="r2 is failed and left nothing"):
        roll_back_model(lines.subject, failed, "x", sound)
    table = lines.platform.reader.existing("silver.lines")
    lines.ran("r3", 2)
    table = lines.platform.reader.existing("silver.lines")
    table.maintenance.expire_snapshots().by_id(first.snapshot).commit()
    with pytest.raises(StateError, match="no longer kept"):
        roll_back_model(lines.subject, first, "x", sound)


@pytest.mark.fast
def test_rows_between_two_runs_are_counted_by_their_content(lines):
    first = lines.ran("r1", 1, 2)
    second = lines.ran("r2", 2, 3)
    told = rows_between(lines.subject, first, second)
    assert (told["rows_added"], told["rows_removed"]) == (2, 0)
    told = rows_between(lines.subject, second, first)
    assert (told["rows_added"], told["rows_removed"]) == (0, 2)


# --- the last value -----------------------------------------------------------------------------------------------------


@pytest.mark.fast
def test_a_last_value_goes_back_and_never_forward(lines):
    lines.ran("r1", 1)
    lines.ran("r2", 5)
    moved = rewind_model(lines.subject, "3", None, "late rows")
    assert (moved.last_processed_value, lines.state.last_processed_value, lines.state.sql_hash) == (3, 3, "r2")
    assert rewind_model(lines.subject, None, 1, "more").last_processed_value == 1
    with pytest.raises(UsageError, match="can only go back"):
        rewind_model(lines.subject, "4", None, "x")
    with pytest.raises(UsageError, match="say why"):
        rewind_model(lines.subject, "0", None, " ")
    with pytest.raises(UsageError, match="no value of the type") as wrong:
        rewind_model(lines.subject, "yesterday", None, "x")
    assert "yesterday" not in str(wrong.value)
    assert lines.subject.control.marks.audit("model/silver.lines")[0].kind == "rewind"


@pytest.mark.fast
def test_a_model_that_appends_cannot_be_rewound(tmp_path):
    lines = Lines(tmp_path, APPEND)
    lines.ran("r1", 1)
    with pytest.raises(UsageError, match="would be in the table twice"):
        rewind_model(lines.subject, "0", None, "x")


@pytest.mark.fast
def test_a_model_that_is_running_is_not_rewound(lines):
    lines.ran("r1", 1)
    with lines.subject.control.leases.hold("model/silver.lines", "another"):
        with pytest.raises(RunInProgress):
            rewind_model(lines.subject, "0", None, "x")
        with pytest.raises(RunInProgress):
            reset_model(lines.subject, "x")
    assert lines.state.version == 1


@pytest.mark.fast
def test_every_move_by_hand_has_a_word_of_its_own_in_the_audit(lines):
    first = lines.ran("r1", 1)
    lines.ran("r2", 5)
    roll_back_model(lines.subject, first, "wrong", sound)
    reset_model(lines.subject, "start again")
    moves = lines.subject.control.marks.audit("model/silver.lines")
    assert [move.kind for move in moves] == ["reset", "rewind", "commit", "commit"]
    with pytest.raises(UsageError, match="say why"):
        reset_model(lines.subject, " ")
