"""Models run by Dagster on a real lake: what is published, what is told, and what a check holds back."""

import pytest
from dagster import AssetKey, TableColumnDep, TableColumnLineageMetadataValue, TableMetadataValue, TableSchemaMetadataValue

from tests.catalog.harness import SparkForTests
from tests.models.folder import LINES
from tests.models.running import Running

BRONZE = AssetKey(["drops", "drops_lines", "bronze"])
MERGED = """\
/* ---
materialization: incremental
incremental:
  strategy: merge
  merge: {unique_key: [delivery, line], filter_column: delivery}
  on_schema_change: append_new_columns
checks:
  - not_null: sku
  - accepted_values: {column: sku, values: [a, b]}
    blocking: false
--- */
"""

VIEW = """\
/* ---
materialization: view
checks: [{unique: name}]
--- */
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, spark: SparkForTests) -> Running:
    """Three models: lines as they are, their sum, and a view of them. One delivery has arrived."""
    made = Running(tmp_path_factory.mktemp("running"), spark)
    made.write("silver/lines.sql", MERGED + f"SELECT record.delivery, record.line, record.sku FROM {LINES}")
    made.write("gold/sums.sql", "SELECT delivery, count(sku) AS lines FROM silver.lines GROUP BY delivery")
    made.write("gold/names.sql", VIEW + "SELECT DISTINCT upper(sku) AS name FROM silver.lines")
    made.deliver(1, "a", "b")
    return made


def evaluations(result: object) -> dict[str, tuple[bool, str]]:
    found = result.get_asset_check_evaluations()  # type: ignore[attr-defined]
    return {each.check_name: (each.passed, each.severity.value) for each in found}


def test_a_run_publishes_and_tells_columns_lineage_rows_and_plan(running: Running) -> None:
    done = running.run()
    assert done.success
    assert running.rows("gold.sums") == [{"delivery": 1, "lines": 2}]
    assert evaluations(done) == {
        "not_null__sku": (True, "ERROR"),
        "accepted_values__sku": (True, "WARN"),
        "unique__name": (True, "ERROR"),
    }

    lines, sums = running.materialization("silver.lines").metadata, running.materialization("gold.sums").metadata
    lineage = lines["dagster/column_lineage"]
    assert isinstance(lineage, TableColumnLineageMetadataValue)
    assert lineage.value.deps_by_column["sku"] == [TableColumnDep(BRONZE, "record.sku")]
    above = sums["dagster/column_lineage"]
    assert isinstance(above, TableColumnLineageMetadataValue)
    assert above.value.deps_by_column == {
        "delivery": [TableColumnDep(AssetKey(["silver", "lines"]), "delivery")],
        "lines": [TableColumnDep(AssetKey(["silver", "lines"]), "sku")],
    }
    schema = sums["dagster/column_schema"]
    assert isinstance(schema, TableSchemaMetadataValue)
    assert [(each.name, each.type, each.description) for each in schema.value.columns] == [
        ("delivery", "bigint", "from silver.lines.delivery"),
        ("lines", "bigint", "from silver.lines.sku"),
    ]
    shown = sums["column lineage"]
    assert isinstance(shown, TableMetadataValue)
    assert shown.records[1].data == {"column": "lines", "comes from": "silver.lines.sku", "known": True}
    assert (sums["dagster/row_count"].value, lines["dagster/row_count"].value) == (1, 2)
    assert "no table" in str(lines["plan"].value)

    names = running.materialization("gold.names").metadata
    viewed = names["dagster/column_schema"]
    assert isinstance(viewed, TableSchemaMetadataValue)
    assert [(each.name, each.description) for each in viewed.value.columns] == [("name", "from silver.lines.sku")]
    assert "dagster/row_count" not in names
    assert running.rows("gold.names") == [{"name": "A"}, {"name": "B"}]


def test_a_run_with_nothing_new_is_told_as_such(running: Running) -> None:
    assert running.run("silver.lines").success
    told = running.materialization("silver.lines").metadata
    assert told["action"].value == "unchanged"


def test_a_new_column_comes_with_the_next_run_and_is_in_the_plan(running: Running) -> None:
    running.write("silver/lines.sql", MERGED + f"SELECT record.delivery, record.line, record.sku, record.price FROM {LINES}")
    running.deliver(2, "a", price="2.25")
    done = running.run()
    assert done.success
    told = running.materialization("silver.lines").metadata
    assert "price (decimal(12, 2)) is added" in str(told["plan"].value)
    assert str(running.rows("silver.lines")[-1]["price"]) == "2.25"
    assert running.rows("gold.sums") == [{"delivery": 1, "lines": 2}, {"delivery": 2, "lines": 1}]


def test_a_check_that_blocks_nothing_is_a_warning_and_the_rows_are_published(running: Running) -> None:
    running.deliver(3, "c")
    done = running.run()
    assert done.success
    assert evaluations(done)["accepted_values__sku"] == (False, "WARN")
    assert running.rows("gold.sums")[-1] == {"delivery": 3, "lines": 1}


def test_a_blocking_check_keeps_a_view_as_it_was(running: Running) -> None:
    before = running.rows("gold.names")
    running.write("gold/names.sql", VIEW + "SELECT upper(sku) AS name FROM silver.lines")
    done = running.run("gold.names")
    assert not done.success
    assert evaluations(done) == {"unique__name": (False, "ERROR")}
    assert running.rows("gold.names") == before
    running.write("gold/names.sql", VIEW + "SELECT DISTINCT upper(sku) AS name FROM silver.lines")


def test_a_blocking_check_keeps_rows_back_and_what_reads_them_does_not_run(running: Running) -> None:
    before = running.rows("silver.lines")
    running.deliver(4, "a", "")
    done = running.run()
    assert not done.success
    assert evaluations(done)["not_null__sku"] == (False, "ERROR")
    assert running.rows("silver.lines") == before
    assert [event.step_key for event in done.all_events if event.is_step_start] == ["silver__lines"]
    (failure,) = [event for event in done.all_events if event.is_step_failure]
    assert "ChecksFailed" in str(failure.event_specific_data.error)  # type: ignore[union-attr]


def test_checks_alone_are_run_on_what_is_published(running: Running) -> None:
    snapshot = running.platform.lake.reader.published("silver.lines")
    done = running.only_checks("silver.lines")
    assert done.success
    assert evaluations(done) == {"not_null__sku": (True, "ERROR"), "accepted_values__sku": (False, "WARN")}
    assert running.platform.lake.reader.published("silver.lines") == snapshot
