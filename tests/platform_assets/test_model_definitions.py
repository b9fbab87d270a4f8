"""Models in Dagster: what the definitions say, without running any."""

from pathlib import Path

import pytest
from dagster import AssetKey, Definitions, RunRequest, SpecificPartitionsPartitionMapping

from platform_assets.connectors.definitions import ingest_definitions
from platform_assets.models.definitions import model_definitions
from resources.connectors import ConnectorsResource
from resources.models import ModelsResource
from resources.platform import PlatformResource
from tests.models.folder import CARTS, Folder
from tidemark.config import load_config
from tidemark.errors import ConfigError

pytestmark = pytest.mark.fast

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


def test_one_job_runs_all_models_and_a_schedule_one_of_them(written: Folder) -> None:
    made = definitions(written)
    job = made.resolve_job_def("models")
    assert {key.to_user_string() for key in job.asset_layer.executable_asset_keys} == {"silver/carts", "gold/totals"}
    (scheduled,) = [each for each in made.schedules or [] if each.name.startswith("model_")]
    assert (scheduled.name, scheduled.cron_schedule) == ("model_silver__carts", "*/15 * * * *")  # type: ignore[union-attr]
    asked = scheduled()  # type: ignore[operator, misc]
    assert isinstance(asked, RunRequest)
    assert [key.to_user_string() for key in asked.asset_selection or []] == ["silver/carts"]


def test_without_a_folder_there_is_no_job(written: Folder) -> None:
    written.configure()
    assert not model_definitions(load_config(written.config)).jobs


def test_a_model_that_cannot_be_read_is_told_and_not_left_out(written: Folder) -> None:
    written.write("gold/totals.sql", "SELECT FROM")
    with pytest.raises(ConfigError, match=r"models/gold/totals\.sql:1: this is not Spark SQL"):
        model_definitions(load_config(written.config))
