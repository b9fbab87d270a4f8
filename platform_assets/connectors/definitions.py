"""What Dagster knows of connectors: assets and checks per stream; a job, a schedule and sensors per connector."""

from dagster import AssetChecksDefinition, AssetSelection, Definitions, define_asset_job

from platform_assets.connectors.assets import group, stream_assets
from platform_assets.connectors.automation import scheduled, watched
from platform_assets.connectors.freshness import freshness_check, freshness_sensor
from tidemark.config import Config
from tidemark.connectors.contract import CheckpointConnector
from tidemark.connectors.manifest import Manifest
from tidemark.connectors.manifests import load_manifests
from tidemark.connectors.registry import connector_class


def ingest_definitions(config: Config) -> Definitions:
    """Everything that the configuration's manifests describe."""
    manifests = load_manifests(config).values()
    promised = [each for each in manifests if each.freshness is not None]
    fresh = Definitions(sensors=[freshness_sensor(config, promised)] if promised else [])
    return Definitions.merge(fresh, *(of_connector(config, each) for each in manifests))


def of_connector(config: Config, manifest: Manifest) -> Definitions:
    made = [each for stream in manifest.streams for each in stream_assets(config, manifest, stream)]
    if manifest.freshness is not None:
        made += [freshness_check(config, manifest, stream, manifest.freshness) for stream in manifest.streams]
    name = group(manifest.connector)
    ingest = define_asset_job(
        name,
        selection=AssetSelection.groups(name),
        description=f"Brings all streams of {manifest.connector} up to date, for one tenant.",
    )
    has_checkpoints = issubclass(connector_class(manifest.kind), CheckpointConnector)
    return Definitions(
        assets=[each for each in made if not isinstance(each, AssetChecksDefinition)],
        asset_checks=[each for each in made if isinstance(each, AssetChecksDefinition)],
        jobs=[ingest],
        schedules=[scheduled(config, manifest, ingest, manifest.schedule)] if manifest.schedule else [],
        sensors=[watched(config, manifest, ingest, manifest.watch)] if manifest.watch and has_checkpoints else [],
    )
