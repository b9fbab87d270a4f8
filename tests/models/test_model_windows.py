"""Windows of time that are made anew: exactly their rows, in one snapshot; the mark stays before what nobody has read."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.models.harness import ModelLab, incremental
from tidemark.errors import ConfigError, QueryInvalid, UsageError
from tidemark.faults import InjectedFault
from tidemark.models.spec import ModelMetadata, Partitions
from tidemark.models.windows import TimeWindow, beginning, window_at

SQL = "SELECT id, CAST(at AS timestamp) AS at, v FROM source"
COLUMNS = "id int, at string, v string"
KEYS: dict[str, dict[str, str]] = {"append": {"unique_key": "id"}, "merge": {"unique_key": "id"}, "delete_insert": {}}


def by_day(strategy: str, policy: str | None = None, **options: Any) -> dict[str, Any]:
    said = {"filter_column": "at", **KEYS[strategy], **options}
    return {"incremental": incremental(strategy, policy, **said), "partitions": {"by": "day", "start": "2026-03-01"}}


def day(first: int, last: int | None = None) -> TimeWindow:
    return TimeWindow(datetime(2026, 3, first, tzinfo=UTC), datetime(2026, 3, (last or first) + 1, tzinfo=UTC))


def at(number: int, time: str = "12:00") -> str:
    return f"2026-03-{number:02} {time}:00"


def found(lab: ModelLab) -> dict[int, str]:
    """Every row by its id: none is there twice."""
    rows = lab.rows("shop.t")
    by_spark = {row["id"]: row["v"] for row in lab.spark.table("lake.shop.t").collect()}
    assert len(by_spark) == len(rows)
    assert by_spark == {row["id"]: row["v"] for row in rows}
    return by_spark


def mark(lab: ModelLab) -> Any:
    return lab.states.get_last_processed_value("shop.t")


@pytest.mark.parametrize("strategy", ["append", "merge", "delete_insert"])
def test_a_window_is_made_anew_by_its_bounds_and_nothing_else_is(lab: ModelLab, strategy: str) -> None:
    model = by_day(strategy)
    lab.source(
        COLUMNS, (1, at(1), "a"), (2, at(2, "00:00"), "b"), (3, at(2), "c"), (4, at(3, "00:00"), "d"), (5, at(3), "e")
    )
    lab.run("shop.t", SQL, **model)
    before, reached = lab.snapshot("shop.t"), mark(lab)
    # In every window a row has changed, one is gone from the second and one has come.
    lab.source(COLUMNS, (1, at(1), "A"), (2, at(2, "00:00"), "B"), (6, at(2, "23:59"), "F"), (4, at(3, "00:00"), "D"))
    result = lab.run("shop.t", SQL, window=day(2), **model)
    assert (result.action, result.reason) == ("incremental", "a window is rebuilt: 2026-03-02 … 2026-03-03")
    told = {"inserted": 1, "updated": 1, "deleted": 1} if strategy == "merge" else {"inserted": 2, "deleted": 2}
    assert result.rows == told
    assert found(lab) == {1: "a", 2: "B", 6: "F", 4: "d", 5: "e"}
    published = lab.platform.lake.reader.published("shop.t")
    assert published is not None
    assert published.parent_snapshot_id == before
    assert mark(lab) == reached
    lab.run("shop.t", SQL, window=day(1, 3), **model)
    assert found(lab) == {1: "A", 2: "B", 6: "F", 4: "D"}


@pytest.mark.parametrize("strategy", ["append", "merge", "delete_insert"])
def test_the_mark_stays_before_a_gap_that_nobody_has_read(lab: ModelLab, strategy: str) -> None:
    model = by_day(strategy)
    lab.source(COLUMNS, (1, at(1), "a"))
    lab.run("shop.t", SQL, **model)
    lab.source(COLUMNS, (1, at(1), "a"), (2, at(2), "b"), (3, at(3), "c"))
    lab.run("shop.t", SQL, window=day(3), **model)
    assert found(lab) == {1: "a", 3: "c"}
    assert mark(lab) == datetime(2026, 3, 1, 12, tzinfo=UTC)
    lab.run("shop.t", SQL, window=day(1, 2), **model)
    assert mark(lab) == datetime(2026, 3, 2, 12, tzinfo=UTC)
    lab.run("shop.t", SQL, **model)
    assert found(lab) == {1: "a", 2: "b", 3: "c"}
    lab.source(COLUMNS, *((number, at(number), "a") for number in (1, 2, 3, 4)))
    lab.run("shop.t", SQL, **model)
    assert (sorted(found(lab)), mark(lab)) == ([1, 2, 3, 4], datetime(2026, 3, 4, 12, tzinfo=UTC))


@pytest.mark.parametrize("strategy", ["append", "merge", "delete_insert"])
def test_a_first_run_may_be_of_windows_and_the_next_without_one_brings_the_rest(lab: ModelLab, strategy: str) -> None:
    model = by_day(strategy)
    lab.source(COLUMNS, *((number, at(number), "a") for number in (1, 2, 3, 4)))
    first = lab.run("shop.t", SQL, window=day(2), **model)
    assert (first.action, first.reason) == ("full", "no table: only the window 2026-03-02 … 2026-03-03")
    assert (found(lab), mark(lab)) == ({2: "a"}, None)
    second = lab.run("shop.t", SQL, window=day(3), **model)
    assert (second.action, found(lab), mark(lab)) == ("incremental", {2: "a", 3: "a"}, None)
    lab.run("shop.t", SQL, **model)
    assert sorted(found(lab)) == [1, 2, 3, 4]
    assert mark(lab) == datetime(2026, 3, 4, 12, tzinfo=UTC)


def test_a_window_from_where_the_model_begins_moves_the_mark(lab: ModelLab) -> None:
    model = by_day("merge", start_value="2026-03-02")
    lab.source(COLUMNS, *((number, at(number), "a") for number in (1, 2, 3, 4)))
    lab.run("shop.t", SQL, window=day(2, 3), **model)
    assert mark(lab) == datetime(2026, 3, 3, 12, tzinfo=UTC)
    assert lab.run("shop.t", SQL, **model).rows == {"inserted": 1, "unchanged": 1}


def test_the_newest_row_of_a_log_stays_when_an_older_window_is_made_anew(lab: ModelLab) -> None:
    """The source tells every state of a key, and a run without a window takes the last."""
    model = by_day("merge")
    lab.source(COLUMNS, (1, at(1), "first"), (2, at(1), "a"))
    lab.run("shop.t", SQL, **model)
    lab.source(COLUMNS, (1, at(1), "first"), (1, at(2), "second"), (2, at(1), "A"), (None, at(1), "n"))
    lab.run("shop.t", SQL, window=day(2), **model)
    assert found(lab) == {1: "second", 2: "a"}
    lab.run("shop.t", SQL, window=day(1), **model)
    assert found(lab) == {1: "second", 2: "A", None: "n"}
    assert lab.run("shop.t", SQL, window=day(1), **model).status == "unchanged"


def test_an_edited_query_makes_all_windows_anew(lab: ModelLab) -> None:
    model = by_day("delete_insert")
    lab.source(COLUMNS, (1, at(1), "a"), (2, at(2), "b"))
    lab.run("shop.t", SQL, **model)
    result = lab.run("shop.t", SQL.replace("v FROM", "upper(v) AS v FROM"), window=day(2), **model)
    assert (result.action, result.reason) == ("full", "the query changed: so all windows are rebuilt")
    assert found(lab) == {1: "A", 2: "B"}


def test_a_new_column_comes_with_a_window(lab: ModelLab) -> None:
    model = by_day("delete_insert", "append_new_columns")
    lab.source(COLUMNS, (1, at(1), "a"), (2, at(2), "b"))
    lab.run("shop.t", SQL, **model)
    lab.run("shop.t", SQL.replace("v FROM", "v, id * 10 AS x FROM"), window=day(2), **model)
    assert {row["id"]: row["x"] for row in lab.rows("shop.t")} == {1: None, 2: 20}


def test_a_window_run_that_fails_half_way_leaves_everything_as_it_was(
    lab: ModelLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = by_day("delete_insert")
    lab.source(COLUMNS, (1, at(1), "a"), (2, at(2), "b"))
    lab.run("shop.t", SQL, **model)
    before = lab.told("shop.t")
    monkeypatch.setenv("TIDEMARK_FAULT", "models.between_delete_and_insert:raise")
    with pytest.raises(InjectedFault):
        lab.run("shop.t", SQL, window=day(1), **model)
    assert lab.told("shop.t") == before
    assert lab.platform.lake.reader.branches("shop.t") == {}


def test_windows_go_with_dates_and_with_moments_without_a_zone(lab: ModelLab) -> None:
    for name, kind in (("shop.dates", "date"), ("shop.plain", "timestamp_ntz")):
        sql = SQL.replace("timestamp", kind)
        lab.source(COLUMNS, (1, at(1), "a"), (2, at(2), "b"), (3, at(3), "c"))
        lab.run(name, sql, **by_day("delete_insert"))
        lab.source(COLUMNS, (1, at(1), "A"), (2, at(2), "B"), (3, at(3), "C"))
        lab.run(name, sql, window=day(2), **by_day("delete_insert"))
        assert [row["v"] for row in lab.rows(name, "id")] == ["a", "B", "c"]


def test_what_is_no_window_of_the_model_is_refused_before_anything_is_written(lab: ModelLab) -> None:
    lab.source(COLUMNS, (1, at(1), "a"))
    model = by_day("delete_insert")
    with pytest.raises(QueryInvalid, match=r"filter_column names at \(string\).*date or a timestamp"):
        lab.run("shop.t", "SELECT id, at, v FROM source", window=day(1), **model)
    hours = model | {"partitions": {"by": "hour", "start": "2026-03-01"}}
    hour = window_at("hour", "2026-03-01-01:00")
    with pytest.raises(QueryInvalid, match="at is a date, and has no hours"):
        lab.run("shop.t", SQL.replace("timestamp", "date"), window=hour, **hours)
    with pytest.raises(UsageError, match=r"shop\.t: it has no partitions"):
        lab.run("shop.t", SQL, window=day(1), incremental=model["incremental"])
    assert lab.platform.lake.reader.table("shop.t") is None


# --- what may be said ------------------------------------------------------------------------------------------------


@pytest.mark.fast
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"incremental": incremental("append", filter_column="at")}, "append never changes rows"),
        ({"incremental": incremental("append", filter_column="at", unique_key="id", deduplicate=False)}, "append never"),
        ({"incremental": incremental("merge", unique_key="id")}, "windows are of a filter_column"),
        ({"incremental": incremental("delete_insert", filter_column="at", where_condition="x")}, "where_condition names"),
        ({"materialization": "table"}, "only an incremental model has windows"),
    ],
)
def test_a_model_whose_windows_cannot_be_made_anew_is_refused(said: dict[str, Any], words: str) -> None:
    given = {"materialization": "incremental", "partitions": {"by": "day", "start": "2026-03-01"}, **said}
    with pytest.raises(ConfigError, match=words):
        ModelMetadata.parse(given)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("by", "start", "words"),
    [
        ("month", "2026-03-02", "start must be the first of a month"),
        ("week", "2026-03-01", "start must be a Monday"),
        ("hour", "2026-03-01T00:30:00", "start must be a full hour"),
        ("day", "soon", "must be a date or a moment"),
        ("year", "2026-01-01", "by"),
    ],
)
def test_partitions_that_begin_nowhere_are_refused(by: str, start: str, words: str) -> None:
    given = {"materialization": "incremental", "incremental": incremental("delete_insert", filter_column="at")}
    with pytest.raises(ConfigError, match=words):
        ModelMetadata.parse({**given, "partitions": {"by": by, "start": start}})


@pytest.mark.fast
def test_keys_of_partitions_are_read_with_their_ends() -> None:
    weeks = Partitions.model_validate({"by": "week", "start": "2026-03-02"})
    assert weeks.range_of("2026-03-02..2026-03-16") == ("2026-03-02", "2026-03-16")
    assert weeks.range_of("2026-03-09") == ("2026-03-09", "2026-03-09")
    for text, words in {
        "2026-03-10": "no partition by week begins at 2026-03-10; 2026-03-09 does",
        "2026-02-23": "the first partition is 2026-03-02",
        "2026-03-16..2026-03-09": "2026-03-16 is behind 2026-03-09",
        "yesterday": "'yesterday' is no partition by week. Write it as 2026-03-02",
    }.items():
        with pytest.raises(ValueError, match=words):
            weeks.range_of(text)
    assert weeks.key_at(datetime(2026, 3, 12, 5, tzinfo=UTC)) == "2026-03-09"
    assert weeks.key_at(datetime(2026, 3, 1, tzinfo=UTC)) is None
    assert beginning("month", datetime(2026, 3, 12, 5, tzinfo=UTC)) == datetime(2026, 3, 1, tzinfo=UTC)
    assert window_at("month", "2026-02-01").end == datetime(2026, 3, 1, tzinfo=UTC)
    assert window_at("hour", "2026-03-01-23:00").end == datetime(2026, 3, 2, tzinfo=UTC)
