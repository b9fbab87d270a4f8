"""The catalogue as assets: databases, schemas, tables → columns → current_state → incremental_diff → marker."""

from collections.abc import Iterator

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetOut,
    Config,
    MaterializeResult,
    MetadataValue,
    Output,
    asset,
    multi_asset,
)
from pydantic import Field

from partitions.catalog import connections
from platform_assets.automation import OWNERS
from resources.catalog import CatalogResource, MarkerResource
from spark_code.catalog.diff import IncrementalDiff
from spark_code.catalog.state import StagedState
from spark_code.parts import Parts
from tidemark.catalog.rows import Label

GROUP = "catalog"


class RunOptions(Config):
    """How to run this time."""

    full: bool = Field(default=False, description="Read everything, whatever the marker says.")
    allow_removals: bool = Field(default=False, description="Go on even if more tables were removed than the guard allows.")


def listed(description: str) -> AssetOut:
    return AssetOut(description=description, group_name=GROUP, kinds={"python"}, owners=OWNERS, io_manager_key="extracts")


def shown(value: object) -> MetadataValue:
    return MetadataValue.json(value) if isinstance(value, dict) else MetadataValue.text(str(value))


@multi_asset(
    name="listing",
    outs={
        "databases": listed("Databases of the connection, as the source lists them."),
        "schemas": listed("Schemas, and whether each could be listed."),
        "tables": listed("Every table in scope with its label: CREATED, UPDATED, BACKFILL, NO CHANGE, REMOVED or UNKNOWN."),
    },
    internal_asset_deps={
        "databases": set(),
        "schemas": {AssetKey("databases")},
        "tables": {AssetKey("schemas")},
    },
    partitions_def=connections,
)
def listing(
    context: AssetExecutionContext, config: RunOptions, catalog: CatalogResource, marker_file: MarkerResource
) -> Iterator[Output[Parts]]:
    """One listing of the source, in one of its snapshots."""
    plan, extracted = catalog.run(context).list_units(force_full=config.full, allow_removals=config.allow_removals)
    found = marker_file.shown(context.partition_key)
    facts = {"mode": str(plan.mode), "reason": str(plan.reason), "marker": str(found["marker"])}
    for kind, rows in extracted.items():
        labels = {str(label): rows.count(label) for label in Label if rows.count(label)}
        yield Output(rows, f"{kind}s", metadata=facts | {"labels": MetadataValue.json(labels)})


@asset(group_name=GROUP, kinds={"spark"}, owners=OWNERS, partitions_def=connections, io_manager_key="extracts")
def columns(context: AssetExecutionContext, tables: Parts, catalog: CatalogResource) -> Parts:
    """Columns of the tables that changed, read from the source in batches by Spark tasks."""
    return catalog.run(context).read_columns(tables)


@asset(
    group_name=GROUP,
    kinds={"spark", "iceberg"},
    owners=OWNERS,
    partitions_def=connections,
    io_manager_key="staged_state",
)
def current_state(
    context: AssetExecutionContext,
    databases: Parts,
    schemas: Parts,
    tables: Parts,
    columns: Parts,
    catalog: CatalogResource,
) -> StagedState:
    """The ancestral merge, staged on the run's branch: changed tables replaced, the others carried by reference."""
    del databases, schemas, tables  # the run knows them: what it listed, or lists now if it begins here
    return catalog.run(context).stage(columns)


@asset(group_name=GROUP, kinds={"spark", "json"}, owners=OWNERS, partitions_def=connections, io_manager_key="json_diff")
def incremental_diff(
    context: AssetExecutionContext, current_state: StagedState, catalog: CatalogResource
) -> IncrementalDiff:
    """What this run changed, for programs that follow: fresh tables and columns, and what was removed."""
    return catalog.run(context).diff(current_state)


@asset(group_name=GROUP, kinds={"s3"}, owners=OWNERS, partitions_def=connections, deps=[incremental_diff])
def marker(context: AssetExecutionContext, current_state: StagedState, catalog: CatalogResource) -> MaterializeResult[None]:
    """Verifies once more, publishes the state, mirrors it as JSON, and moves marker.txt: what makes the run count."""
    detail = catalog.run(context).publish(current_state)
    return MaterializeResult(metadata={name: shown(value) for name, value in detail.items()})
