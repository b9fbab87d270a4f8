"""Partitions of models in a real Dagster on a real lake: a window, a range in one run, a run by the clock."""

from typing import Any

import pytest
from dagster import AssetKey, DagsterInstance, ExecuteInProcessResult

from platform_assets.launch import QUIET
from platform_assets.models.definitions import since_the_mark
from platform_assets.models.metadata import model_key
from spark_code.models.engine import ExecutionEngine
from tests.catalog.harness import SparkForTests
from tests.models.folder import LINES
from tests.models.running import Running

BY_DAY = """\
/* ---
materialization: incremental
incremental: {strategy: delete_insert, delete_insert: {filter_column: at}}
partitions: {by: day, start: 2024-03-01}
checks: [{not_null: sku}]
--- */
"""
JOB = "models_by_day_from_2024_03_01"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, spark: SparkForTests) -> Running:
    """Deliveries by their day, names in them by day, and how many there are in all."""
    made = Running(tmp_path_factory.mktemp("partitions"), spark)
    made.write("silver/days.sql", BY_DAY + f"SELECT make_date(2024, 3, record.delivery) AS at, record.sku FROM {LINES}")
    made.write("gold/names.sql", BY_DAY + "SELECT at, upper(sku) AS sku FROM silver.days")
    made.write("gold/counts.sql", "SELECT count(*) AS n FROM gold.names")
    for delivery in (1, 2, 3):
        made.deliver(delivery, "a")
    return made


def run(running: Running, *names: str, key: str, last: str | None = None, **given: Any) -> ExecuteInProcessResult:
    """Runs models in one run, of one partition or of a range."""
    ends = {"dagster/asset_partition_range_start": key, "dagster/asset_partition_range_end": str(last)}
    return running.definitions.resolve_job_def(JOB).execute_in_process(
        instance=running.instance,
        asset_selection=[model_key(name) for name in names],
        partition_key=None if last else key,
        tags=ends if last else {},
        run_config={**QUIET, **given},
        raise_on_error=False,
    )


def materialized(instance: DagsterInstance, name: str) -> list[str | None]:
    """The partitions that were made, in that order."""
    records = instance.fetch_materializations(AssetKey(name.split(".")), limit=50, ascending=True).records
    return [each.partition_key for each in records]


def days(running: Running, name: str) -> dict[int, str]:
    return {row["at"].day: row["sku"] for row in running.rows(name)}


def test_a_partition_a_range_and_a_run_by_the_clock(running: Running) -> None:
    first = run(running, "silver.days", "gold.names", key="2024-03-02")
    assert first.success
    assert [each.passed for each in first.get_asset_check_evaluations()] == [True, True]
    assert (days(running, "silver.days"), days(running, "gold.names")) == ({2: "a"}, {2: "A"})

    ranged = run(running, "silver.days", "gold.names", key="2024-03-01", last="2024-03-02")
    assert ranged.success
    assert days(running, "gold.names") == {1: "A", 2: "A"}
    assert materialized(running.instance, "gold.names") == ["2024-03-02", "2024-03-01", "2024-03-02"]
    told = running.materialization("silver.days").metadata
    assert told["reason"].value == "a window is rebuilt: 2024-03-01 … 2024-03-03"

    names = ("silver.days", "gold.names")
    by_the_clock = run(running, *names, key="2024-03-05", **since_the_mark(names))
    assert by_the_clock.success
    assert days(running, "gold.names") == {1: "A", 2: "A", 3: "A"}
    assert running.run("gold.counts").success
    assert running.rows("gold.counts") == [{"n": 3}]


def test_a_blocking_check_keeps_a_window_back(running: Running) -> None:
    before = running.rows("silver.days")
    running.deliver(4, "")
    done = run(running, "silver.days", "gold.names", key="2024-03-04")
    assert not done.success
    assert running.rows("silver.days") == before
    assert [event.step_key for event in done.all_events if event.is_step_start] == ["silver__days"]


def test_the_engine_runs_models_in_order_and_skips_those_that_read_a_failed_one(running: Running) -> None:
    """The seed's own entrance; it orders by the project's graph."""
    results = ExecutionEngine(running.platform, running.load()).execute_models()
    assert [(each.name, each.status) for each in results] == [
        ("silver.days", "failed"),
        ("gold.names", "skipped"),
        ("gold.counts", "skipped"),
    ]
    assert "which did not run" in str(results[1].error)
