"""Each stream as two assets: what a run landed on its branch, and Bronze, which is published before the state moves."""

from collections.abc import Iterator
from typing import Any

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    Config,
    MaterializeResult,
    MetadataValue,
    TableColumn,
    TableSchema,
    asset,
    multi_asset_check,
)
from pydantic import Field

from partitions.connectors import tenants
from platform_assets.automation import OWNERS
from platform_assets.checks import reported
from platform_assets.keys import bronze_key, landed_key
from resources.connectors import ConnectorsResource
from tidemark import config as configuration
from tidemark.address import Address
from tidemark.connectors import lateness
from tidemark.connectors.manifest import Manifest
from tidemark.connectors.place import plain
from tidemark.connectors.stream import StreamSpec
from tidemark.connectors.verification import CHECKS


class IngestOptions(Config):
    """How to run this time."""

    full: bool = Field(default=False, description="Read everything, whatever the state says.")
    allow_deletions: bool = Field(
        default=False, description="Delete even if more records were removed than the guard allows."
    )


def group(connector: str) -> str:
    return f"ingest_{plain(connector)}"


def stream_assets(config: configuration.Config, manifest: Manifest, stream: StreamSpec) -> list[Any]:
    """The assets and checks of one stream."""
    partitions = tenants(config)
    # With one tenant the stream is one subject, and a second run of it waits in the queue. A pool of several would make them
    # wait for each other: there the lease alone keeps two runs of one subject apart.
    pool = str(Address.stream(config.tenants[0], manifest.connector, stream.id)) if len(config.tenants) == 1 else None
    common: dict[str, Any] = {
        "group_name": group(manifest.connector), "owners": OWNERS, "partitions_def": partitions, "pool": pool,
    }  # fmt: skip
    landed_at, bronze_at = landed_key(manifest.connector, stream.id), bronze_key(manifest.connector, stream.id)

    @asset(key=landed_at, kinds={"spark", manifest.kind}, **common)  # type: ignore[untyped-decorator]
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
        run = connectors.run(context, manifest.connector, stream.id, **requested(context, landed_at))
        with run.step("checks"):
            yield from (reported(result, landed_at) for result in run.verify())

    @asset(key=bronze_at, kinds={"iceberg"}, deps=[landed_at], **common)  # type: ignore[untyped-decorator]
    def bronze(context: AssetExecutionContext, connectors: ConnectorsResource) -> MaterializeResult[None]:
        run = connectors.run(context, manifest.connector, stream.id, **requested(context, landed_at))
        run.publish()
        place, did = run.subject.place, run.summary()
        return MaterializeResult(
            metadata={
                "dagster/table_name": f"lake.{place.table}",
                "latest": f"lake.{place.latest}",
                "changes": f"lake.{place.changes}",
                "key": MetadataValue.text(", ".join(stream.key)),
                "slices": did["slices"],
                **did["rows"],
                "late": MetadataValue.md(lateness.markdown(did["late"])),
            }
        )

    bronze_description = f"Every version of the records of {stream.id}, each once. Published before the state moves."
    return [described(landed, landed_description), checks, described(bronze, bronze_description)]


def requested(context: AssetCheckExecutionContext | AssetExecutionContext, landed: AssetKey) -> dict[str, bool]:
    """What the run was requested to do, as `landed` got it: a retry may begin behind it."""
    steps: Any = context.run.run_config.get("ops", {})
    config: dict[str, bool] = steps.get("__".join(landed.path), {}).get("config", {})
    return IngestOptions(**config).model_dump()


def described(definition: AssetsDefinition, text: str) -> AssetsDefinition:
    return definition.map_asset_specs(lambda spec: spec.replace_attributes(description=text))
