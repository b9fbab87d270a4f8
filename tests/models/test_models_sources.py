"""Which queries say the same again as long as their tables stay the same."""

import pytest

from tidemark.models.sources import repeatable, steady
from tidemark.models.spec import AppendOptions, DeleteInsertOptions, Filtered, MergeOptions
from tidemark.models.sql import select_of

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    "column",
    [
        "a",
        "upper(a)",
        "date_trunc('day', at)",
        "row_number() OVER (PARTITION BY a ORDER BY b)",
        "coalesce(struct(a, b), named_struct('a', 1))",
        "CAST('2026-01-01' AS date)",
        "t.user",
        "(SELECT max(x) FROM b.other)",
    ],
)
def test_a_query_of_known_functions_says_the_same_again(column: str) -> None:
    assert steady(select_of(f"SELECT {column} AS c FROM a.t"))


@pytest.mark.parametrize(
    "column",
    [
        "now()",
        "current_date",
        "current_timestamp()",
        "CURRENT_TIMESTAMP",
        "unix_timestamp()",
        "localtimestamp",
        "current_user()",
        "user",
        "session_user()",
        "date'today'",
        "timestamp' NOW'",
        "date'today Europe/Berlin'",
        "timestamp'06:00'",
        "CAST(r'tomorrow' AS date)",
        "rand()",
        "random(3)",
        "randn()",
        "uuid()",
        "shuffle(array(1, 2))",
        "monotonically_increasing_id()",
        "input_file_name()",
        "somebodys_function(a)",
        "(SELECT max(x) FROM b.other WHERE at > current_date())",
    ],
)
def test_a_query_that_asks_clock_chance_session_or_an_unknown_function_may_not(column: str) -> None:
    assert not steady(select_of(f"SELECT {column} AS c FROM a.t"))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM a.t TABLESAMPLE (10 PERCENT)",
        "SELECT a FROM a.t VERSION AS OF 'release'",
        "SELECT TRANSFORM(a) USING 'script' AS b FROM a.t",
    ],
)
def test_a_sample_a_tag_and_a_script_may_not_either(sql: str) -> None:
    assert not steady(select_of(sql))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (MergeOptions(unique_key=("id",)), True),
        (DeleteInsertOptions(unique_key=("id",)), True),
        (DeleteInsertOptions(where_condition="day >= current_date()"), False),
        (AppendOptions(), False),
        (AppendOptions(filter_column="at"), True),
        (AppendOptions.model_validate({"filter_column": "at", "lookback": 2}), True),
        (AppendOptions.model_validate({"filter_column": "at", "lookback": 2, "deduplicate": False}), False),
        (AppendOptions(unique_key=("id",)), True),
    ],
)
def test_only_what_adds_no_row_twice_need_not_run_again(options: Filtered, expected: bool) -> None:
    assert repeatable(options) is expected
