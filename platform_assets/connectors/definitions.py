"""What Dagster knows of connectors: assets and checks per stream; jobs, schedules and a sensor per connector."""

from dagster import AssetChecksDefinition, AssetSelection, Definitions, define_asset_job

from platform_assets.connectors.assets import group, stream_assets
from platform_assets.connectors.automation import at_their_time, on_arrival, upkeep
from tidemark.config import Config
from tidemark.connectors.contract import CheckpointConnector
from tidemark.connectors.manifest import Manifest
from tidemark.connectors.manifests import load_manifests
from tidemark.connectors.registry import connector_class


def ingest_definitions(config: Config) -> Definitions:
    """Everything that the configuration's manifests describe."""
    return Definitions.merge(Definitions(), *(of_connector(config, each) for each in load_manifests(config).values()))


def of_connector(config: Config, manifest: Manifest) -> Definitions:
    made = [each for stream in manifest.streams for each in stream_assets(config, manifest, stream)]
    name = group(manifest.connector)
    ingest = define_asset_job(
        name,
        selection=AssetSelection.groups(name),
        description=f"Brings all streams of {manifest.connector} up to date, for one tenant.",
    )
    cleaning = upkeep(config, manifest)
    cleaned = f"Cleans up behind the runs of {manifest.connector}, for every tenant."
    schedules = [at_their_time(config, cleaning, f"{name}_upkeep", manifest.upkeep, cleaned)]
    if manifest.schedule:
        brought = f"Brings {manifest.connector} up to date for every tenant."
        schedules.append(at_their_time(config, ingest, name, manifest.schedule, brought))
    tells = issubclass(connector_class(manifest.kind), CheckpointConnector)
    return Definitions(
        assets=[each for each in made if not isinstance(each, AssetChecksDefinition)],
        asset_checks=[each for each in made if isinstance(each, AssetChecksDefinition)],
        jobs=[ingest, cleaning],
        schedules=schedules,
        sensors=[on_arrival(config, manifest, ingest)] if tells else [],
    )
