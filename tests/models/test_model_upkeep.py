"""Upkeep of a model's table: fewer files and snapshots, the same rows, and dropped columns can still be had."""

from spark_code.models.restore import restore
from tests.models.harness import ModelLab, incremental
from tidemark.models.spec import ModelMetadata

COLUMNS = "id int, at int, v string"


def test_upkeep_keeps_rows_and_what_dropped_columns_are_restored_from(lab: ModelLab) -> None:
    model = {"incremental": incremental("merge", "sync_all_columns", unique_key="id", filter_column="at")}
    metadata = ModelMetadata.parse({"materialization": "incremental", **model})
    for at in (1, 2):
        lab.source(COLUMNS, (1, at, f"a{at}"), (at + 1, at, "b"))
        lab.run("shop.t", "SELECT * FROM source", **model)
    lab.run("shop.t", "SELECT id, at FROM source", **model)
    before, columns = lab.rows("shop.t"), lab.columns("shop.t")
    done = lab.maintain("shop.t", metadata)
    assert done["files rewritten"] >= 2
    assert done["snapshots removed"] >= 1
    assert (lab.rows("shop.t"), lab.columns("shop.t")) == (before, columns)
    restore(lab.handler, "shop.t", "v", metadata)
    assert {row["id"]: row["v"] for row in lab.rows("shop.t")} == {1: "a2", 2: "b", 3: "b"}
    lab.source(COLUMNS, (1, 5, "last"))
    last = lab.run("shop.t", "SELECT * FROM source", **model)
    assert (last.action, last.reason) == ("full", "the query changed")
    assert {row["id"]: row["v"] for row in lab.rows("shop.t")} == {1: "last"}


def test_files_that_a_dropped_column_without_a_key_is_in_are_left_alone(lab: ModelLab) -> None:
    model = {"incremental": incremental("append", "sync_all_columns", filter_column="at")}
    metadata = ModelMetadata.parse({"materialization": "incremental", **model})
    lab.source(COLUMNS, (1, 1, "a"))
    lab.run("shop.t", "SELECT * FROM source", **model)
    lab.source(COLUMNS, (1, 1, "a"), (2, 2, "b"))
    lab.run("shop.t", "SELECT id, at FROM source", **model)
    assert "files rewritten" not in lab.maintain("shop.t", metadata)
    restore(lab.handler, "shop.t", "v", metadata)
    assert {row["id"]: row["v"] for row in lab.rows("shop.t")} == {1: "a", 2: None}
