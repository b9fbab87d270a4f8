"""What a run says of its rows is what happened to them."""

import pytest

from spark_code.models import adapter
from spark_code.models.adapter import PROPERTIES
from tests.models.harness import ModelLab, incremental


def test_rows_that_were_replaced_before_are_not_counted_as_deleted_again(lab: ModelLab) -> None:
    model = {"incremental": incremental("merge", unique_key="id", filter_column="at")}
    lab.source("id int, name string, at int", *((number, "a", 1) for number in range(1, 9)))
    lab.run("shop.orders", "SELECT * FROM source", **model)
    lab.source("id int, name string, at int", (1, "b", 2), (2, "b", 2))
    assert lab.run("shop.orders", "SELECT * FROM source", **model).rows == {"updated": 2}
    lab.source("id int, name string, at int", (3, "c", 3))
    assert lab.run("shop.orders", "SELECT * FROM source", **model).rows == {"updated": 1}
    assert [row["name"] for row in lab.rows("shop.orders", "id")] == ["b", "b", "c", "a", "a", "a", "a", "a"]


@pytest.fixture
def split_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is read by several tasks, as those of a large table are."""
    small = {"write.parquet.row-group-size-bytes": "1", "read.split.target-size": "1", "read.split.open-file-cost": "1"}
    monkeypatch.setattr(adapter, "PROPERTIES", PROPERTIES | small)


@pytest.mark.usefixtures("split_files")
@pytest.mark.parametrize(("strategy", "told"), [("merge", {"updated": 9}), ("delete_insert", {"inserted": 9, "deleted": 9})])
def test_rows_of_a_file_that_several_tasks_read_are_counted_once(lab: ModelLab, strategy: str, told: dict[str, int]) -> None:
    model = {"incremental": incremental(strategy, unique_key="id", filter_column="at")}
    lab.source("id int, at int", *((number, 1) for number in range(900)))
    lab.run("shop.t", "SELECT * FROM source", **model)
    for at in (2, 3, 4):
        lab.source("id int, at int", *((number * 100 + at, at) for number in range(9)))
        assert lab.run("shop.t", "SELECT * FROM source", **model).rows == told
    assert sorted(row["id"] for row in lab.rows("shop.t")) == list(range(900))
    assert sum(row["at"] > 1 for row in lab.spark.table("lake.shop.t").collect()) == 27


@pytest.mark.usefixtures("split_files")
def test_a_place_in_a_file_is_deleted_once(lab: ModelLab) -> None:
    """Each task that reads a part of a file would write all of its earlier deletes once more."""
    model = {"incremental": incremental("merge", unique_key="id", filter_column="at")}
    lab.source("id int, at int", *((number, 1) for number in range(900)))
    lab.run("shop.t", "SELECT * FROM source", **model)
    for at in (2, 3, 4):
        lab.source("id int, at int", *((number * 100 + at, at) for number in range(9)))
        lab.run("shop.t", "SELECT * FROM source", **model)
    places = lab.spark.table("lake.shop.t.position_deletes")
    assert places.count() == places.select("file_path", "pos").distinct().count() == 27


def test_a_full_load_tells_how_many_rows_it_replaced(lab: ModelLab) -> None:
    model = {"incremental": incremental("delete_insert", "append_new_columns", filter_column="at")}
    lab.source("id int, at int", *((number, number) for number in range(1, 9)))
    lab.run("shop.t", "SELECT * FROM source", **model)
    lab.spark.sql("DELETE FROM lake.shop.t WHERE id IN (2, 3)")
    lab.states.reset("shop.t", "lost")
    result = lab.run("shop.t", "SELECT * FROM source", **model)
    assert (result.action, result.rows) == ("full", {"inserted": 8, "deleted": 6})


def test_a_whole_file_that_goes_counts_without_what_was_deleted_before(lab: ModelLab) -> None:
    model = {"incremental": incremental("delete_insert", filter_column="at")}
    lab.source("id int, at int", *((number, 5) for number in range(1, 9)))
    lab.run("shop.t", "SELECT * FROM source", **model)
    lab.spark.sql("DELETE FROM lake.shop.t WHERE id IN (2, 3)")
    assert lab.run("shop.t", "SELECT * FROM source", **model).rows == {"inserted": 8, "deleted": 6}
