"""A run that fails leaves nothing of itself: not a column, not a type, not a value that nobody has checked."""

import pytest

from spark_code.models.restore import restore
from tests.models.harness import ModelLab, incremental
from tidemark.errors import ChecksFailed
from tidemark.models.spec import ModelMetadata

COLUMNS = "id int, at int, n bigint, v string"
NEVER = {"checks": [{"accepted_values": {"column": "id", "values": [0]}}]}


@pytest.mark.parametrize("then", ["id, at, n", "id, at, n, v"])
@pytest.mark.parametrize("strategy", ["append", "merge", "delete_insert"])
def test_a_failed_run_leaves_columns_and_types_as_they_were(lab: ModelLab, strategy: str, then: str) -> None:
    keys = {} if strategy == "append" else {"unique_key": "id"}
    model = {"incremental": incremental(strategy, "append_new_columns", filter_column="at", **keys)}
    lab.source(COLUMNS, (1, 1, 10, "a"))
    lab.run("shop.t", "SELECT id, at, CAST(n AS int) AS n FROM source", **model)
    lab.source(COLUMNS, (1, 2, 11, "a"), (2, 2, 20, "b"))
    before = lab.told("shop.t")
    with pytest.raises(ChecksFailed):
        lab.run("shop.t", f"SELECT {then} FROM source", **model, **NEVER)
    assert lab.told("shop.t") == before
    reader = lab.platform.lake.reader
    assert reader.branches("shop.t") == {}
    assert reader.shadows("shop.t") == []
    done = lab.run("shop.t", f"SELECT {then} FROM source", **model)
    assert done.status == "published"
    found = {(row["id"], row["n"], row.get("v")) for row in lab.rows("shop.t")}
    v = then.endswith("v")
    new = {(1, 11, "a" if v else None), (2, 20, "b" if v else None)}
    assert found == new | ({(1, 10, None)} if strategy == "append" else set())
    assert {(row["id"], row["n"]) for row in lab.spark.table("lake.shop.t").collect()} == {each[:2] for each in found}


def test_a_column_is_restored_only_if_its_old_values_pass_the_checks(lab: ModelLab) -> None:
    model = {"incremental": incremental("merge", "sync_all_columns", unique_key="id", filter_column="at")}
    lab.source(COLUMNS, (1, 1, 10, "a"), (2, 1, 20, "b"))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    for at in (2, 3):  # the row is rewritten with its value first, and without it once the column is gone
        lab.source(COLUMNS, (1, at, 10, "a"))
        lab.run("shop.t", "SELECT id, at FROM source", **model)
    before = lab.told("shop.t")
    for accepted in ("a", "b"):
        strict = {"checks": [{"accepted_values": {"column": "v", "values": [accepted]}}]}
        with pytest.raises(ChecksFailed, match="v: 1 values that are not accepted"):
            restore(lab.handler, "shop.t", "v", ModelMetadata.parse({"materialization": "incremental", **model, **strict}))
        assert lab.told("shop.t") == before
    well = {"checks": [{"accepted_values": {"column": "v", "values": ["a", "b"]}}]}
    metadata = ModelMetadata.parse({"materialization": "incremental", **model, **well})
    result = restore(lab.handler, "shop.t", "v", metadata)
    assert [check.passed for check in result.checks] == [True]
    assert {row["id"]: row["v"] for row in lab.rows("shop.t")} == {1: "a", 2: "b"}
    assert {row["id"]: row["v"] for row in lab.spark.table("lake.shop.t").collect()} == {1: "a", 2: "b"}
    lab.source(COLUMNS, (1, 4, 10, "A"), (2, 4, 20, "B"))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    assert {row["id"]: row["v"] for row in lab.rows("shop.t")} == {1: "A", 2: "B"}
