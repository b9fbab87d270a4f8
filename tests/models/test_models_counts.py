"""What a run says of its rows is what happened to them."""

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
