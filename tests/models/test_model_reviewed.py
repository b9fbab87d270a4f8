"""Faults that a review of the models found, each by what a reader of the table would have seen."""

from typing import Any

from tests.models.harness import ModelLab, incremental

COLUMNS = "id int, at int, v string, x int"


def in_chunks(name: str = "from") -> dict[str, Any]:
    """Chunks of one along `at`."""
    return {"parameters": [{"name": name, "column": "at", "start_value": 1, "end_value": "max(at)", "step": 1}]}


def pairs(lab: ModelLab, *columns: str, name: str = "shop.t") -> list[tuple[Any, ...]]:
    """The published rows as tuples of these columns, in order."""
    return sorted(tuple(row[column] for column in columns) for row in lab.rows(name))


# --- rows twice ------------------------------------------------------------------------------------------------------


def test_a_row_of_the_last_of_many_chunks_that_is_updated_is_there_once(lab: ModelLab) -> None:
    model = {
        "incremental": incremental("merge", "full_incremental_refresh", unique_key="id", filter_column="at"),
        "full_incremental_refresh": in_chunks(),
    }
    rows = [(number, number, "a", number) for number in range(1, 13)]
    lab.source(COLUMNS, *rows)
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    assert lab.run("shop.t", "SELECT id, at, v, x FROM source", **model).rows["chunks"] == 12
    lab.source(COLUMNS, *rows[1:-1], (12, 13, "new", 99), (1, 13, "new", 99))
    result = lab.run("shop.t", "SELECT id, at, v, x FROM source", **model)
    assert (result.action, result.rows) == ("incremental", {"updated": 2})
    expected = [(number, "new" if number in (1, 12) else "a") for number in range(1, 13)]
    assert pairs(lab, "id", "v") == expected
    assert sorted((row["id"], row["v"]) for row in lab.spark.table("lake.shop.t").collect()) == expected
