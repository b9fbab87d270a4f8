"""Edges of models: chunks, types of keys, missing values, rollbacks by hand, each by what a reader of the table sees."""

from functools import partial
from typing import Any

import pytest

from spark_code.models.checks import failures_at
from spark_code.models.restore import backfill
from tests.models.harness import ModelLab, incremental
from tidemark.errors import ChecksFailed, ConfigError, ValueMisfit
from tidemark.faults import InjectedFault
from tidemark.models.going_back import roll_back_model
from tidemark.models.spec import ModelMetadata
from tidemark.models.subject import ModelSubject

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


@pytest.mark.parametrize("strategy", ["merge", "delete_insert"])
def test_keys_that_come_in_another_type_than_the_tables_are_found_there(lab: ModelLab, strategy: str) -> None:
    model = {"incremental": incremental(strategy, "ignore", unique_key="id", filter_column="at")}
    lab.source(COLUMNS, (9, 1, "a", 1), (10, 1, "b", 2))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    lab.source(COLUMNS, (9, 2, "A", 1), (10, 2, "B", 2))
    lab.run("shop.t", "SELECT CAST(id AS string) AS id, at, v FROM source", **model)
    assert pairs(lab, "id", "v") == [(9, "A"), (10, "B")]


def test_a_table_that_becomes_incremental_has_its_rows_once(lab: ModelLab) -> None:
    lab.source(COLUMNS, (1, 1, "a", 1), (2, 2, "b", 2))
    lab.run("shop.t", "SELECT id, at, v FROM source")
    model = {"incremental": incremental("append", filter_column="at")}
    for action, state in (("full", "published"), ("unchanged", "unchanged")):
        result = lab.run("shop.t", "SELECT id, at, v FROM source", **model)
        assert (result.action, result.status) == (action, state)
        assert pairs(lab, "id") == [(1,), (2,)]


def test_rows_without_a_value_to_go_by_are_not_added_again(lab: ModelLab) -> None:
    model = {"incremental": incremental("append", filter_column="at")}
    lab.source(COLUMNS, (1, None, "a", 1))
    for _ in range(2):
        lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    lab.source(COLUMNS, (1, None, "a", 1), (2, 2, "b", 2))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    assert pairs(lab, "id") == [(1,), (2,)]


# --- rows lost -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["requested", "the query changed", "the schema changed"])
def test_a_full_run_of_a_query_with_the_variable_of_chunks_keeps_all_rows(lab: ModelLab, why: str) -> None:
    model = {
        "incremental": incremental("append", "full_incremental_refresh", filter_column="at"),
        "full_incremental_refresh": in_chunks(),
    }
    sql = "SELECT id, at, v FROM source WHERE at >= @from"
    lab.source(COLUMNS, (1, 1, "a", 1), (2, 2, "b", 2))
    lab.run("shop.t", sql, **model)
    lab.source(COLUMNS, (1, 1, "a", 1), (2, 2, "b", 2), (3, 3, "c", 3))
    assert lab.run("shop.t", sql, **model).rows == {"inserted": 1}
    edited = {"the query changed": "upper(v) AS v", "the schema changed": "v, x"}.get(why, "v")
    result = lab.run("shop.t", sql.replace("v FROM", f"{edited} FROM"), full=why == "requested", **model)
    assert why in result.reason
    assert [row[0] for row in pairs(lab, "id")] == [1, 2, 3]


def test_an_incremental_run_binds_the_variable_of_chunks_to_where_it_begins(lab: ModelLab) -> None:
    """With its look-back, and only if the chunks are of the filter column."""
    model = {
        "incremental": incremental("merge", unique_key="id", filter_column="at", lookback=1),
        "full_incremental_refresh": in_chunks(),
    }
    sql = "SELECT id, at, v, CAST(@from AS int) AS x FROM source WHERE at >= @from"
    lab.source(COLUMNS, (1, 1, "a", 1), (2, 2, "b", 2), (3, 3, "c", 3))
    lab.run("shop.t", sql, **model)
    lab.run("shop.t", sql, **model)
    assert pairs(lab, "id", "x") == [(1, 1), (2, 2), (3, 2)]
    other = model | {"incremental": incremental("merge", unique_key="id", filter_column="id")}
    lab.run("shop.other", sql, **other)
    lab.run("shop.other", sql, **other)
    assert pairs(lab, "id", "x", name="shop.other") == [(1, 1), (2, 1), (3, 1)]


def test_a_backfill_of_a_query_with_the_variable_of_chunks_reaches_old_rows(lab: ModelLab) -> None:
    model = {
        "incremental": incremental("merge", "append_new_columns", unique_key="id", filter_column="at"),
        "full_incremental_refresh": in_chunks(),
    }
    lab.source(COLUMNS, (1, 1, "a", 10), (2, 2, "b", 20))
    lab.run("shop.t", "SELECT id, at, v FROM source WHERE at >= @from", **model)
    sql = "SELECT id, at, v, x FROM source WHERE at >= @from"
    lab.run("shop.t", sql, **model)
    metadata = ModelMetadata.parse({"materialization": "incremental", **model})
    backfill(lab.handler, "shop.t", sql, metadata, ["x"])
    assert pairs(lab, "id", "x") == [(1, 10), (2, 20)]


def test_a_condition_puts_back_all_rows_that_it_deletes(lab: ModelLab) -> None:
    condition = "to_date(at) >= to_date(@start)"
    model = {"incremental": incremental("delete_insert", where_condition=condition, filter_column="at")}
    sql = "SELECT id, CAST(at AS timestamp) AS at FROM source"
    day = [(0, "2024-01-01 08:00:00"), (1, "2024-01-02 09:00:00"), (2, "2024-01-02 12:00:00")]
    lab.source("id int, at string", *day)
    lab.run("shop.t", sql, **model)
    lab.source("id int, at string", *day, (3, "2024-01-02 13:00:00"))
    result = lab.run("shop.t", sql, **model)
    assert (result.action, result.rows) == ("incremental", {"inserted": 3, "deleted": 2})
    assert pairs(lab, "id") == [(0,), (1,), (2,), (3,)]


@pytest.mark.fast
def test_a_beginning_in_a_condition_needs_the_column_that_it_is_of() -> None:
    said = {"materialization": "incremental", "incremental": incremental("delete_insert", where_condition="at >= @start")}
    with pytest.raises(ConfigError, match=r"@start in where_condition is of a filter_column"):
        ModelMetadata.parse(said)


def test_a_run_stopped_right_behind_its_commit_keeps_the_columns_it_published(
    lab: ModelLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = {"incremental": incremental("append", "append_new_columns", filter_column="at")}
    lab.source(COLUMNS, (1, 1, "a", 10))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    lab.source(COLUMNS, (1, 1, "a", 10), (2, 2, "b", 20))
    sql = "SELECT id, at, v, x FROM source"
    monkeypatch.setenv("TIDEMARK_FAULT", "lake.after_publish:raise")
    with pytest.raises(InjectedFault):
        lab.run("shop.t", sql, **model)
    monkeypatch.delenv("TIDEMARK_FAULT")
    assert pairs(lab, "id", "x") == [(1, None), (2, 20)]
    assert lab.run("shop.t", sql, **model).status == "unchanged"
    assert lab.states.get_last_processed_value("shop.t") == 2


def test_a_run_stopped_right_before_its_commit_takes_its_columns_back(
    lab: ModelLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = {"incremental": incremental("append", "append_new_columns", filter_column="at")}
    lab.source(COLUMNS, (1, 1, "a", 10), (2, 2, "b", 20))
    lab.run("shop.t", "SELECT id, at, v FROM source WHERE id = 1", **model)
    before = lab.told("shop.t")
    monkeypatch.setenv("TIDEMARK_FAULT", "lake.before_publish:raise")
    with pytest.raises(InjectedFault):
        lab.run("shop.t", "SELECT id, at, v, x FROM source", **model)
    assert lab.told("shop.t") == before
    assert lab.platform.lake.reader.branches("shop.t") == {}


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_rows_that_differ_in_microseconds_only_are_two_rows(lab: ModelLab, kind: str) -> None:
    model = {"incremental": incremental("append", filter_column="id", lookback=5)}
    sql = f"SELECT id, CAST(at AS {kind}) AS at FROM source"
    first, second = (1, "2024-01-01 12:00:00.123456"), (1, "2024-01-01 12:00:00.123457")
    lab.source("id int, at string", first)
    lab.run("shop.t", sql, **model)
    lab.source("id int, at string", first, second)
    for inserted in ({"inserted": 1}, {}):
        assert lab.run("shop.t", sql, **model).rows == inserted
    assert len(set(pairs(lab, "at"))) == 2


def test_a_map_whose_moment_moves_by_a_microsecond_is_updated(lab: ModelLab) -> None:
    model = {"incremental": incremental("merge", unique_key="id", filter_column="id")}
    sql = "SELECT id, map('k', CAST(at AS timestamp_ntz)) AS seen FROM source"
    for at in ("2024-01-01 12:00:00.123456", "2024-01-01 12:00:00.123457"):
        lab.source("id int, at string", (1, at))
        lab.run("shop.t", sql, **model)
    ((seen,),) = pairs(lab, "seen")
    assert [moment.microsecond for _, moment in seen] == [123457]


# --- what a run decides ----------------------------------------------------------------------------------------------


def test_a_table_that_was_taken_back_by_hand_is_made_anew(lab: ModelLab) -> None:
    model = {"incremental": incremental("append", filter_column="at")}
    sql = "SELECT id, at, v FROM source"
    rows = [(number, number, "a", number) for number in (1, 2, 3)]
    kept = []
    for count in (1, 2):
        lab.source(COLUMNS, *rows[:count])
        lab.run("shop.t", sql, **model)
        kept.append(lab.snapshot("shop.t"))
    lab.source(COLUMNS, *rows)
    lab.spark.sql(f"CALL lake.system.set_current_snapshot('shop.t', {kept[0]})")
    assert pairs(lab, "id") == [(1,)]
    result = lab.run("shop.t", sql, **model)
    assert (result.action, result.reason) == ("full", "the table was rolled back")
    assert pairs(lab, "id") == [(1,), (2,), (3,)]
    assert lab.run("shop.t", sql, **model).status == "unchanged"


def test_a_table_that_was_compacted_is_not_taken_back(lab: ModelLab) -> None:
    model = {"incremental": incremental("append", filter_column="at")}
    sql = "SELECT id, at, v FROM source"
    metadata = ModelMetadata.parse({"materialization": "incremental", **model})
    rows = [(number, number, "a", number) for number in (1, 2, 3)]
    for count in (1, 2):
        lab.source(COLUMNS, *rows[:count])
        lab.run("shop.t", sql, **model)
    state = lab.state("shop.t")
    lab.maintain("shop.t", metadata)
    assert state is not None
    assert lab.snapshot("shop.t") != state.snapshot
    lab.source(COLUMNS, *rows)
    result = lab.run("shop.t", sql, **model)
    assert (result.action, result.rows) == ("incremental", {"inserted": 1})


@pytest.mark.parametrize(("winner", "resumed", "v"), [("x", True, "b"), ("x asc", False, "a")])
def test_a_stopped_refresh_goes_on_only_if_the_options_are_the_same(
    lab: ModelLab, monkeypatch: pytest.MonkeyPatch, winner: str, resumed: bool, v: str
) -> None:
    def model(dedupe_by: str) -> dict[str, Any]:
        options = {"unique_key": "id", "filter_column": "at", "dedupe_by": dedupe_by}
        chunks = {"full_incremental_refresh": in_chunks()}
        return {"incremental": incremental("merge", "full_incremental_refresh", **options), **chunks}

    lab.source(COLUMNS, (1, 1, "a", 10), (1, 1, "b", 20), (2, 2, "c", 30))
    lab.run("shop.t", "SELECT id, at, x FROM source", **model("x"))
    sql = "SELECT id, at, x, v FROM source"
    monkeypatch.setenv("TIDEMARK_FAULT", "models.after_chunk:raise")
    with pytest.raises(InjectedFault):
        lab.run("shop.t", sql, **model("x"))
    monkeypatch.delenv("TIDEMARK_FAULT")
    assert ("resumed" in lab.run("shop.t", sql, **model(winner)).reason) is resumed
    assert pairs(lab, "id", "v") == [(1, v), (2, "c")]


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_what_is_filled_by_hand_is_checked_before_it_is_published(lab: ModelLab) -> None:
    model = {
        "incremental": incremental("merge", "append_new_columns", unique_key="id", filter_column="at"),
        "checks": [{"accepted_values": {"column": "x", "values": [20]}}],
    }
    metadata = ModelMetadata.parse({"materialization": "incremental", **model})
    lab.source(COLUMNS, (1, 1, "a", 99), (2, 2, "b", 20))
    lab.run("shop.t", "SELECT id, at, v FROM source", incremental=model["incremental"])
    sql = "SELECT id, at, v, x FROM source"
    lab.run("shop.t", sql, **model)
    before = lab.told("shop.t")
    with pytest.raises(ChecksFailed, match="x: 1 values that are not accepted"):
        backfill(lab.handler, "shop.t", sql, metadata, ["x"])
    assert lab.told("shop.t") == before
    assert lab.platform.lake.reader.branches("shop.t") == {}
    lab.source(COLUMNS, (1, 1, "a", 20), (2, 2, "b", 20))
    assert [check.passed for check in backfill(lab.handler, "shop.t", sql, metadata, ["x"]).checks] == [True]
    assert pairs(lab, "id", "x") == [(1, 20), (2, 20)]


def test_what_is_filled_by_hand_must_fit_into_its_column(lab: ModelLab) -> None:
    model = {"incremental": incremental("merge", "ignore", unique_key="id", filter_column="at")}
    metadata = ModelMetadata.parse({"materialization": "incremental", **model})
    lab.source(COLUMNS, (1, 1, "a", 10))
    lab.run("shop.t", "SELECT id, at, x FROM source", **model)
    before = lab.told("shop.t")
    with pytest.raises(ValueMisfit, match='x do not fit into int, such as "a"'):
        backfill(lab.handler, "shop.t", "SELECT id, at, v AS x FROM source", metadata, ["x"])
    assert lab.told("shop.t") == before


def test_a_look_back_along_text_is_an_error_that_names_the_column(lab: ModelLab) -> None:
    model = {"incremental": incremental("append", filter_column="v", lookback=1)}
    lab.source(COLUMNS, (1, 1, "a", 10))
    lab.run("shop.t", "SELECT id, v FROM source", **model)
    with pytest.raises(ConfigError, match=r"shop\.t: .*does not go with v \(string\): .*values are text"):
        lab.run("shop.t", "SELECT id, v FROM source", **model)


# --- what changes the table without new rows --------------------------------------------------------------------------


def test_a_change_of_columns_alone_is_checked_before_it_is_published(lab: ModelLab) -> None:
    model = {"incremental": incremental("merge", "sync_all_columns", unique_key="id", filter_column="at")}
    lab.source(COLUMNS, (1, 1, "a", 5), (2, 2, "b", 5))
    lab.run("shop.t", "SELECT id, at, v, x FROM source", **model)
    before = lab.told("shop.t")
    with pytest.raises(ChecksFailed, match="unique__x"):
        lab.run("shop.t", "SELECT id, at, x FROM source", **model, checks=[{"unique": "x"}])
    assert lab.told("shop.t") == before
    result = lab.run("shop.t", "SELECT id, at, x FROM source", **model, checks=[{"unique": "id"}])
    assert (result.status, [check.passed for check in result.checks]) == ("published", [True])
    assert pairs(lab, "id", "x") == [(1, 5), (2, 5)]
    assert "v" not in lab.columns("shop.t")


def test_a_table_that_is_to_be_emptied_is_checked_before(lab: ModelLab) -> None:
    model = {
        "incremental": incremental("append", "recreate_empty", filter_column="at"),
        "checks": [{"row_count_change": {"max_decrease_percent": 50}}],
    }
    lab.source(COLUMNS, (1, 1, "a", 5), (2, 2, "b", 5))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    before = lab.told("shop.t")
    with pytest.raises(ChecksFailed, match="row_count_change"):
        lab.run("shop.t", "SELECT id, at, v, x FROM source", **model)
    assert lab.told("shop.t") == before


def test_rows_that_are_gone_back_to_are_checked(lab: ModelLab) -> None:
    model = {"incremental": incremental("merge", unique_key="id", filter_column="at")}
    checked = {"materialization": "incremental", **model, "checks": [{"accepted_values": {"column": "v", "values": ["a"]}}]}
    lab.source(COLUMNS, (1, 1, "wrong", 5))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    first = lab.last_run("shop.t")
    lab.source(COLUMNS, (1, 2, "a", 5))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    before, second = lab.told("shop.t"), lab.last_run("shop.t")
    subject = ModelSubject(lab.platform, "shop.t", ModelMetadata.parse(checked))
    judge = partial(failures_at, lab.handler.adapter, subject)
    with pytest.raises(ChecksFailed, match="1 values that are not accepted"):
        roll_back_model(subject, first, "x", judge)
    assert lab.told("shop.t") == before
    assert roll_back_model(subject, second, "x", judge).status == "published"
