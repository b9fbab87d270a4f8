"""All of Tidemark's Dagster definitions."""

from dagster import Definitions, in_process_executor

from platform_assets.catalog import assets, automation, checks
from platform_assets.catalog.jobs import catalog_job, catalog_upkeep
from platform_assets.connectors.definitions import ingest_definitions
from resources.catalog import CatalogResource, MarkerResource
from resources.connectors import ConnectorsResource
from resources.io_managers import ExtractsIOManager, JsonDiffIOManager, StagedStateIOManager
from resources.platform import PlatformResource, open_platform

platform = PlatformResource()
catalog = CatalogResource(platform=platform)

of_the_catalogue = Definitions(
    assets=[assets.listing, assets.columns, assets.current_state, assets.incremental_diff, assets.marker],
    asset_checks=[checks.state_checks, checks.diff_agrees_with_state],
    jobs=[catalog_job, catalog_upkeep],
    schedules=automation.schedules(open_platform(None).config),
    sensors=[automation.connections_in_step, automation.sources_changed, automation.failure_told],
    # One process, one Spark session: a process per step would cost a new JVM each.
    executor=in_process_executor,
    resources={
        "platform": platform,
        "catalog": catalog,
        "connectors": ConnectorsResource(platform=platform),
        "marker_file": MarkerResource(catalog=catalog),
        "extracts": ExtractsIOManager(catalog=catalog),
        "staged_state": StagedStateIOManager(catalog=catalog),
        "json_diff": JsonDiffIOManager(catalog=catalog),
    },
)

defs = Definitions.merge(of_the_catalogue, ingest_definitions(open_platform(None).config))
