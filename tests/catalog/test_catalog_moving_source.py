"""A source that changes between the listing and the reading of columns: what exists is never deleted, and what is stored is
what was read."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_code.catalog import run as catalog_run
from tests.catalog import troubled  # noqa: F401  (registers the packs)
from tests.catalog.harness import Catalog, SparkForTests, SqliteSource, in_order
from tests.services.children import KILLED, in_child
from tests.services.postgres import PostgresServer
from tidemark.catalog.names import unit_key
from tidemark.catalog.rows import Kind, Label
from tidemark.catalog.settled import Settled
from tidemark.catalog.units import UnitLabels
from tidemark.control import RunRecord


@dataclass
class MovingSource:
    """A catalogue and somebody who changes its source while it is read."""

    catalog: Catalog
    execute: Any
    meddle: Any

    def labels_of(self, record: RunRecord) -> dict[str, int]:
        return {label: count for label, count in record.detail["labels"].items() if count}

    def assert_up_to_date(self, folder: Path, spark: SparkForTests) -> None:
        """The state is what a full read into an empty store would be, and nothing is left to do."""
        connection = self.catalog.subject.connection
        fresh = Catalog.make(
            folder / "fresh",
            spark,
            None,
            {"app": connection.app, "url": connection.resolved_url(), "exclude": list(connection.exclude)},
        )
        fresh.run()
        assert self.catalog.unlabelled() == fresh.unlabelled()
        assert self.catalog.mirror() == in_order(self.catalog.state())
        assert self.catalog.run().status == "unchanged"


def on_sqlite(folder: Path, spark: SparkForTests) -> MovingSource:
    source = SqliteSource(folder / "shop.db")

    def meddle(*statements: str) -> None:
        Path(f"{source.path}.meddling").write_text(json.dumps(statements))

    catalog = Catalog.make(folder, spark, source, {"app": "meddled-sqlite", "url": source.url})
    return MovingSource(catalog, source.execute, meddle)


def on_postgresql(folder: Path, spark: SparkForTests, pg: PostgresServer) -> MovingSource:
    url = pg.new_database()
    pg.execute(url, "CREATE SCHEMA meddling", "CREATE TABLE meddling.todo (statement text)")

    def meddle(*statements: str) -> None:
        pg.execute(url, *(f"INSERT INTO meddling.todo VALUES ($meddle${statement}$meddle$)" for statement in statements))

    catalog = Catalog.make(folder, spark, None, {"app": "meddled-postgresql", "url": url, "exclude": ["meddling.*"]})
    return MovingSource(catalog, lambda *statements: pg.execute(url, *statements), meddle)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def moving(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkForTests) -> MovingSource:
    if request.param == "sqlite":
        made = on_sqlite(tmp_path, spark)
    else:
        made = on_postgresql(tmp_path, spark, request.getfixturevalue("pg"))
    made.execute("CREATE TABLE still (a integer)", "CREATE TABLE note (a integer, b integer)")
    made.catalog.run()
    return made


def test_a_table_that_is_dropped_before_it_is_read_is_carried_and_the_next_listing_decides(moving: MovingSource) -> None:
    moving.execute("ALTER TABLE note ADD COLUMN c integer", "ALTER TABLE still ADD COLUMN b integer")
    before = moving.catalog.state(Kind.TABLE)[0]["attributes"]
    moving.meddle("DROP TABLE note")
    record = moving.catalog.run()
    assert moving.labels_of(record) == {"UPDATED": 1, "UNKNOWN": 1}
    assert record.detail["vanished"] == 1
    assert moving.catalog.columns_of("note") == ["a", "b"]
    assert moving.catalog.columns_of("still") == ["a", "b"]
    assert moving.catalog.state(Kind.TABLE)[0]["attributes"] == before | {"incremental_state": "NO CHANGE"}
    assert moving.catalog.deleted_names(record.run_id) == []
    assert "note" not in moving.catalog.diff(record.run_id)["table"]
    assert moving.catalog.mirror() == in_order(moving.catalog.state())

    decided = moving.catalog.run()
    assert moving.labels_of(decided) == {"NO CHANGE": 1, "REMOVED": 1}
    assert moving.catalog.deleted_names(decided.run_id) == ["note", "a", "b"]
    assert moving.catalog.columns_of("note") == []


def test_a_run_whose_only_change_cannot_be_read_publishes_nothing(moving: MovingSource, tmp_path: Path) -> None:
    moving.execute("ALTER TABLE note ADD COLUMN c integer")
    moving.meddle("DROP TABLE note")
    record = moving.catalog.run()
    assert (record.status, moving.labels_of(record)) == ("unchanged", {"NO CHANGE": 1, "UNKNOWN": 1})
    assert moving.catalog.columns_of("note") == ["a", "b"]
    moving.execute("CREATE TABLE note (a integer, d integer)")
    assert moving.labels_of(moving.catalog.run()) == {"NO CHANGE": 1, "UPDATED": 1}
    assert moving.catalog.columns_of("note") == ["a", "d"]


def test_a_full_run_carries_a_table_that_is_dropped_before_it_is_read(moving: MovingSource) -> None:
    moving.meddle("DROP TABLE note")
    record = moving.catalog.run(full=True)
    assert moving.labels_of(record) == {"CREATED": 1, "UNKNOWN": 1, "schemas and databases": 2}
    assert moving.catalog.columns_of("note") == ["a", "b"]
    assert moving.catalog.deleted_names(record.run_id) == []
    assert moving.labels_of(moving.catalog.run()) == {"NO CHANGE": 1, "REMOVED": 1}


def test_a_new_table_that_is_dropped_before_it_is_read_is_not_in_the_state(moving: MovingSource) -> None:
    moving.execute("CREATE TABLE brief (a integer)", "ALTER TABLE still ADD COLUMN b integer")
    moving.meddle("DROP TABLE brief")
    record = moving.catalog.run()
    assert moving.labels_of(record) == {"UPDATED": 1, "NO CHANGE": 1}
    assert record.detail["vanished"] == 1
    assert set(moving.catalog.labels()) == {"still", "note"}
    assert moving.catalog.run().status == "unchanged"


def test_a_table_that_is_dropped_and_created_again_before_it_is_read_is_read_as_it_is_now(
    moving: MovingSource, tmp_path: Path, spark: SparkForTests
) -> None:
    moving.execute("ALTER TABLE note ADD COLUMN c integer")
    moving.meddle("DROP TABLE note", "CREATE TABLE note (a integer, e varchar(7))")
    record = moving.catalog.run()
    assert moving.labels_of(record) == {"UPDATED": 1, "NO CHANGE": 1}
    assert moving.catalog.columns_of("note") == ["a", "e"]
    assert moving.catalog.deleted_names(record.run_id) == ["b"]
    assert moving.catalog.diff(record.run_id)["table"] == ["note"]
    moving.assert_up_to_date(tmp_path, spark)


def test_a_table_that_is_swapped_by_rename_before_it_is_read_is_the_one_that_has_the_name(
    moving: MovingSource, tmp_path: Path, spark: SparkForTests
) -> None:
    moving.execute("ALTER TABLE note ADD COLUMN c integer", "CREATE TABLE rebuilt (x integer, a integer)")
    moving.meddle("ALTER TABLE note RENAME TO old_note", "ALTER TABLE rebuilt RENAME TO note")
    record = moving.catalog.run()
    assert moving.labels_of(record) == {"UPDATED": 1, "NO CHANGE": 1}
    assert moving.catalog.columns_of("note") == ["x", "a"]
    assert moving.catalog.deleted_names(record.run_id) == ["b"]
    assert moving.labels_of(moving.catalog.run()) == {"CREATED": 1, "NO CHANGE": 2}
    moving.assert_up_to_date(tmp_path, spark)


def test_a_table_that_is_migrated_while_it_is_read_and_reverted_later_is_read_again(
    moving: MovingSource, tmp_path: Path, spark: SparkForTests
) -> None:
    moving.execute("ALTER TABLE note ADD COLUMN c integer")
    moving.meddle("ALTER TABLE note ADD COLUMN passing integer")
    moving.catalog.run()
    assert moving.catalog.columns_of("note") == ["a", "b", "c", "passing"]
    moving.execute("ALTER TABLE note DROP COLUMN passing")  # it is as it was listed
    assert moving.labels_of(moving.catalog.run()) == {"UPDATED": 1, "NO CHANGE": 1}
    assert moving.catalog.columns_of("note") == ["a", "b", "c"]
    moving.assert_up_to_date(tmp_path, spark)


def test_a_table_that_becomes_a_view_before_it_is_read_is_stored_as_the_view(
    moving: MovingSource, tmp_path: Path, spark: SparkForTests
) -> None:
    moving.execute("ALTER TABLE note ADD COLUMN c integer")
    moving.meddle("DROP TABLE note", "CREATE VIEW note AS SELECT a AS seen FROM still")
    moving.catalog.run()
    stored = {
        e["attributes"]["name"]: (e["typeName"], e["attributes"]["columnCount"]) for e in moving.catalog.state(Kind.TABLE)
    }
    assert stored == {"note": ("View", 1), "still": ("Table", 1)}
    moving.assert_up_to_date(tmp_path, spark)


def test_a_table_of_a_replaced_source_that_is_dropped_before_it_is_read_is_removed(
    tmp_path: Path, spark: SparkForTests
) -> None:
    moving, other = on_sqlite(tmp_path / "old", spark), on_sqlite(tmp_path / "new", spark)
    for source in (moving, other):
        source.execute("CREATE TABLE still (a integer)", "CREATE TABLE note (a integer)")
    moving.catalog.run()
    moving.catalog.configure(url=other.catalog.source.url)
    other.meddle("DROP TABLE note")
    record = moving.catalog.run()
    assert record.reason == "source replaced"
    assert moving.labels_of(record) == {"CREATED": 1, "REMOVED": 1, "schemas and databases": 2}
    assert moving.catalog.deleted_names(record.run_id) == ["note", "a"]


def as_listed(units: UnitLabels, vanished: list[str], known: Any, **_: Any) -> Settled:
    """What the merge did once: what could not be read counts as removed."""
    keys = np.array([unit_key(name) for name in vanished], np.int64)
    return Settled(units.relabelled(keys, Label.REMOVED), tuple(vanished))


def test_a_merge_that_believes_the_listing_turns_a_check_red_and_publishes_nothing(
    tmp_path: Path, spark: SparkForTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = on_sqlite(tmp_path, spark)
    moving.execute("CREATE TABLE still (a integer)", "CREATE TABLE note (a integer, b integer)")
    moving.catalog.run()
    moving.execute("ALTER TABLE note ADD COLUMN c integer")
    moving.meddle("DROP TABLE note")
    monkeypatch.setattr(catalog_run, "settle", as_listed)
    before = moving.catalog.snapshot_of_everything()
    result = moving.catalog.attempt()
    verdicts = {each.check_name: each.passed for each in result.get_asset_check_evaluations()}
    assert verdicts["decision_matrix"] is False
    assert moving.catalog.snapshot_of_everything() == before


@pytest.mark.fault
def test_the_labels_of_a_run_that_is_finished_after_a_kill_are_those_that_were_decided(
    tmp_path: Path, spark: SparkForTests
) -> None:
    moving = on_sqlite(tmp_path, spark)
    moving.execute("CREATE TABLE still (a integer)", "CREATE TABLE note (a integer, b integer)")
    moving.catalog.run()
    moving.execute("ALTER TABLE note ADD COLUMN c integer", "ALTER TABLE still ADD COLUMN b integer")
    moving.meddle("DROP TABLE note")
    assert in_child(Catalog.run, moving.catalog, TIDEMARK_FAULT="lake.after_publish") == KILLED
    moving.catalog.run()
    runs = moving.catalog.subject.control.runs.history(moving.catalog.subject.address)
    finished = next(run for run in runs if run.detail.get("finished by run"))
    assert moving.labels_of(finished) == {"UPDATED": 1, "UNKNOWN": 1}
