"""Column lineage: where the values of a query come from."""

import pytest

from tidemark.models.lineage import Fields, Lineage
from tidemark.models.tracing import lineage_of

pytestmark = pytest.mark.fast

CARTS = "bronze.default.shop.carts__latest"
SCHEMAS = {
    CARTS: Fields(
        {"stream": Fields(), "key": Fields.named("cart_id"), "record": Fields.named("cart_id", "Updated_At", "total")}
    ),
    "silver.a": Fields.named("id", "x", "Y"),
    "silver.b": Fields.named("id", "z"),
}


def traced(sql: str) -> Lineage:
    return lineage_of(sql, SCHEMAS)


def flat(sql: str) -> dict[str, list[str]]:
    found = traced(sql)
    assert not found.unknown
    return {name: [str(source) for source in sources] for name, sources in found.columns.items()}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        # renamed, computed, constant
        ("SELECT x AS n, upper(y) AS Up, x + id AS s, 1 AS one, count(*) AS c FROM silver.a",
         {"n": ["silver.a: x"], "Up": ["silver.a: Y"], "s": ["silver.a: id", "silver.a: x"], "one": [], "c": []}),
        # joins: by alias, by full name, without a qualifier, USING
        ("SELECT q.x, silver.b.z, y FROM silver.a AS q JOIN silver.b ON q.id = b.id",
         {"x": ["silver.a: x"], "z": ["silver.b: z"], "y": ["silver.a: Y"]}),
        ("SELECT id, z FROM silver.a FULL JOIN silver.b USING (id)",
         {"id": ["silver.a: id", "silver.b: id"], "z": ["silver.b: z"]}),
        # stars, of one table, of all, with something left out
        ("SELECT * FROM silver.a", {"id": ["silver.a: id"], "x": ["silver.a: x"], "Y": ["silver.a: Y"]}),
        ("SELECT a.x, b.* EXCEPT (id) FROM silver.a a JOIN silver.b b ON a.id = b.id",
         {"x": ["silver.a: x"], "z": ["silver.b: z"]}),
        # CTEs, one on another, with names of their own
        ("WITH c AS (SELECT id, x + 1 AS x1 FROM silver.a), d (k, v) AS (SELECT * FROM c) SELECT v * 2 AS w, k FROM d",
         {"w": ["silver.a: x"], "k": ["silver.a: id"]}),
        # subqueries in FROM and in SELECT
        ("SELECT (SELECT max(z) FROM silver.b WHERE b.id = s.id) AS top FROM (SELECT id FROM silver.a) AS s",
         {"top": ["silver.b: z"]}),
        # unions by position
        ("SELECT x, id FROM silver.a UNION ALL SELECT z, id FROM silver.b",
         {"x": ["silver.a: x", "silver.b: z"], "id": ["silver.a: id", "silver.b: id"]}),
        # an alias used further on in the same SELECT
        ("SELECT x AS i, i + 1 AS j FROM silver.a", {"i": ["silver.a: x"], "j": ["silver.a: x"]}),
        # windows, lambdas, generators
        ("SELECT sum(x) OVER (PARTITION BY id) AS w, transform(array(x), v -> v + id) AS t FROM silver.a",
         {"w": ["silver.a: id", "silver.a: x"], "t": ["silver.a: id", "silver.a: x"]}),
        ("SELECT word, r.id AS n FROM silver.a LATERAL VIEW explode(split(y, ' ')) w AS word JOIN range(3) AS r",
         {"word": ["silver.a: Y"], "n": []}),
        # only what makes values, not what chooses rows
        ("SELECT x FROM silver.a WHERE y IN (SELECT z FROM silver.b) ORDER BY id", {"x": ["silver.a: x"]}),
    ],
)  # fmt: skip
def test_a_column_comes_from_what_its_expression_reads(sql: str, expected: dict[str, list[str]]) -> None:
    assert flat(sql) == expected


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT record.cart_id, record.updated_at AS at FROM {CARTS}",
        f"SELECT c.record.cart_id, carts.record.updated_at AS at FROM {CARTS} AS c JOIN {CARTS} AS carts",
        f"WITH c AS (SELECT record AS r FROM {CARTS}) SELECT r.cart_id, c.r.updated_at AS at FROM c",
        f"SELECT cart_id, updated_at AS at FROM (SELECT record.* FROM {CARTS})",
        f"SELECT cart_id, updated_at AS at FROM (SELECT c.record.* FROM {CARTS} AS c)",
    ],
)
def test_fields_of_a_struct_are_followed(sql: str) -> None:
    assert flat(sql) == {"cart_id": [f"{CARTS}: record.cart_id"], "at": [f"{CARTS}: record.Updated_At"]}


def test_a_star_over_a_table_that_nobody_knows_is_said_to_be_unknown() -> None:
    found = traced("SELECT a.x, t.* FROM silver.a JOIN other.t AS t ON a.id = t.id")
    assert found.unknown == {"*"}
    assert [str(source) for source in found.columns["*"]] == ["other.t: *"]
    assert [str(source) for source in found.columns["x"]] == ["silver.a: x"]


def test_a_column_that_only_an_unknown_table_can_have_is_its_own() -> None:
    assert flat("SELECT x, p FROM silver.a JOIN other.t ON a.id = t.id") == {"x": ["silver.a: x"], "p": ["other.t: p"]}


def test_a_column_that_could_be_of_two_tables_is_said_to_be_unknown() -> None:
    assert traced("SELECT id FROM silver.a JOIN silver.b ON a.id = b.id").unknown == {"id"}
    assert traced("SELECT p FROM other.t JOIN other.u").unknown == {"p"}


def test_a_recursive_query_comes_from_what_it_begins_with() -> None:
    sql = "WITH RECURSIVE n AS (SELECT x AS i FROM silver.a UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT i FROM n"
    assert flat(sql) == {"i": ["silver.a: x"]}


def test_a_variable_that_has_no_value_yet_is_no_column() -> None:
    assert flat("SELECT x + @rate AS y FROM silver.a WHERE id >= @start") == {"y": ["silver.a: x"]}


def test_lineage_leads_the_other_way_too() -> None:
    found = traced(f"SELECT record.cart_id AS c, record.total + 1 AS t, stream FROM {CARTS}")
    assert found.reading(CARTS) == ["c", "t", "stream"]
    assert found.reading(CARTS.upper(), "Record") == ["c", "t"]
    assert found.reading("silver.a") == []
