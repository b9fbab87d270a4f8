"""Each stream as two assets: what a run landed on its branch, and Bronze, which is published before the state moves."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    Config,
    FreshnessPolicy,
    MaterializeResult,
    MetadataValue,
    TableColumn,
    TableSchema,
    asset,
    multi_asset_check,
)
from pydantic import Field

from partitions.connectors import tenants
from platform_assets.catalog.checks import reported
from resources.connectors import ConnectorsResource
from tidemark import config as configuration
from tidemark.connectors import lateness
from tidemark.connectors.manifest import Manifest
from tidemark.connectors.place import plain
from tidemark.connectors.stream import StreamSpec
from tidemark.connectors.verification import CHECKS

OWNERS = ["team:data-platform"]


class IngestOptions(Config):
    """How to run this time."""

    full: bool = Field(default=False, description="Read everything, whatever the state says.")
    allow_deletions: bool = Field(default=False, description="Delete even if more records went than the guard allows.")


def landed_key(connector: str, stream: str) -> AssetKey:
    return AssetKey([plain(connector), plain(stream), "landed"])


def bronze_key(connector: str, stream: str) -> AssetKey:
    return AssetKey([plain(connector), plain(stream), "bronze"])


def group(connector: str) -> str:
    return f"ingest_{plain(connector)}"


def stream_assets(config: configuration.Config, manifest: Manifest, stream: StreamSpec) -> list[Any]:
    """The assets and checks of one stream."""
    partitions = tenants(config)
    common: dict[str, Any] = {"group_name": group(manifest.connector), "owners": OWNERS, "partitions_def": partitions}
    landed_at, bronze_at = landed_key(manifest.connector, stream.id), bronze_key(manifest.connector, stream.id)

    @asset(key=landed_at, kinds={"spark", manifest.kind}, **common)
    def landed(
        context: AssetExecutionContext, config: IngestOptions, connectors: ConnectorsResource
    ) -> MaterializeResult[None]:
        run = connectors.run(context, manifest.connector, stream.id)
        with run.step("plan"):
            plan = run.plan(full=config.full, allow_deletions=config.allow_deletions)
        with run.step("land"):
            staged = run.land(plan)
        return MaterializeResult(
            metadata={
                "dagster/row_count": staged.landed,
                "read": staged.read,
                "slices": len(staged.slices),
                "quarantined": sum(each.quarantined for each in staged.slices),
                "dagster/column_schema": TableSchema([TableColumn(each.name, str(each.type)) for each in plan.schema]),
            }
        )

    landed_description = f"What a run read of {stream.id} and landed on its branch; not yet to be seen by readers."

    @multi_asset_check(
        name=f"{plain(manifest.connector)}__{plain(stream.id)}__checks",
        specs=[
            AssetCheckSpec(name, asset=landed_at, description=what, blocking=True, partitions_def=partitions)
            for name, what in CHECKS.items()
        ],
    )
    def checks(context: AssetCheckExecutionContext, connectors: ConnectorsResource) -> Iterator[AssetCheckResult]:
        run = connectors.run(context, manifest.connector, stream.id)
        with run.step("checks"):
            yield from (reported(result, landed_at) for result in run.verify())

    @asset(key=bronze_at, kinds={"iceberg"}, deps=[landed_at], freshness_policy=freshness(manifest), **common)
    def bronze(context: AssetExecutionContext, connectors: ConnectorsResource) -> MaterializeResult[None]:
        run = connectors.run(context, manifest.connector, stream.id)
        run.publish()
        place, told = run.subject.place, run.told()
        late = told.pop("late")
        return MaterializeResult(
            metadata={
                "dagster/table_name": f"lake.{place.table}",
                "latest": f"lake.{place.latest}",
                "changes": f"lake.{place.changes}",
                "key": MetadataValue.text(", ".join(stream.key)),
                **told,
                "late": MetadataValue.md(lateness.markdown(late)),
            }
        )

    bronze_description = f"Every version of the records of {stream.id}, each once. Published before the state moves."
    return [described(landed, landed_description), checks, described(bronze, bronze_description)]


def freshness(manifest: Manifest) -> FreshnessPolicy | None:
    """How old the last run may be, where the manifest says so."""
    if manifest.freshness is None:
        return None
    return FreshnessPolicy.time_window(fail_window=timedelta(microseconds=manifest.freshness.nanoseconds // 1000))


def described(definition: AssetsDefinition, text: str) -> AssetsDefinition:
    return definition.map_asset_specs(lambda spec: spec.replace_attributes(description=text))
