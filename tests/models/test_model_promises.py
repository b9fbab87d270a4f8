"""What a model promises whatever is changed: policies come first, values are exact, a failed query costs no table."""

from datetime import date, datetime

import pytest

from tests.models.harness import ModelLab, incremental
from tidemark.errors import ConfigError, QueryInvalid, SchemaChangeRefused
from tidemark.models.spec import ModelMetadata

COLUMNS = "id int, at int, v string, x int"


def chunked(step: object, column: str = "at", start: object = 1, end: object = "max(at)") -> dict[str, object]:
    return {"parameters": [{"name": "@from", "column": column, "start_value": start, "end_value": end, "step": step}]}


def test_an_edited_query_reaches_the_policy_before_hashes_are_asked(lab: ModelLab) -> None:
    model = {"incremental": incremental("append", "append_new_columns", filter_column="at")}
    lab.source(COLUMNS, (1, 1, "a", 10))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    lab.source(COLUMNS, (1, 1, "a", 10), (2, 2, "b", 20))
    result = lab.run("shop.t", "SELECT id, at, v, x FROM source", **model)
    assert result.action == "incremental"
    assert [row["x"] for row in lab.rows("shop.t", "id")] == [None, 20]


def test_an_edited_query_with_the_same_columns_is_a_full_load(lab: ModelLab) -> None:
    model = {"incremental": incremental("append", "append_new_columns", filter_column="at")}
    lab.source(COLUMNS, (1, 1, "a", 10))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    result = lab.run("shop.t", "SELECT id, at, upper(v) AS v FROM source", **model)
    assert (result.action, result.reason) == ("full", "the query changed")
    assert [row["v"] for row in lab.rows("shop.t")] == ["A"]
    again = lab.run("shop.t", "select ID, at,\n upper(v) as v from source -- the same", **model)
    assert again.status == "unchanged"


def test_fail_stops_the_model_and_nothing_is_rebuilt(lab: ModelLab) -> None:
    model = {"incremental": incremental("append", "fail", filter_column="at")}
    lab.source(COLUMNS, (1, 1, "a", 10))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    lab.source(COLUMNS, (1, 1, "a", 10), (2, 2, "b", 20))
    before = lab.told("shop.t")
    with pytest.raises(SchemaChangeRefused, match=r"shop\.t: .*new x \(int\).*Nothing was written") as refused:
        lab.run("shop.t", "SELECT id, at, v, x FROM source", **model)
    assert isinstance(refused.value, ValueError)
    assert lab.told("shop.t") == before
    run = lab.last_run("shop.t")
    assert (run.status, run.snapshot) == ("failed", None)
    assert "SchemaChangeRefused" in str(run.error)


def test_the_last_value_is_the_greatest_written_so_that_late_rows_are_not_skipped(lab: ModelLab) -> None:
    model = {"incremental": incremental("append", filter_column="at", lookback=2)}
    lab.source(COLUMNS, (1, 1, "a", 0), (2, 5, "b", 0))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    assert lab.states.get_last_processed_value("shop.t") == 5
    lab.source(COLUMNS, (1, 1, "a", 0), (2, 5, "b", 0), (3, 4, "late", 0), (4, 5, "same tick", 0), (5, 5, "b", 0))
    assert lab.run("shop.t", "SELECT id, at, v FROM source", **model).rows == {"inserted": 3}
    assert [row["id"] for row in lab.rows("shop.t", "id")] == [1, 2, 3, 4, 5]
    assert lab.states.get_last_processed_value("shop.t") == 5


def test_a_row_of_the_look_back_from_before_a_column_came_is_not_added_again(lab: ModelLab) -> None:
    model = {"incremental": incremental("append", "append_new_columns", filter_column="at", lookback=2)}
    lab.source(COLUMNS, (1, 1, "a", 10), (1, 1, "a", 11))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    for _ in range(2):
        assert lab.run("shop.t", "SELECT id, at, v, x FROM source", **model).rows == {}
    lab.source(COLUMNS, (1, 1, "a", 10), (1, 1, "a", 11), (2, 2, "b", None), (3, 2, "c", 30))
    for inserted in ({"inserted": 2}, {}):
        assert lab.run("shop.t", "SELECT id, at, v, x FROM source", **model).rows == inserted
    assert [(row["id"], row["x"]) for row in lab.rows("shop.t", "id")] == [(1, None), (1, None), (2, None), (3, 30)]


@pytest.mark.parametrize("policy", ["full_refresh", "full_incremental_refresh", "recreate_empty"])
def test_a_rebuilding_policy_is_the_whole_run(lab: ModelLab, policy: str) -> None:
    model = {
        "incremental": incremental("append", policy, filter_column="at"),
        "full_incremental_refresh": chunked(1),
    }
    lab.source(COLUMNS, (1, 1, "a", 10), (2, 2, "b", 20))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    result = lab.run("shop.t", "SELECT id, at, v, x FROM source", **model)
    assert (result.action, result.status) == ("rebuild", "published")
    rows = [row["x"] for row in lab.rows("shop.t", "id")]
    assert rows == ([] if policy == "recreate_empty" else [10, 20])
    assert lab.states.get_last_processed_value("shop.t") == (None if policy == "recreate_empty" else 2)
    if policy == "recreate_empty":
        lab.run("shop.t", "SELECT id, at, v, x FROM source", **model)
        assert [row["x"] for row in lab.rows("shop.t", "id")] == [10, 20]


def test_a_query_that_fails_half_way_does_not_cost_the_table(lab: ModelLab) -> None:
    model = {"incremental": incremental("append", "full_refresh", filter_column="at")}
    lab.source(COLUMNS, (1, 1, "a", 1), (2, 2, "b", 0))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    before = lab.told("shop.t")
    with pytest.raises(QueryInvalid, match=r"shop\.t: its query fails, nothing was published"):
        lab.run("shop.t", "SELECT id, at, v, 10 div x AS share FROM source", **model)
    assert lab.told("shop.t") == before
    lab.run("shop.t", "SELECT id, at, v, 10 div nullif(x, 0) AS share FROM source", **model)
    assert [row["share"] for row in lab.rows("shop.t", "id")] == [10, None]


def test_chunks_are_half_open_by_the_calendar_and_the_last_one_is_closed(lab: ModelLab) -> None:
    model = {
        "incremental": incremental("append", "full_incremental_refresh", filter_column="day"),
        "full_incremental_refresh": chunked("1 month", "day", "2024-01-31", "max(day)"),
    }
    days = [date(2024, 1, 31), date(2024, 2, 28), date(2024, 2, 29), date(2024, 3, 30), date(2024, 3, 31), None]
    lab.source("day date, x int", *[(day, number) for number, day in enumerate(days)], (date(2023, 1, 1), 99))
    lab.run("shop.t", "SELECT day FROM source", **model)
    result = lab.run("shop.t", "SELECT day, x FROM source", **model)
    assert [row["x"] for row in lab.rows("shop.t", "x")] == [0, 1, 2, 3, 4]
    assert (result.rows["chunks"], result.rows["outside"]) == (3, 2)
    assert "2 rows lie outside" in result.warnings[-1]
    assert lab.states.get_last_processed_value("shop.t") == date(2024, 3, 31)


@pytest.mark.fast
@pytest.mark.parametrize("step", [0, -1, "0 days", "-1 month", "fortnight", "1 blink", True])
def test_a_step_that_never_advances_is_refused(step: object) -> None:
    with pytest.raises(ConfigError, match=r"full_incremental_refresh\.parameters\[0\]\.step"):
        ModelMetadata.parse({"full_incremental_refresh": chunked(step)})


def test_a_merge_through_chunks_has_every_key_once(lab: ModelLab) -> None:
    model = {
        "incremental": incremental("merge", "full_incremental_refresh", unique_key="id", filter_column="at"),
        "full_incremental_refresh": chunked(1),
    }
    lab.source(COLUMNS, (1, 1, "a", 10), (2, 2, "b", 20))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    lab.source(COLUMNS, (1, 1, "a", 10), (2, 2, "b", 20), (1, 3, "A", 11), (2, 5, "B", 21))
    lab.run("shop.t", "SELECT id, at, v, x FROM source", **model)
    assert [(row["id"], row["v"], row["x"]) for row in lab.rows("shop.t", "id")] == [(1, "A", 11), (2, "B", 21)]


def test_moments_with_and_without_zone_keep_their_value_in_state(lab: ModelLab) -> None:
    for kind in ("timestamp", "timestamp_ntz"):
        model = {"incremental": incremental("append", filter_column="at", lookback="1 hour")}
        sql = f"SELECT id, CAST(at AS {kind}) AS at FROM source"
        lab.source("id int, at string", (1, "2024-03-31 01:30:00.123456"))
        lab.run(f"shop.{kind}", sql, **model)
        last = lab.states.get_last_processed_value(f"shop.{kind}")
        assert isinstance(last, datetime)
        assert last.replace(tzinfo=None).isoformat() == "2024-03-31T01:30:00.123456"
        lab.source(
            "id int, at string", (1, "2024-03-31 01:30:00.123456"), (2, "2024-03-31 00:31:00"), (3, "2024-03-31 00:30:00")
        )
        lab.run(f"shop.{kind}", sql, **model)
        assert [row["id"] for row in lab.rows(f"shop.{kind}", "id")] == [1, 2]
