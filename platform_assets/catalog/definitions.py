"""What Dagster knows of the catalogue."""

from dagster import Definitions

from platform_assets.catalog import assets, automation, checks
from platform_assets.catalog.jobs import catalog_job
from tidemark.config import Config


def catalog_definitions(config: Config) -> Definitions:
    return Definitions(
        assets=[assets.listing, assets.columns, assets.current_state, assets.incremental_diff, assets.marker],
        asset_checks=[checks.state_checks, checks.diff_agrees_with_state],
        jobs=[catalog_job],
        schedules=automation.schedules(config),
        sensors=automation.watches(config),
    )
