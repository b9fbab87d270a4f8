"""A model is not made again from what it was made from: as long as no table behind it has changed, a run reads none."""

from dataclasses import replace
from typing import Any

import pytest

from resources.platform import share_platform
from spark_code.models.plan import planned
from spark_code.models.restore import backfill, restore
from spark_code.models.strategies import key_facts as real_key_facts
from tests.models.harness import ModelLab, incremental
from tidemark.errors import QueryInvalid
from tidemark.models.spec import ModelMetadata
from tidemark.models.state import ModelStateManager
from tidemark.runs import Reason

MERGE = {"incremental": incremental("merge", "append_new_columns", unique_key="id", filter_column="at")}
SQL = "SELECT id, at, v FROM feeds_in.orders"


@pytest.fixture
def fed(lab: ModelLab) -> ModelLab:
    """A table of the lake, and a model that has read it."""
    lab.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.feeds_in")
    lab.spark.sql("CREATE TABLE lake.feeds_in.orders (id int, at int, v string) USING iceberg")
    lab.spark.sql("INSERT INTO lake.feeds_in.orders VALUES (1, 1, 'a'), (2, 2, 'b')")
    lab.run("shop.t", SQL, **MERGE)
    return lab


def again(lab: ModelLab, sql: str = SQL, **model: Any) -> str:
    """Why a second run did what it did; a plan says the same before."""
    model = model or MERGE
    plan = planned(lab.handler, "shop.t", sql, ModelMetadata.parse({"materialization": "incremental", **model}))
    result = lab.run("shop.t", sql, **model)
    assert (plan.reason == Reason.NOTHING_CHANGED) == (result.reason == Reason.NOTHING_CHANGED)
    return result.reason


def change(lab: ModelLab, sql: str) -> None:
    for statement in sql.split("; "):
        lab.spark.sql(statement)


def test_a_second_run_reads_nothing(fed: ModelLab, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(incoming: Any) -> Any:
        raise AssertionError("rows were read")

    before = fed.told("shop.t")
    monkeypatch.setattr("spark_code.models.strategies.key_facts", never)
    result = fed.run("shop.t", SQL, **MERGE)
    assert (result.status, result.action, result.reason) == ("unchanged", "unchanged", Reason.NOTHING_CHANGED)
    assert fed.told("shop.t") == before
    assert fed.last_run("shop.t").status == "unchanged"
    monkeypatch.setattr("spark_code.models.strategies.key_facts", real_key_facts)
    change(fed, "INSERT INTO lake.feeds_in.orders VALUES (3, 3, 'c')")
    assert fed.run("shop.t", SQL, **MERGE).rows == {"inserted": 1, "unchanged": 1}
    assert again(fed) == Reason.NOTHING_CHANGED


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO lake.feeds_in.orders VALUES (3, 1, 'late')",
        "DELETE FROM lake.feeds_in.orders WHERE id = 2",
        "ALTER TABLE lake.feeds_in.orders ADD COLUMN w int",
        "CREATE OR REPLACE TABLE lake.feeds_in.orders USING iceberg AS SELECT 1 AS id, 1 AS at, 'a' AS v",
        "UPDATE lake.shop.t SET v = 'by hand' WHERE id = 1",
        "ALTER TABLE lake.shop.t ADD COLUMN by_hand int",
        "ALTER TABLE lake.shop.t DROP COLUMN v; ALTER TABLE lake.shop.t ADD COLUMN v string",
    ],
)
def test_a_change_of_a_source_or_by_hand_makes_it_read_again(fed: ModelLab, statement: str) -> None:
    assert again(fed) == Reason.NOTHING_CHANGED
    change(fed, statement)
    assert again(fed) != Reason.NOTHING_CHANGED


@pytest.mark.parametrize(
    ("sql", "model"),
    [
        (f"{SQL} WHERE id > 1", MERGE),
        ("SELECT id, at, V FROM feeds_in.orders", MERGE),
        (SQL, MERGE | {"checks": [{"not_null": "v"}]}),
        (SQL, {"incremental": incremental("merge", "sync_all_columns", unique_key="id", filter_column="at")}),
    ],
)
def test_an_edited_model_reads_again(fed: ModelLab, sql: str, model: dict[str, Any]) -> None:
    assert again(fed, sql, **model) != Reason.NOTHING_CHANGED


def test_what_is_behind_a_view_counts_and_so_do_its_words(fed: ModelLab) -> None:
    sql = "SELECT id, at, v FROM feeds_in.seen"
    change(fed, "CREATE VIEW lake.feeds_in.seen AS SELECT id, at, v FROM lake.feeds_in.orders WHERE id < 3")
    fed.run("shop.t", sql, **MERGE)
    assert again(fed, sql) == Reason.NOTHING_CHANGED
    change(fed, "INSERT INTO lake.feeds_in.orders VALUES (1, 9, 'z')")
    assert again(fed, sql) != Reason.NOTHING_CHANGED
    assert again(fed, sql) == Reason.NOTHING_CHANGED
    change(fed, "CREATE OR REPLACE VIEW lake.feeds_in.seen AS SELECT id, at, upper(v) AS v FROM lake.feeds_in.orders")
    assert again(fed, sql) != Reason.NOTHING_CHANGED


def test_the_names_that_a_view_gives_its_columns_are_words_of_it(fed: ModelLab) -> None:
    sql = "SELECT id, at, v FROM feeds_in.named"
    for names in ("id, at, v", "at, id, v"):
        change(fed, f"CREATE OR REPLACE VIEW lake.feeds_in.named ({names}) AS SELECT id, at, v FROM lake.feeds_in.orders")
        assert again(fed, sql) != Reason.NOTHING_CHANGED
    assert again(fed, sql) == Reason.NOTHING_CHANGED


@pytest.mark.parametrize(
    "sql",
    [
        f"WITH orders AS ({SQL}) SELECT o.id, o.at, more.v FROM orders AS o JOIN feeds_in.more AS more USING (id)",
        "WITH more AS (SELECT * FROM feeds_in.orders) SELECT id, at, v FROM feeds_in.more JOIN more USING (id, at, v)",
        f"{SQL} AS o WHERE EXISTS (SELECT 1 FROM feeds_in.more AS m WHERE m.id = o.id)",
    ],
)
def test_a_table_counts_wherever_the_query_reads_it(fed: ModelLab, sql: str) -> None:
    change(fed, "CREATE TABLE lake.feeds_in.more USING iceberg AS SELECT * FROM lake.feeds_in.orders")
    fed.run("shop.t", sql, **MERGE)
    assert again(fed, sql) == Reason.NOTHING_CHANGED
    change(fed, "INSERT INTO lake.feeds_in.more VALUES (9, 9, 'i')")
    assert again(fed, sql) != Reason.NOTHING_CHANGED


def test_a_view_that_asks_the_clock_or_reads_a_name_of_its_own_is_read_every_time(fed: ModelLab) -> None:
    change(fed, "USE lake.feeds_in")
    for number, words in enumerate(("SELECT id, at, v FROM orders", f"{SQL} WHERE current_date() > date'2020-01-01'")):
        change(fed, f"CREATE VIEW lake.feeds_in.v{number} AS {words}")
        sql = f"SELECT id, at, v FROM feeds_in.v{number}"
        fed.run("shop.t", sql, **MERGE)
        assert again(fed, sql) != Reason.NOTHING_CHANGED


def test_rows_of_a_temporary_view_or_of_the_clock_are_read_every_time(fed: ModelLab) -> None:
    fed.source("id int, at int, v string", (5, 5, "e"))
    for sql in ("SELECT id, at, v FROM source", "SELECT id, at, string(current_date()) AS v FROM feeds_in.orders"):
        fed.run("shop.t", sql, **MERGE)
        assert again(fed, sql) != Reason.NOTHING_CHANGED


def test_a_state_that_was_moved_by_hand_is_run_from(fed: ModelLab) -> None:
    assert again(fed) == Reason.NOTHING_CHANGED
    fed.states.update_processed_value("shop.t", 0, "merge")
    assert fed.run("shop.t", SQL, **MERGE).rows == {"unchanged": 2}


def test_a_table_that_was_emptied_by_policy_is_filled_by_the_next_run(fed: ModelLab) -> None:
    model = {"incremental": incremental("merge", "recreate_empty", unique_key="id", filter_column="at")}
    sql = "SELECT id, at, v, 1 AS w FROM feeds_in.orders"
    assert fed.run("shop.t", sql, **model).rows == {}
    assert fed.rows("shop.t") == []
    assert fed.run("shop.t", sql, **model).rows == {"inserted": 2}


def test_rows_behind_the_end_of_a_refresh_are_brought_by_the_next_run(fed: ModelLab) -> None:
    model = {
        "incremental": incremental("merge", "full_incremental_refresh", unique_key="id", filter_column="at"),
        "full_incremental_refresh": {
            "parameters": [{"name": "from_at", "column": "at", "start_value": 1, "end_value": 1, "step": 1}]
        },
    }
    sql = "SELECT id, at, v, 1 AS w FROM feeds_in.orders WHERE at >= @from_at"
    assert fed.run("shop.t", sql, **model).action == "rebuild"
    assert [row["id"] for row in fed.rows("shop.t")] == [1]
    fed.run("shop.t", sql, **model)
    assert [row["id"] for row in fed.rows("shop.t", by="id")] == [1, 2]


def test_what_somebody_did_after_a_killed_run_is_looked_at(fed: ModelLab, monkeypatch: pytest.MonkeyPatch) -> None:
    change(fed, "INSERT INTO lake.feeds_in.orders VALUES (3, 3, 'c')")

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ModelStateManager, "move", killed)
        with pytest.raises(KeyboardInterrupt):
            fed.run("shop.t", SQL, **MERGE)
    change(fed, "DELETE FROM lake.shop.t WHERE id = 3")
    assert fed.run("shop.t", SQL, **MERGE).reason != Reason.NOTHING_CHANGED
    assert [row["id"] for row in fed.rows("shop.t", by="id")] == [1, 2, 3]


def test_after_upkeep_and_one_more_look_nothing_is_read_again(fed: ModelLab) -> None:
    change(fed, "CALL lake.system.rewrite_data_files(table => 'shop.t', options => map('rewrite-all', 'true'))")
    assert again(fed) != Reason.NOTHING_CHANGED
    assert again(fed) == Reason.NOTHING_CHANGED


def test_a_backfill_from_a_source_that_went_back_is_looked_at(fed: ModelLab) -> None:
    before = fed.platform.lake.reader.published("feeds_in.orders")
    assert before
    change(fed, "INSERT OVERWRITE lake.feeds_in.orders VALUES (1, 1, 'A'), (2, 2, 'B')")
    metadata = ModelMetadata.parse({"materialization": "incremental", **MERGE})
    assert backfill(fed.handler, "shop.t", SQL, metadata, ["v"]).status == "published"
    back = f"CALL lake.system.set_current_snapshot(table => 'feeds_in.orders', snapshot_id => {before.snapshot_id})"
    fed.spark.sql(back).collect()
    assert again(fed) != Reason.NOTHING_CHANGED


def test_a_name_without_a_schema_is_told_as_ever(fed: ModelLab) -> None:
    with pytest.raises(QueryInvalid, match="orders"):
        fed.run("shop.t", "SELECT id, at, v FROM lake.orders", **MERGE)


def test_a_look_back_ends_where_the_model_begins(fed: ModelLab) -> None:
    model = {"incremental": incremental("merge", unique_key="id", filter_column="at", start_value=2, lookback=5)}
    for _ in range(2):
        fed.run("shop.late", SQL, **model)
        change(fed, "INSERT INTO lake.feeds_in.orders VALUES (4, 4, 'd')")
    assert [row["id"] for row in fed.rows("shop.late", by="id")] == [2, 4]


def test_a_restored_column_is_looked_at_by_the_next_run(fed: ModelLab) -> None:
    model = {"incremental": incremental("merge", "sync_all_columns", unique_key="id", filter_column="at")}
    sql = "SELECT id, at FROM feeds_in.orders"
    fed.run("shop.t", sql, **model)
    restore(fed.handler, "shop.t", "v", ModelMetadata.parse({"materialization": "incremental", **model}))
    assert "v" in fed.columns("shop.t")
    fed.run("shop.t", sql, **model)
    assert "v" not in fed.columns("shop.t")


def test_rows_that_are_only_added_are_added_by_every_run(fed: ModelLab) -> None:
    model = {"incremental": {"strategy": "append"}}
    for rows in (2, 4):
        fed.run("shop.log", SQL, **model)
        assert len(fed.rows("shop.log")) == rows


def test_another_setting_of_spark_may_mean_other_rows(fed: ModelLab) -> None:
    assert again(fed) == Reason.NOTHING_CHANGED
    config = fed.platform.config
    spark = config.spark.model_copy(update={"config": config.spark.config | {"spark.sql.ansi.enabled": "false"}})
    fed.platform = share_platform(replace(fed.platform, config=config.model_copy(update={"spark": spark})))
    assert again(fed) != Reason.NOTHING_CHANGED
    assert again(fed) == Reason.NOTHING_CHANGED


def test_a_query_does_not_see_the_environment_and_one_that_asks_for_it_is_read_every_time(fed: ModelLab) -> None:
    asking = "SELECT id, at, '${env:PATH}' AS v FROM feeds_in.orders"
    fed.run("shop.t", asking, full=True, **MERGE)
    assert {row["v"] for row in fed.rows("shop.t")} == {"${env:PATH}"}
    assert again(fed, asking) != Reason.NOTHING_CHANGED
