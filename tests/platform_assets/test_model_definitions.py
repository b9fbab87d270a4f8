"""Models in Dagster: what the definitions say, without running any."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetKey,
    DagsterInstance,
    DefaultScheduleStatus,
    Definitions,
    RunRequest,
    SkipReason,
    SpecificPartitionsPartitionMapping,
    TimeWindowPartitionsDefinition,
    build_schedule_context,
)
from dagster._core.definitions.partitions.context import partition_loading_context

from platform_assets.connectors.definitions import ingest_definitions
from platform_assets.models.definitions import model_definitions
from resources.connectors import ConnectorsResource
from resources.models import ModelsResource
from resources.platform import PlatformResource
from resources.tags import subjects_of
from tests.models.folder import CARTS, Folder
from tidemark.config import load_config
from tidemark.errors import ConfigError
from tidemark.models.graph import load_project

pytestmark = pytest.mark.fast

NOW = datetime(2026, 3, 3, 12, tzinfo=UTC)

HEADER = """\
/* ---
description: Carts as they are now
owner: team:shop
tags: [nightly]
schedule: "*/15 * * * *"
materialization: incremental
incremental: {strategy: merge, merge: {unique_key: cart_id}, on_schema_change: append_new_columns}
checks:
  - unique: cart_id
  - accepted_values: {column: state, values: [open]}
    where: cart_id > 1
    blocking: false
--- */
"""


@pytest.fixture
def written(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.configure(models={"folder": "models", "external": ["legacy.*"]}, tenants=["default", "t2", "t3"])
    other = CARTS.replace("default", "t3")
    query = f"SELECT record.cart_id, 'open' AS state FROM {CARTS} UNION ALL SELECT 1, 'open' FROM {other}"
    folder.write("silver/carts.sql", HEADER + query)
    folder.write("gold/totals.sql", "SELECT count(*) AS n FROM silver.carts JOIN legacy.orders USING (cart_id)")
    return folder


def definitions(folder: Folder) -> Definitions:
    config, platform = load_config(folder.config), PlatformResource()
    resources = {"connectors": ConnectorsResource(platform=platform), "models": ModelsResource(platform=platform)}
    return Definitions.merge(Definitions(resources=resources), ingest_definitions(config), model_definitions(config))


def test_a_model_is_an_asset_of_its_schema_behind_what_it_reads(written: Folder) -> None:
    graph = definitions(written).resolve_asset_graph()
    carts, totals = graph.get(AssetKey(["silver", "carts"])), graph.get(AssetKey(["gold", "totals"]))
    assert {key.to_user_string() for key in carts.parent_keys} == {"shop/shop_carts/bronze"}
    assert {key.to_user_string() for key in totals.parent_keys} == {"silver/carts", "legacy/orders"}
    assert (carts.group_name, totals.group_name) == ("models_silver", "models_gold")
    assert carts.description == "Carts as they are now"
    assert totals.description
    assert (carts.owners, totals.owners) == (["team:shop"], ["team:data-platform"])
    assert "nightly" in carts.tags
    assert carts.kinds >= {"spark", "iceberg", "sql"}


def test_of_a_stream_only_the_tenants_count_whose_tables_are_named(written: Folder) -> None:
    graph = definitions(written).resolve_asset_graph()
    mapping = graph.get(AssetKey(["silver", "carts"])).partition_mappings[AssetKey(["shop", "shop_carts", "bronze"])]
    assert mapping == SpecificPartitionsPartitionMapping(["default", "t3"])


def test_policy_strategy_and_query_are_shown_before_any_run(written: Folder) -> None:
    told = definitions(written).resolve_asset_graph().get(AssetKey(["silver", "carts"])).metadata
    assert told["on_schema_change"] == "append_new_columns"
    assert told["strategy"] == "merge"
    assert told["dagster/table_name"] == "lake.silver.carts"
    assert f"FROM lake.{CARTS}" in told["query"].md_str


def test_checks_of_a_model_are_checks_of_its_asset(written: Folder) -> None:
    graph = definitions(written).resolve_asset_graph()
    found = {
        node.key.name: (node.blocking, node.description) for node in graph.asset_check_nodes if "silver" in str(node.key)
    }
    assert found == {
        "unique__cart_id": (True, "No two rows share cart_id."),
        "accepted_values__state": (False, "state has only the values that are accepted. Only where cart_id > 1."),
    }


def by_the_clock(scheduled: Any, folder: Folder, now: datetime = NOW) -> Any:
    """What a schedule asks for."""
    models = ModelsResource(platform=PlatformResource(config_path=str(folder.config)))
    with (
        DagsterInstance.local_temp(str(folder.path)) as instance,
        build_schedule_context(instance, scheduled_execution_time=now, resources={"models": models}) as context,
    ):
        return scheduled(context)


def test_one_job_runs_all_models_and_a_schedule_one_of_them(written: Folder) -> None:
    made = definitions(written)
    job = made.resolve_job_def("models")
    assert {key.to_user_string() for key in job.asset_layer.executable_asset_keys} == {"silver/carts", "gold/totals"}
    (scheduled,) = [each for each in made.schedules or [] if each.name.startswith("model_")]
    assert (scheduled.name, scheduled.cron_schedule) == ("model_silver__carts", "*/15 * * * *")  # type: ignore[union-attr]
    assert scheduled.default_status == DefaultScheduleStatus.RUNNING  # type: ignore[union-attr]
    asked = by_the_clock(scheduled, written)
    assert isinstance(asked, RunRequest)
    assert subjects_of(asked.tags) == ["model/silver.carts"]
    assert [key.to_user_string() for key in asked.asset_selection or []] == ["silver/carts"]


def daily(by: str = "day", start: str = "2026-03-01", schedule: str = "") -> str:
    """The header of a model whose windows can be made anew."""
    return f"""\
/* ---
materialization: incremental
incremental: {{strategy: delete_insert, delete_insert: {{filter_column: at}}}}
partitions: {{by: {by}, start: {start}}}
{schedule and f'schedule: "{schedule}"'}
--- */
"""


@pytest.fixture
def windowed(written: Folder) -> Folder:
    """By day, by day from those, by month from those, all of those, and carts of two tenants without windows."""
    carts = f"{CARTS} UNION ALL SELECT now(), 1 FROM {CARTS.replace('default', 't3')}"
    written.write("silver/days.sql", daily(schedule="0 3 * * *") + f"SELECT now() AS at, record.cart_id FROM {carts}")
    written.write("gold/days.sql", daily(start="2026-02-01") + "SELECT at, count(*) AS n FROM silver.days GROUP BY at")
    written.write("gold/months.sql", daily("month", "2026-01-01") + "SELECT at, n FROM gold.days")
    written.write("gold/all.sql", "SELECT sum(n) AS n FROM gold.days")
    return written


def needed(folder: Folder, child: str, key: str | None, parent: str) -> set[str]:
    """The partitions of one asset that a partition of another is made from."""
    graph = definitions(folder).resolve_asset_graph()
    below, above = (graph.get(AssetKey(each.split("/"))) for each in (child, parent))
    mapping = graph.get_partition_mapping(below.key, parent_asset_key=above.key)
    assert above.partitions_def is not None
    subset = below.partitions_def.subset_with_partition_keys([key]) if below.partitions_def and key else None
    with partition_loading_context(effective_dt=NOW):
        found = mapping.get_upstream_mapped_partitions_result_for_partitions(
            subset, below.partitions_def, above.partitions_def
        )
        return set(found.partitions_subset.get_partition_keys())


def test_windows_are_partitions_of_time_up_to_the_one_under_way(windowed: Folder) -> None:
    graph = definitions(windowed).resolve_asset_graph()
    days = graph.get(AssetKey(["silver", "days"]))
    assert isinstance(days.partitions_def, TimeWindowPartitionsDefinition)
    with partition_loading_context(effective_dt=NOW):
        assert list(days.partitions_def.get_partition_keys()) == ["2026-03-01", "2026-03-02", "2026-03-03"]
    assert str(days.metadata["partitions"]) == "by day of at"
    assert graph.get(AssetKey(["silver", "carts"])).partitions_def is None


def test_windows_depend_on_those_they_overlap_and_all_else_on_everything(windowed: Folder) -> None:
    assert needed(windowed, "gold/days", "2026-03-02", "silver/days") == {"2026-03-02"}
    assert needed(windowed, "gold/days", "2026-02-02", "silver/days") == set(), "silver begins later"
    february = needed(windowed, "gold/months", "2026-02-01", "gold/days")
    assert len(february) == 28
    assert needed(windowed, "silver/days", "2026-03-02", "shop/shop_carts/bronze") == {"default", "t3"}
    assert len(needed(windowed, "gold/all", None, "gold/days")) == 31


def test_models_of_the_same_windows_share_a_job(windowed: Folder) -> None:
    jobs = {each.name: each for each in definitions(windowed).jobs or []}
    found = {
        name: {key.to_user_string() for key in definitions(windowed).resolve_job_def(name).asset_layer.executable_asset_keys}
        for name in jobs
        if name.startswith("models")
    }
    assert found == {
        "models": {"silver/carts", "gold/totals", "gold/all"},
        "models_by_day_from_2026_03_01": {"silver/days"},
        "models_by_day_from_2026_02_01": {"gold/days"},
        "models_by_month_from_2026_01_01": {"gold/months"},
    }


def test_a_run_by_the_clock_is_of_the_window_of_now_and_brings_all_that_is_new(windowed: Folder) -> None:
    (scheduled,) = [each for each in definitions(windowed).schedules or [] if each.name == "model_silver__days"]
    asked = by_the_clock(scheduled, windowed)
    assert isinstance(asked, RunRequest)
    assert asked.partition_key == "2026-03-03"
    assert asked.run_config == {"ops": {"silver__days": {"config": {"full": False, "since_mark": True}}}}
    assert isinstance(by_the_clock(scheduled, windowed, NOW.replace(year=2025)), SkipReason)


def test_a_model_has_a_pool_of_its_own(written: Folder) -> None:
    graph = definitions(written).resolve_asset_graph()
    assert graph.get(AssetKey(["silver", "carts"])).pools == {"model/silver.carts"}


def test_without_a_folder_there_is_no_job(written: Folder) -> None:
    written.configure()
    assert not model_definitions(load_config(written.config)).jobs


def test_a_model_that_cannot_be_read_leaves_out_itself_and_what_reads_it(written: Folder) -> None:
    written.write("silver/other.sql", "SELECT 1 AS one")
    written.write("silver/carts.sql", "SELECT FROM")
    assets = model_definitions(load_config(written.config)).assets
    assert {key.to_user_string() for each in assets for key in each.keys} == {"silver/other"}
    with pytest.raises(ConfigError, match=r"models/silver/carts\.sql:1: this is not Spark SQL"):
        load_project(load_config(written.config)).find("silver.carts")
    with pytest.raises(ConfigError, match=r"totals\.sql:1: it reads silver\.carts, and model/silver\.carts is broken"):
        load_project(load_config(written.config)).find("gold.totals")
