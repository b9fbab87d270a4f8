"""A model's query: one SELECT, its tables and its variables, and the text that Spark gets."""

import pytest

from tidemark.models.sql import (
    BadSql,
    check_columns,
    for_spark,
    literal,
    normalized,
    references,
    select_of,
    variables_in,
    with_variables,
)

pytestmark = pytest.mark.fast


def names(sql: str) -> list[str]:
    return [each.name for each in references(select_of(sql))]


# --- one SELECT ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM silver.a",
        "WITH a AS (SELECT 1 AS id) SELECT id FROM a;",
        "(SELECT id FROM silver.a) UNION ALL SELECT id FROM silver.b",
        "FROM silver.a SELECT id",
        "SELECT id FROM silver.a LATERAL VIEW explode(xs) t AS x WHERE x > 1;;\n-- the end",
    ],
)
def test_one_select_in_any_form_is_a_model(sql: str) -> None:
    assert select_of(sql).selects


@pytest.mark.parametrize(
    ("sql", "line", "words"),
    [
        ("", 1, "there is no query"),
        ("-- nothing yet\n;", 1, "there is no query"),
        ("SELECT 1 AS a;\n\nSELECT b FROM c", 3, "these are 2 statements"),
        ("\nINSERT INTO t SELECT 1", 2, "this begins with INSERT"),
        ("EXPLAIN SELECT 1", 1, "this begins with EXPLAIN"),
        ("DROP TABLE silver.a", 1, "this begins with DROP"),
        ("SELECT id\nINTO silver.b\nFROM silver.a", 1, "this does more than select"),
        ("SELECT id\nFROM", 2, "this is not Spark SQL: Expected table name near 'FROM'."),
        ("SELECT (1", 1, r"this is not Spark SQL: Expecting \)"),
        ("SELECT 'open", 1, "this is not Spark SQL"),
        ("SELECT *\nFROM IDENTIFIER('silver.a')", 2, "IDENTIFIER hides what is read"),
    ],
)
def test_anything_else_is_told_with_its_line(sql: str, line: int, words: str) -> None:
    with pytest.raises(BadSql, match=words) as told:
        select_of(sql)
    assert told.value.line == line
    assert "Token" not in str(told.value)


def test_every_column_has_a_name_of_its_own() -> None:
    check_columns(select_of("SELECT id, a.record.x, count(*) AS n, b.*, explode(m) AS (k, v) FROM silver.a"))
    with pytest.raises(BadSql, match=r"name this column: COUNT\(\*\) AS …") as told:
        check_columns(select_of("SELECT id,\n  n,\n  count(*)\nFROM silver.a GROUP BY id"))
    assert told.value.line == 3
    with pytest.raises(BadSql, match="two columns are called 'Id', letter case aside"):
        check_columns(select_of("SELECT a.id, b.record.Id FROM silver.a JOIN silver.b"))


# --- tables ----------------------------------------------------------------------------------------------------------


def test_tables_are_found_wherever_they_are_read_and_each_once() -> None:
    sql = """
    WITH carts AS (SELECT * FROM bronze.default.shop.carts__latest), again AS (SELECT * FROM carts)
    SELECT (SELECT max(x) FROM gold.totals) AS t, b.y
    FROM again JOIN silver.`odd name` AS b USING (id) CROSS JOIN range(10) AS r
    WHERE EXISTS (SELECT 1 FROM LAKE.silver.c) AND 'FROM nowhere' <> '' -- FROM nowhere.either
    UNION ALL SELECT 1, y FROM Silver.C
    """
    assert names(sql) == ["bronze.default.shop.carts__latest", "gold.totals", "silver.odd name", "silver.c"]
    assert [each.line for each in references(select_of(sql))] == [2, 3, 4, 5]


def test_a_cte_of_the_same_name_as_a_table_hides_it_where_it_is_known() -> None:
    assert names("WITH a AS (SELECT * FROM silver.a) SELECT * FROM a") == ["silver.a"]
    assert names("WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT i FROM n") == []


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM a.orders LEFT ANTI JOIN (SELECT id FROM a.gone) AS orders USING (id)", ["a.orders", "a.gone"]),
        ("WITH orders AS (SELECT * FROM a.orders) SELECT * FROM b.orders JOIN orders USING (id)", ["a.orders", "b.orders"]),
        ("SELECT x FROM a.t UNION ALL SELECT x FROM b.o ORDER BY (SELECT max(x) FROM c.p)", ["a.t", "b.o", "c.p"]),
        ("SELECT * FROM a.t LATERAL VIEW explode((SELECT collect_list(y) FROM b.o)) AS y", ["a.t", "b.o"]),
        ("WITH n AS (SELECT * FROM n) SELECT * FROM n", ["n"]),
        ("WITH a AS (SELECT 1 AS x), b AS (SELECT x FROM a) SELECT x FROM a UNION ALL SELECT x FROM b", []),
        ("SELECT * FROM (WITH a AS (SELECT 1 AS x) SELECT x FROM a) JOIN a USING (x)", ["a"]),
        ("SELECT /*+ BROADCAST(o) */ * FROM a.o AS o", ["a.o"]),
        ("SELECT * FROM range(3)", []),
    ],
)
def test_a_table_is_found_wherever_it_is_read(sql: str, expected: list[str]) -> None:
    assert names(sql) == expected


def test_spark_gets_the_author_s_own_text_with_the_lake_before_tables() -> None:
    sql = (
        "-- é\nSELECT a.x,  'FROM silver.a' AS é FROM silver.a AS a\n"
        "JOIN lake.gold.k USING (x) WHERE a.x IN (SELECT x FROM silver.a) ;\n"
    )
    assert for_spark(sql) == (
        "-- é\nSELECT a.x,  'FROM silver.a' AS é FROM lake.silver.a AS a\n"
        "JOIN lake.gold.k USING (x) WHERE a.x IN (SELECT x FROM lake.silver.a)"
    )
    assert for_spark(for_spark(sql)) == for_spark(sql)


# --- what counts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "same",
    [
        "select id, 'A b' as X from silver.a where n=1",
        "SELECT id,\n\t'A b' AS x -- why\nFROM silver.a /* here */ WHERE n = 1;",
        "SELECT `ID`, 'A b' AS `x` FROM Silver.A WHERE n = 1",
    ],
)
def test_comments_white_space_and_letter_case_do_not_count(same: str) -> None:
    assert normalized(same) == normalized("SELECT id, 'A b' AS x FROM silver.a WHERE n = 1")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT 'a b' AS x", "SELECT 'a  b' AS x"),
        ("SELECT 'A' AS x", "SELECT 'a' AS x"),
        ("SELECT 1L AS x", "SELECT 1 AS x"),
        ("SELECT 1L", "SELECT 1 L"),
        ("SELECT '--a' AS x", "SELECT '--b' AS x"),
        ("SELECT `a b` FROM t", "SELECT `a  b` FROM t"),
        ("SELECT /*+ BROADCAST(t) */ a FROM t", "SELECT a FROM t"),
        ("SELECT a FROM t", "SELECT DISTINCT a FROM t"),
        ("SELECT r'\\n' AS x", "SELECT '\\n' AS x"),
    ],
)
def test_everything_else_counts(one: str, other: str) -> None:
    assert normalized(one) != normalized(other)


# --- variables -------------------------------------------------------------------------------------------------------


def test_variables_become_values_outside_of_texts_and_comments() -> None:
    sql = (
        "SELECT '@country' AS t, @rate * x AS y, @flag AS f, @none AS n -- @country\n"
        "FROM silver.a WHERE c = @country AND d IN @list"
    )
    values = {"country": "it's \\n", "rate": 0.5, "flag": True, "none": None, "list": ["a", 2]}
    assert variables_in(sql) == {"rate": 1, "flag": 1, "none": 1, "country": 2, "list": 2}
    assert with_variables(sql, values) == (
        "SELECT '@country' AS t, 0.5 * x AS y, true AS f, NULL AS n -- @country\n"
        "FROM silver.a WHERE c = 'it\\'s \\\\n' AND d IN ('a', 2)"
    )


def test_a_variable_that_gets_its_value_in_a_run_stays() -> None:
    sql = "SELECT @country AS c FROM silver.a WHERE at >= @start_date"
    assert with_variables(sql, {"country": "DE"}, later={"start_date"}) == (
        "SELECT 'DE' AS c FROM silver.a WHERE at >= @start_date"
    )


def test_a_variable_cannot_end_the_text_it_is_put_into() -> None:
    hostile = "'; DROP TABLE silver.a --"
    sql = with_variables("SELECT id FROM silver.a WHERE c = @c", {"c": hostile})
    assert names(sql) == ["silver.a"]
    assert literal(hostile) == "'\\'; DROP TABLE silver.a --'"


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT @contry AS c", r"@contry is no variable\. Did you mean 'country'\? Variables: @country\."),
        ("SELECT ${env:HOME} AS c", "a variable is @ and a name"),
        ("SELECT @ country AS c", "a variable is @ and a name"),
        ("SELECT @`country` AS c", "a variable is @ and a name"),
    ],
)
def test_what_is_no_variable_is_told(sql: str, words: str) -> None:
    with pytest.raises(BadSql, match=words):
        with_variables(sql, {"country": "DE"})
