"""Columns that a policy keeps though the query no longer has them: also a full load keeps what it can, and says the rest."""

from typing import Any

import pytest

from spark_code.models.plan import planned
from spark_code.models.restore import restore
from tests.models.harness import ModelLab, incremental
from tidemark.errors import NotRestorable
from tidemark.models.spec import ModelMetadata

COLUMNS = "id int, at int, v string, w int"
ROWS = [(1, 1, "a", 10), (2, 2, "b", 20), (None, 3, "c", 30)]


def before(lab: ModelLab, model: dict[str, Any]) -> None:
    """A table with a column that the query has no more: the policy has kept it once."""
    lab.source(COLUMNS, *ROWS)
    lab.run("shop.t", "SELECT id, at, v, w FROM source", **model)
    assert lab.run("shop.t", "SELECT id, at, v FROM source", **model).action in ("incremental", "unchanged")


def kept(lab: ModelLab) -> dict[int, Any]:
    return {row["id"]: row["w"] for row in lab.rows("shop.t")}


@pytest.mark.parametrize(
    ("strategy", "why", "policy"),
    [
        ("merge", "the query changed", "ignore"),
        ("merge", "no state", "append_new_columns"),
        ("append", "the query changed", "append_new_columns"),
        ("append", "no state", "ignore"),
    ],
)
def test_a_full_load_keeps_the_values_of_rows_whose_key_is_still_there(
    lab: ModelLab, strategy: str, why: str, policy: str
) -> None:
    model = {"incremental": incremental(strategy, policy, unique_key="id", filter_column="at")}
    before(lab, model)
    lab.source(COLUMNS, *ROWS[1:], (4, 4, "d", 40))
    if why == "no state":
        lab.states.reset("shop.t", "lost")
    result = lab.run("shop.t", "SELECT id, at, upper(v) AS v FROM source", **model)
    assert (result.action, result.reason) == ("full", why)
    assert kept(lab) == {2: 20, None: 30, 4: None}
    assert sorted(row["v"] for row in lab.rows("shop.t")) == ["B", "C", "D"]
    assert result.rows == {"inserted": 3, "deleted": 3}


@pytest.mark.parametrize(("strategy", "keys"), [("append", {}), ("delete_insert", {"unique_key": "id"})])
def test_a_full_load_that_cannot_keep_values_says_how_many_and_where_they_are(
    lab: ModelLab, strategy: str, keys: dict[str, str]
) -> None:
    model = {"incremental": incremental(strategy, "ignore", filter_column="at", **keys)}
    lab.source(COLUMNS, *ROWS)
    lab.run("shop.t", "SELECT id, at, v, w FROM source", **model)
    had = lab.snapshot("shop.t")
    lab.states.reset("shop.t", "lost")
    metadata = ModelMetadata.parse({"materialization": "incremental", **model})
    assert "values of w" in " ".join(planned(lab.handler, "shop.t", "SELECT id, at, v FROM source", metadata).warnings)
    result = lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    assert kept(lab) == {1: None, 2: None, None: None}
    assert f"3 values of w are not in the table any more: snapshot {had} has them" in " ".join(result.warnings)
    lab.run("shop.t", "SELECT id, at, upper(v) AS v FROM source", **model)
    lab.maintain("shop.t", metadata)
    assert sorted(row["w"] for row in lab.platform.lake.table("shop.t", had).collect()) == [10, 20, 30]
    if keys:
        restore(lab.handler, "shop.t", "w", metadata)
        assert kept(lab) == {1: 10, 2: 20, None: 30}
    else:
        with pytest.raises(NotRestorable, match=f"VERSION AS OF {had}"):
            restore(lab.handler, "shop.t", "w", metadata)


@pytest.mark.parametrize(
    ("policy", "first", "then"),
    [
        ("ignore", "id, at, v", "id, at, v, w"),
        ("append_new_columns", "id, at, v, w", "id, at, v"),
        ("ignore", "*", "id, at, v"),
    ],
)
def test_an_edited_query_is_noticed_where_columns_have_differed_before(
    lab: ModelLab, policy: str, first: str, then: str
) -> None:
    model = {"incremental": incremental("merge", policy, unique_key="id", filter_column="at")}
    lab.source(COLUMNS, ROWS[0])
    lab.run("shop.t", f"SELECT {first} FROM source", **model)
    lab.source(COLUMNS, *ROWS)
    assert lab.run("shop.t", f"SELECT {then} FROM source", **model).action == "incremental"
    assert lab.run("shop.t", f"SELECT {then} FROM source", **model).status == "unchanged"
    edited = lab.run("shop.t", f"SELECT {then.replace('v', 'upper(v) AS v')} FROM source", **model)
    assert (edited.action, edited.reason) == ("full", "the query changed")
    assert sorted(row["v"] for row in lab.rows("shop.t")) == ["A", "B", "C"]
    assert lab.run("shop.t", f"SELECT {then.replace('v', 'upper(v) AS v')} FROM source", **model).status == "unchanged"


def test_a_query_that_loses_one_more_column_is_still_what_the_policy_is_for(lab: ModelLab) -> None:
    model = {"incremental": incremental("merge", "ignore", unique_key="id", filter_column="at")}
    before(lab, model)
    result = lab.run("shop.t", "SELECT id, at FROM source", **model)
    assert (result.action, result.status) == ("unchanged", "unchanged")


def test_rows_that_are_put_in_place_of_others_lose_a_kept_columns_value_with_a_warning(lab: ModelLab) -> None:
    model = {"incremental": incremental("delete_insert", "ignore", unique_key="id", filter_column="at")}
    lab.source(COLUMNS, *ROWS)
    lab.run("shop.t", "SELECT id, at, v, w FROM source", **model)
    result = lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    assert kept(lab) == {1: 10, 2: 20, None: None}
    assert "w stays, but rows that delete_insert puts in place of others lose their value" in " ".join(result.warnings)
