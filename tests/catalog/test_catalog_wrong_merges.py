"""A merge made wrong on purpose turns a check red, and nothing that readers see moves."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_code.catalog import run as catalog_run
from spark_code.catalog.state import StagedState, StateMerge, stage_state
from spark_code.lake import Lake
from tests.catalog.harness import Catalog
from tidemark.catalog.names import unit_key
from tidemark.lake import branch_of

PREFIX = "default/sqlite/1700000000/main/main"

Harm = Callable[[Lake, str], None]


def sql(statement: str) -> Harm:
    return lambda lake, branch: lake.spark.sql(statement.format(branch=branch)).collect()


def copied_row(table: str, column: str, **changes: str) -> Harm:
    """Appends a copy of a column's row with some fields changed."""

    def harm(lake: Lake, branch: str) -> None:
        fields = [
            "kind",
            "unit_key",
            "ordinal",
            "qualified_name",
            "unit",
            "object_id",
            "digest",
            "label",
            "run_id",
            "entity",
        ]
        chosen = ", ".join(changes.get(name, name) for name in fields)
        name = f"{PREFIX}/{table}/{column}"
        lake.spark.sql(f"INSERT INTO {branch} SELECT {chosen} FROM {branch} WHERE qualified_name = '{name}'")

    return harm


GHOST = f"{PREFIX}/ghost"

WRONG_MERGES: dict[str, tuple[str, Harm]] = {
    "a carried table lost a column": ("decision_matrix", sql(
        f"DELETE FROM {{branch}} WHERE qualified_name = '{PREFIX}/still/b'")),
    "a carried table lost all columns": ("decision_matrix", sql(
        f"DELETE FROM {{branch}} WHERE unit = '{PREFIX}/still' AND kind = 'column'")),
    "a carried table is gone": ("decision_matrix", sql(f"DELETE FROM {{branch}} WHERE unit = '{PREFIX}/still'")),
    "a carried table got columns of this run": ("decision_matrix", copied_row(
        "updated", "a", unit=f"'{PREFIX}/still'", unit_key=str(unit_key(f"{PREFIX}/still")),
        qualified_name=f"'{PREFIX}/still/new'")),
    "a carried column was rewritten": ("carried_unchanged", sql(
        f"UPDATE {{branch}} SET entity = replace(entity, 'INTEGER', 'TEXT') WHERE qualified_name = '{PREFIX}/still/b'")),
    "an updated table kept its old columns": ("decision_matrix", copied_row(
        "updated", "a", run_id="'an-earlier-run'", qualified_name=f"'{PREFIX}/updated/old'")),
    "an updated table lost a fresh column": ("decision_matrix", sql(
        f"DELETE FROM {{branch}} WHERE qualified_name = '{PREFIX}/updated/c'")),
    "an updated table has other columns than were read": ("decision_matrix", sql(
        f"UPDATE {{branch}} SET entity = replace(entity, 'TEXT', 'BLOB') WHERE qualified_name = '{PREFIX}/updated/c'")),
    "an updated table has another digest than was read": ("decision_matrix", sql(
        f"UPDATE {{branch}} SET digest = 'of the listing' WHERE qualified_name = '{PREFIX}/updated'")),
    "an updated table has another id than was read": ("decision_matrix", sql(
        f"UPDATE {{branch}} SET object_id = 'of the listing' WHERE qualified_name = '{PREFIX}/updated'")),
    "an updated table has another entity than was read": ("decision_matrix", sql(
        f"UPDATE {{branch}} SET entity = replace(entity, 'ACTIVE', 'LISTED') WHERE qualified_name = '{PREFIX}/updated'")),
    "a carried table got another digest": ("decision_matrix", sql(
        f"UPDATE {{branch}} SET digest = 'of the listing' WHERE qualified_name = '{PREFIX}/still'")),
    "a created table is missing": ("decision_matrix", sql(f"DELETE FROM {{branch}} WHERE unit = '{PREFIX}/created'")),
    "a created table has no columns": ("decision_matrix", sql(
        f"DELETE FROM {{branch}} WHERE unit = '{PREFIX}/created' AND kind = 'column'")),
    "a removed table came back": ("decision_matrix", copied_row(
        "updated", "a", kind="'table'", unit=f"'{PREFIX}/removed'", unit_key=str(unit_key(f"{PREFIX}/removed")),
        qualified_name=f"'{PREFIX}/removed'")),
    "a removed table's column came back": ("no_orphan_columns", copied_row(
        "updated", "a", unit=f"'{PREFIX}/removed'", unit_key=str(unit_key(f"{PREFIX}/removed")),
        qualified_name=f"'{PREFIX}/removed/a'")),
    "an orphan column": ("no_orphan_columns", copied_row(
        "updated", "a", unit=f"'{GHOST}'", unit_key=str(unit_key(GHOST)), qualified_name=f"'{GHOST}/a'")),
    "a table that is not in scope": ("decision_matrix", copied_row(
        "updated", "a", kind="'table'", unit=f"'{GHOST}'", unit_key=str(unit_key(GHOST)), qualified_name=f"'{GHOST}'")),
    "a duplicate column": ("no_duplicate_names", copied_row("created", "a")),
    "a duplicate table": ("no_duplicate_names", sql(
        f"INSERT INTO {{branch}} SELECT * FROM {{branch}} WHERE qualified_name = '{PREFIX}/created'")),
    "a column outside its table": ("no_orphan_columns", copied_row(
        "created", "a", qualified_name=f"'{PREFIX}/elsewhere/a'")),
    "the counts do not add up": ("counts_add_up", sql(
        f"DELETE FROM {{branch}} WHERE qualified_name = '{PREFIX}/still/b'")),
}  # fmt: skip


@pytest.fixture(scope="module")
def changed_shop(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Catalog:
    """A published state, and a source in which one table of each kind has changed since."""
    shop = Catalog.of_sqlite(tmp_path_factory.mktemp("wrong"), spark)  # type: ignore[arg-type]
    shop.source.execute(
        "CREATE TABLE still (a INTEGER, b INTEGER)",
        "CREATE TABLE updated (a INTEGER, b INTEGER)",
        "CREATE TABLE removed (a INTEGER)",
    )
    shop.run()
    shop.source.execute(
        "ALTER TABLE updated DROP COLUMN b",
        "ALTER TABLE updated ADD COLUMN c TEXT",
        "CREATE TABLE created (a INTEGER, b INTEGER)",
        "DROP TABLE removed",
    )
    return shop


@pytest.mark.parametrize("wrong", WRONG_MERGES)
def test_a_wrong_merge_turns_a_check_red_and_publishes_nothing(
    changed_shop: Catalog, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, harm = WRONG_MERGES[wrong]

    def stage_wrongly(lake: Lake, table: str, merge: StateMerge) -> StagedState:
        staged = stage_state(lake, table, merge)
        harm(lake, f"lake.{table}.branch_{branch_of(staged.run_id)}")
        found = lake.reader.staged(table, staged.run_id)
        assert found
        return replace(staged, snapshot=found.snapshot_id)

    monkeypatch.setattr(catalog_run, "stage_state", stage_wrongly)
    before = changed_shop.snapshot_of_everything()
    result = changed_shop.attempt()
    verdicts = {each.check_name: each.passed for each in result.get_asset_check_evaluations()}
    assert verdicts[expected] is False
    assert not result.success
    assert changed_shop.snapshot_of_everything() == before
    record = changed_shop.subject.control.runs.find(changed_shop.subject.address, result.run_id)
    assert record.status == "failed"
    assert record.error is not None
    assert record.error.startswith("ChecksFailed: ")
    # The stage is kept for a look.
    assert changed_shop.subject.lake.reader.staged(changed_shop.subject.layout.table, result.run_id) is not None


def test_the_marker_verifies_for_itself_when_the_checks_were_not_asked(
    changed_shop: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stage_wrongly(lake: Lake, table: str, merge: StateMerge) -> StagedState:
        staged = stage_state(lake, table, merge)
        WRONG_MERGES["an orphan column"][1](lake, f"lake.{table}.branch_{branch_of(staged.run_id)}")
        found = lake.reader.staged(table, staged.run_id)
        assert found
        return replace(staged, snapshot=found.snapshot_id)

    monkeypatch.setattr(catalog_run, "stage_state", stage_wrongly)
    before = changed_shop.snapshot_of_everything()
    result = changed_shop.attempt(checks=False)
    assert not result.success
    assert "ChecksFailed" in str(result.failure_data_for_node("marker"))
    assert changed_shop.snapshot_of_everything() == before


def test_the_next_good_run_publishes_and_cleans_up_after_the_bad_ones(changed_shop: Catalog) -> None:
    changed_shop.run()
    assert changed_shop.subject.lake.reader.branches(changed_shop.subject.layout.table) == {}
    assert changed_shop.columns_of("updated") == ["a", "c"]
    runs = {key.split("/runs/")[1].split("/")[0] for key in changed_shop.objects() if "/runs/" in key}
    known = {
        r.run_id for r in changed_shop.subject.control.runs.history(changed_shop.subject.address) if r.status == "published"
    }
    assert runs == known
