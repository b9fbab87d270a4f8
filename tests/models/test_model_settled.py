"""A model is not made again from what it was made from: as long as no table behind it has changed, a run reads none."""

from typing import Any

import pytest

from spark_code.models.plan import planned
from spark_code.models.restore import restore
from spark_code.models.strategies import key_facts as real_key_facts
from spark_code.models.work import SETTLED
from tests.models.harness import ModelLab, incremental
from tidemark.models.spec import ModelMetadata

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
    assert (plan.reason == SETTLED) == (result.reason == SETTLED)
    return result.reason


def change(lab: ModelLab, sql: str) -> None:
    lab.spark.sql(sql)


def test_a_second_run_reads_nothing(fed: ModelLab, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(incoming: Any) -> Any:
        raise AssertionError("rows were read")

    before = fed.told("shop.t")
    monkeypatch.setattr("spark_code.models.strategies.key_facts", never)
    result = fed.run("shop.t", SQL, **MERGE)
    assert (result.status, result.action, result.reason) == ("unchanged", "unchanged", SETTLED)
    assert fed.told("shop.t") == before
    assert fed.last_run("shop.t").status == "unchanged"
    monkeypatch.setattr("spark_code.models.strategies.key_facts", real_key_facts)
    change(fed, "INSERT INTO lake.feeds_in.orders VALUES (3, 3, 'c')")
    assert fed.run("shop.t", SQL, **MERGE).rows == {"inserted": 1, "unchanged": 1}
    assert again(fed) == SETTLED


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO lake.feeds_in.orders VALUES (3, 1, 'late')",
        "DELETE FROM lake.feeds_in.orders WHERE id = 2",
        "ALTER TABLE lake.feeds_in.orders ADD COLUMN w int",
        "CREATE OR REPLACE TABLE lake.feeds_in.orders USING iceberg AS SELECT 1 AS id, 1 AS at, 'a' AS v",
        "UPDATE lake.shop.t SET v = 'by hand' WHERE id = 1",
        "ALTER TABLE lake.shop.t ADD COLUMN by_hand int",
    ],
)
def test_a_change_of_a_source_or_by_hand_makes_it_read_again(fed: ModelLab, statement: str) -> None:
    assert again(fed) == SETTLED
    change(fed, statement)
    assert again(fed) != SETTLED


@pytest.mark.parametrize(
    ("sql", "model"),
    [
        (f"{SQL} WHERE id > 1", MERGE),
        (SQL, MERGE | {"checks": [{"not_null": "v"}]}),
        (SQL, {"incremental": incremental("merge", "sync_all_columns", unique_key="id", filter_column="at")}),
    ],
)
def test_an_edited_model_reads_again(fed: ModelLab, sql: str, model: dict[str, Any]) -> None:
    assert again(fed, sql, **model) != SETTLED


def test_what_is_behind_a_view_counts_and_so_do_its_words(fed: ModelLab) -> None:
    sql = "SELECT id, at, v FROM feeds_in.seen"
    change(fed, "CREATE VIEW lake.feeds_in.seen AS SELECT id, at, v FROM lake.feeds_in.orders WHERE id < 3")
    fed.run("shop.t", sql, **MERGE)
    assert again(fed, sql) == SETTLED
    change(fed, "INSERT INTO lake.feeds_in.orders VALUES (1, 9, 'z')")
    assert again(fed, sql) != SETTLED
    assert again(fed, sql) == SETTLED
    change(fed, "CREATE OR REPLACE VIEW lake.feeds_in.seen AS SELECT id, at, upper(v) AS v FROM lake.feeds_in.orders")
    assert again(fed, sql) != SETTLED


def test_a_view_that_asks_the_clock_or_reads_a_name_of_its_own_is_read_every_time(fed: ModelLab) -> None:
    change(fed, "USE lake.feeds_in")
    for number, words in enumerate(("SELECT id, at, v FROM orders", f"{SQL} WHERE current_date() > date'2020-01-01'")):
        change(fed, f"CREATE VIEW lake.feeds_in.v{number} AS {words}")
        sql = f"SELECT id, at, v FROM feeds_in.v{number}"
        fed.run("shop.t", sql, **MERGE)
        assert again(fed, sql) != SETTLED


def test_rows_of_a_temporary_view_or_of_the_clock_are_read_every_time(fed: ModelLab) -> None:
    fed.source("id int, at int, v string", (5, 5, "e"))
    for sql in ("SELECT id, at, v FROM source", "SELECT id, at, string(current_date()) AS v FROM feeds_in.orders"):
        fed.run("shop.t", sql, **MERGE)
        assert again(fed, sql) != SETTLED


def test_a_state_that_was_moved_by_hand_is_run_from(fed: ModelLab) -> None:
    assert again(fed) == SETTLED
    fed.states.update_processed_value("shop.t", 0, "merge")
    assert fed.run("shop.t", SQL, **MERGE).rows == {"unchanged": 2}


def test_a_table_that_was_emptied_by_policy_is_filled_by_the_next_run(fed: ModelLab) -> None:
    model = {"incremental": incremental("merge", "recreate_empty", unique_key="id", filter_column="at")}
    sql = "SELECT id, at, v, 1 AS w FROM feeds_in.orders"
    assert fed.run("shop.t", sql, **model).rows == {}
    assert fed.rows("shop.t") == []
    assert fed.run("shop.t", sql, **model).rows == {"inserted": 2}


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
