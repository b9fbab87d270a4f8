"""What Dagster knows of connectors: assets and checks per stream, a job and a schedule per connector."""

from dagster import AssetChecksDefinition, AssetSelection, Definitions, RunRequest, define_asset_job, schedule

from platform_assets.catalog.automation import AGAIN
from platform_assets.connectors.assets import group, stream_assets
from tidemark.config import Config
from tidemark.connectors.manifest import Manifest
from tidemark.connectors.manifests import load_manifests


def ingest_definitions(config: Config) -> Definitions:
    """Everything that the configuration's manifests describe."""
    return Definitions.merge(Definitions(), *(of_connector(config, each) for each in load_manifests(config).values()))


def of_connector(config: Config, manifest: Manifest) -> Definitions:
    made = [each for stream in manifest.streams for each in stream_assets(config, manifest, stream)]
    job = define_asset_job(
        group(manifest.connector),
        selection=AssetSelection.groups(group(manifest.connector)),
        description=f"Brings all streams of {manifest.connector} up to date, for one tenant.",
    )

    @schedule(
        job=job, cron_schedule=manifest.schedule or "@daily", execution_timezone="UTC", name=group(manifest.connector),
        description=f"Brings {manifest.connector} up to date for every tenant.",
    )  # fmt: skip
    def at_its_time() -> list[RunRequest]:
        return [
            RunRequest(partition_key=tenant, tags={"tidemark/started-by": "schedule"} | AGAIN) for tenant in config.tenants
        ]

    return Definitions(
        assets=[each for each in made if not isinstance(each, AssetChecksDefinition)],
        asset_checks=[each for each in made if isinstance(each, AssetChecksDefinition)],
        jobs=[job],
        schedules=[at_its_time] if manifest.schedule else [],
    )
