"""Models whose process is stopped between a question and what it does next: another run takes over, and it wakes up."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from spark_code.models.run import ModelRun
from tidemark.checks import CheckResult
from tidemark.control import ControlDatabase
from tidemark.errors import ChecksFailed, LeaseLost, LostRace, StateError
from tidemark.lake import LakeReader, LakeSettings
from tidemark.lake_names import branch_of
from tidemark.models.place import ModelPlace
from tidemark.models.project import wrong_name
from tidemark.models.state import ModelState, ModelStateManager
from tidemark.models.subject import REFRESH, ModelSubject
from tidemark.publication import Publication, publish, shadow_location, visible
from tidemark.runs.by_hand import rewind

pytestmark = pytest.mark.fast

NAME, PLACE = "orders", ModelPlace("orders")


@dataclass
class Lab:
    """A model of three rows whose runs stage two more. Rows are written by pyiceberg: nothing here needs Spark."""

    folder: Path
    control: ControlDatabase = field(init=False)
    reader: LakeReader = field(init=False)

    def __post_init__(self) -> None:
        self.catalog = SqlCatalog("lake", uri=f"sqlite:///{self.folder}/lake.db", warehouse=f"file://{self.folder}/lake")
        self.reader = LakeReader(LakeSettings({"warehouse": f"file://{self.folder}/lake"}))
        self.reader._catalog = self.catalog
        self.control = ControlDatabase(f"sqlite:///{self.folder}/control.db")
        self.control.migrate()
        for namespace in ("models", "tidemark_shadow"):
            self.catalog.create_namespace(namespace)
        self.catalog.create_table(PLACE.table, pa.schema([("id", pa.int64())])).append(pa.table({"id": [1, 2, 3]}))
        self.states.move(NAME, self.state(3), expected=0, run_id="r0", reason="run")

    @property
    def states(self) -> ModelStateManager:
        return ModelStateManager(self.control)

    @property
    def table(self) -> Any:
        return self.reader.existing(PLACE.table)

    @property
    def rows(self) -> list[int]:
        return sorted(self.table.scan().to_arrow()["id"].to_pylist())

    @property
    def last_value(self) -> Any:
        return self.states.get_last_processed_value(NAME)

    def state(self, last: int) -> ModelState:
        return ModelState(last_processed_value=last, strategy="append", snapshot=self.table.current_snapshot().snapshot_id)

    def run(self, run_id: str) -> ModelRun:
        platform: Any = SimpleNamespace(reader=self.reader, control=self.control)
        lake = SimpleNamespace(stage=self._stage)
        adapter: Any = SimpleNamespace(platform=platform, reader=self.reader, lake=lake, existing=lambda _: self.table)
        return ModelRun(adapter, NAME, run_id)

    def _stage(self, _name: str, run_id: str) -> None:
        table, branch = self.table, branch_of(run_id)
        table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, branch).commit()
        table.append(pa.table({"id": [4, 5]}), branch=branch)

    def rebuild(self, run: ModelRun, *rows: int, **properties: str) -> Schema:
        """What a rebuild has written into the run's shadow table."""
        schema = self.table.schema()
        made = self.catalog.create_table(run.shadow, schema, location=shadow_location(self.table), properties=properties)
        made.append(pa.table({"id": list(rows)}))
        return Schema(*made.schema().fields)

    def take_over(self, run_id: str) -> ModelRun:
        """As if the holder of the lease had been stopped for a minute."""
        with self.control._transactions.writing() as connection:
            connection.exec_driver_sql("UPDATE tidemark_leases SET expires_at = '2000-01-01 00:00:00.000000'")
        return self.run(run_id).begin()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def stopped_after_confirm(run: ModelRun, meanwhile: Callable[[], object]) -> None:
    """The run is sure of its lease, and is stopped before it does anything."""
    confirm = run.confirm

    def stopped() -> None:
        confirm()
        run.confirm = confirm  # type: ignore[method-assign]
        meanwhile()

    run.confirm = stopped  # type: ignore[method-assign]


def test_a_run_whose_branch_was_dropped_publishes_nothing(lab: Lab) -> None:
    zombie = lab.run("zombie").begin()
    schema = lab.rebuild(zombie, 1, 2, 3, 4)
    stopped_after_confirm(zombie, lambda: lab.take_over("other").end())
    with pytest.raises(LostRace):
        zombie.publish_shadow(lab.state(4), schema)
    assert (lab.rows, lab.last_value) == ([1, 2, 3], 3)


def test_columns_alone_are_published_by_a_run_only_that_nobody_took_over(lab: Lab) -> None:
    zombie, others = lab.run("zombie").begin(), []

    def meanwhile() -> None:
        others.append(lab.take_over("other"))
        others[0].stage()

    stopped_after_confirm(zombie, meanwhile)
    wider = Schema(*lab.table.schema().fields, NestedField(2, "note", StringType(), required=False))
    with pytest.raises(LostRace):
        zombie.publish_staged(lab.state(3), wider)
    others[0].publish_staged(lab.state(5))
    assert (lab.rows, lab.last_value) == ([1, 2, 3, 4, 5], 5)


def test_a_run_that_another_has_closed_moves_no_mark(lab: Lab) -> None:
    zombie, others = lab.run("zombie").begin(), []

    def meanwhile() -> None:
        others.append(lab.take_over("other"))
        others[0].stage()

    stopped_after_confirm(zombie, meanwhile)
    with pytest.raises(LeaseLost):
        zombie.move_state(lab.state(3))
    others[0].publish_staged(lab.state(5))
    assert (lab.rows, lab.last_value) == ([1, 2, 3, 4, 5], 5)


def test_a_woken_recovery_leaves_what_a_later_run_has_staged(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    repair, later = ModelSubject.repair, []

    def stopped(subject: ModelSubject, confirm: Any) -> None:
        monkeypatch.setattr(ModelSubject, "repair", repair)
        later.append(lab.take_over("later"))
        later[0].stage()
        repair(subject, confirm)

    monkeypatch.setattr(ModelSubject, "repair", stopped)
    with pytest.raises(LeaseLost):
        lab.run("zombie").begin().confirm()
    later[0].publish_staged(lab.state(5))
    assert (lab.rows, lab.last_value) == ([1, 2, 3, 4, 5], 5)


def test_a_woken_run_that_failed_leaves_the_rebuild_of_a_later_run(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    undo, later = ModelSubject.undo, []

    def stopped(subject: ModelSubject, run: Any) -> None:
        monkeypatch.setattr(ModelSubject, "undo", undo)
        later.append(lab.take_over("later"))
        lab.rebuild(later[0], 7)
        undo(subject, run)

    zombie = lab.run("zombie").begin()
    monkeypatch.setattr(ModelSubject, "undo", stopped)
    with pytest.raises(LeaseLost):
        zombie.end()
    later[0].publish_shadow(lab.state(7), lab.table.schema())
    assert lab.rows == [7]


def test_a_refresh_whose_rows_failed_a_check_is_not_gone_on_with(lab: Lab) -> None:
    run = lab.run("r1").begin()
    lab.rebuild(run, 1, **{REFRESH: json.dumps({"base": run.base})})
    with pytest.raises(ChecksFailed):
        run.require([CheckResult("no_bad_rows", False, "1 row is bad")])
    run.end()
    assert lab.reader.shadows(PLACE.table) == []


def test_a_mark_is_not_rewound_over_a_run_that_was_killed(lab: Lab) -> None:
    lab.control.runs.begin(PLACE.address, "killed")
    with pytest.raises(StateError, match="killed was killed and is not settled yet"):
        rewind(lab.control, lab.control.marks, PLACE.address, "late rows", lambda _: {"to_version": 1})


def test_a_table_that_was_taken_back_stays_so_when_the_snapshot_is_expired(lab: Lab) -> None:
    first = lab.table.current_snapshot().snapshot_id
    lab._stage("", "r2")
    table = lab.table
    staged = table.snapshot_by_name(branch_of("r2"))
    publish(table, Publication("r2", first, staged, record={"marker": "later"}, branch=branch_of("r2")))
    assert visible(lab.reader, PLACE.table).run_id == "r2"  # type: ignore[union-attr]
    lab.table.manage_snapshots().rollback_to_snapshot(first).commit()
    lab.table.maintenance.expire_snapshots().by_id(staged.snapshot_id).commit()
    seen = visible(lab.reader, PLACE.table)
    assert seen is not None
    assert (seen.snapshot, seen.record) == (first, {})


def test_no_model_shares_its_folder_with_the_rebuilds_of_another() -> None:
    assert "rebuilds of silver.orders" in str(wrong_name("silver.orders__shadow"))
    assert wrong_name("silver.orders") is None


def test_a_state_from_a_restored_backup_follows_the_table_before_rows_are_appended_again(lab: Lab) -> None:
    """The table is newer than the control database, and no run of the ledger is open."""
    with closing(sqlite3.connect(lab.folder / "control.db")) as database:
        database.execute(f"VACUUM INTO '{lab.folder}/backup.db'")
    run = lab.run("r1").begin()
    schema = lab.rebuild(run, 1, 2, 3, 4, 5)
    run.publish_shadow(lab.state(5), schema)
    run.finish("published")
    run.end()
    assert (lab.rows, lab.last_value) == ([1, 2, 3, 4, 5], 5)
    lab.control.close()
    for left in lab.folder.glob("control.db-*"):
        left.unlink()
    shutil.copy(lab.folder / "backup.db", lab.folder / "control.db")
    assert lab.last_value == 3
    lab.run("r2").begin().end()
    assert lab.last_value == 5
    newest = lab.control.marks.audit(PLACE.address)[0]
    assert "older than the table" in newest.reason
