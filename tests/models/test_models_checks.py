"""Checks of models on real rows: what each finds, what it lets pass, and what it says."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from spark_code.platform import Platform
from tests.catalog.harness import SparkForTests
from tidemark.checks import CheckResult
from tidemark.config import load_config
from tidemark.models.checks import ModelCheck

ROWS = "(1, 'open', 10), (2, 'open', 10), (3, 'done', NULL), (4, 'lost', 11), (4, 'lost', NULL)"
EMPTY = "SELECT CAST(NULL AS INT) AS id, CAST(NULL AS STRING) AS state, CAST(NULL AS INT) AS customer WHERE false"


class Rows:
    """Staged rows, published rows, and customers 10 and 12."""

    def __init__(self, folder: Path, spark: SparkForTests) -> None:
        (folder / "store").mkdir()
        (folder / "tidemark.yaml").write_text(yaml.safe_dump({"store": str(folder / "store")}))
        self.spark = Platform(load_config(folder / "tidemark.yaml"), start=spark).spark
        self.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.silver")
        self.spark.sql("CREATE TABLE lake.silver.customers USING iceberg AS SELECT * FROM VALUES (10), (12) AS t(id)")
        self.stage(f"SELECT * FROM VALUES {ROWS} AS t(id, state, customer)")

    def stage(self, query: str) -> None:
        self.spark.sql(query).createOrReplaceTempView("staged")

    def publish(self, count: int) -> None:
        self.spark.range(count).createOrReplaceTempView("published")

    def check(self, published: str | None = None, **check: Any) -> CheckResult:
        judged = ModelCheck.model_validate(check)
        return judged.verdict(self.spark.sql(judged.query("staged", published)).collect()[0].asDict())


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, spark: SparkForTests) -> Rows:
    return Rows(tmp_path_factory.mktemp("checks"), spark)


def test_unique_counts_values_that_stand_in_several_rows(rows: Rows) -> None:
    found = rows.check(unique=["id"])
    assert (found.name, found.passed) == ("unique__id", False)
    assert found.summary == "id: 1 values stand in more than one row, 2 rows in all"
    assert found.facts == {"failed": 1, "rows": 2, "examples": ['{"id":4}']}
    assert rows.check(unique=["id"], where="id < 4").passed
    # NULL is a value like any other here: two rows of it share it.
    assert rows.check(unique=["id", "customer"]).passed
    assert not rows.check(unique=["customer"], where="customer IS NULL").passed


def test_not_null_counts_rows_and_names_the_columns(rows: Rows) -> None:
    found = rows.check(not_null=["id", "customer"])
    assert (found.passed, found.summary) == (False, "id, customer: NULL in 2 rows")
    assert found.facts["examples"] == ["customer"]
    assert rows.check(not_null="id").passed


def test_accepted_values_let_null_pass(rows: Rows) -> None:
    found = rows.check(accepted_values={"column": "state", "values": ["open", "done"]})
    assert (found.passed, found.summary) == (False, "state: 1 values that are not accepted, in 2 rows")
    assert found.facts["examples"] == ['{"state":"lost"}']
    assert rows.check(accepted_values={"column": "customer", "values": [10, 11]}).passed


def test_relationships_lead_to_rows_of_another_table(rows: Rows) -> None:
    found = rows.check(relationships={"column": "customer", "to": "silver.customers", "field": "id"})
    assert (found.passed, found.summary) == (False, "customer: 1 values lead nowhere, in 1 rows")
    assert found.facts["examples"] == ['{"customer":11}']
    leads = {"column": "customer", "to": "lake.silver.customers", "field": "id"}
    assert rows.check(relationships=leads, where="id < 4").passed


@pytest.mark.parametrize(
    ("before", "limits", "passed", "summary"),
    [
        (5, {"max_increase_percent": 0, "max_decrease_percent": 0}, True, "5 → 5 rows (+0.0 %)"),
        (4, {"max_increase_percent": 25}, True, "4 → 5 rows (+25.0 %)"),
        (4, {"max_increase_percent": 24}, False, "4 → 5 rows (+25.0 %); allowed is +24 %"),
        (10, {"max_increase_percent": 0}, True, "10 → 5 rows (-50.0 %)"),
        (10, {"max_decrease_percent": 49}, False, "10 → 5 rows (-50.0 %); allowed is −49 %"),
        (0, {"max_increase_percent": 0}, True, "5 rows; there were none to compare with"),
    ],
)
def test_the_number_of_rows_may_move_so_far(
    rows: Rows, before: int, limits: dict[str, int], passed: bool, summary: str
) -> None:
    rows.publish(before)
    found = rows.check("published", row_count_change=limits)
    assert (found.passed, found.summary) == (passed, summary)


def test_a_first_run_has_nothing_to_compare_with(rows: Rows) -> None:
    assert rows.check(None, row_count_change={"max_decrease_percent": 0}).passed


def test_no_rows_pass_every_check(rows: Rows) -> None:
    rows.stage(EMPTY)
    try:
        assert rows.check(unique="id").facts == {"failed": 0, "rows": 0, "examples": []}
        assert rows.check(not_null="id").passed
        assert rows.check(relationships={"column": "customer", "to": "silver.customers", "field": "id"}).passed
    finally:
        rows.stage(f"SELECT * FROM VALUES {ROWS} AS t(id, state, customer)")


@pytest.mark.fast
@pytest.mark.parametrize(
    ("check", "words"),
    [
        ({}, "has no kind; a check is one of unique"),
        ({"unique": "a", "not_null": "b"}, "has unique and not_null"),
        ({"row_count_change": {}}, "needs max_increase_percent, max_decrease_percent, or both"),
        ({"unique": []}, "at least 1"),
        ({"unique": "a", "name": "a b"}, "must be letters, digits and '_'"),
    ],
)
def test_a_check_that_says_too_much_or_too_little_is_told(check: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        ModelCheck.model_validate(check)


@pytest.mark.fast
def test_a_check_is_called_by_its_kind_and_columns_unless_it_has_a_name() -> None:
    assert ModelCheck(unique=("a", "odd name")).name == "unique__a__odd_name"
    assert ModelCheck(not_null=("a",), name="always_there").name == "always_there"
    assert ModelCheck.model_validate({"row_count_change": {"max_increase_percent": 5}}).name == "row_count_change"
