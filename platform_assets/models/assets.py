"""Each model as an asset with its checks. The engine stages, checks, publishes and moves the mark; this reports it."""

import warnings
from collections.abc import Iterable, Iterator, Set
from datetime import UTC
from typing import Any

from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetDep,
    AssetExecutionContext,
    AssetsDefinition,
    AssetSpec,
    BackfillPolicy,
    BetaWarning,
    Config,
    MaterializeResult,
    MetadataValue,
    SpecificPartitionsPartitionMapping,
    TimeWindowPartitionMapping,
    multi_asset,
)
from pydantic import Field

from partitions.models import windows
from platform_assets.automation import OWNERS
from platform_assets.checks import reported
from platform_assets.keys import model_key
from platform_assets.models.metadata import (
    column_schema,
    definition_metadata,
    key_of,
    lineage_metadata,
)
from resources.models import ModelsResource
from tidemark.checks import CheckResult
from tidemark.errors import ChecksFailed
from tidemark.models.checks import ModelCheck
from tidemark.models.graph import Project
from tidemark.models.place import ModelPlace
from tidemark.models.project import Model
from tidemark.models.results import ModelResult
from tidemark.models.windows import TimeWindow

Event = AssetCheckResult | MaterializeResult[None]


class ModelOptions(Config):
    """How to run this time."""

    full: bool = Field(default=False, description="Rebuild the table from the whole query, whatever the state says.")
    since_mark: bool = Field(
        default=False, description="Bring all that is new, whatever partition the run is of: what a run by the clock does."
    )


def group(model: Model) -> str:
    return f"models_{model.schema}"


def op_name(name: str) -> str:
    return name.replace(".", "__")


def model_asset(project: Project, model: Model) -> AssetsDefinition:
    """The asset of one model."""
    key, checks = model_key(model.name), model.metadata.checks
    spec = AssetSpec(
        key,
        deps=dependencies(project, model),
        description=model.metadata.description or f"The query {model.path.name} of the project, as a {kind(model)}.",
        group_name=group(model),
        kinds={"spark", "sql", "iceberg"},
        owners=[model.metadata.owner] if model.metadata.owner else OWNERS,
        tags=dict.fromkeys(model.metadata.tags, ""),
        metadata=definition_metadata(model),
        partitions_def=windows(model.metadata.partitions) if model.metadata.partitions else None,
    )

    # Subsets allow what a run leaves out: without a change nothing is checked, and checks can be requested alone.
    @multi_asset(
        name=op_name(model.name),
        specs=[spec],
        check_specs=[check_spec(model, check) for check in checks],
        can_subset=True,
        # One run of a model at a time: a second one waits in the queue.
        pool=ModelPlace(model.name).address,
        # Windows that follow each other are one, and published as one.
        backfill_policy=BackfillPolicy.single_run() if model.metadata.partitions else None,
    )
    def run_model(context: AssetExecutionContext, config: ModelOptions, models: ModelsResource) -> Iterator[Event]:
        asked = {check.name for check in context.selected_asset_check_keys}
        if key not in context.selected_asset_keys:
            yield from told(models.check(model.name), model, asked)
            return
        try:
            window = window_of(context, config) if model.metadata.partitions else None
            result = models.run(context, model.name, full=config.full, window=window)
        except ChecksFailed as failed:
            yield from told(failed.results, model, asked)
            raise
        yield from told(result.checks, model, asked)
        yield MaterializeResult(asset_key=key, metadata=run_metadata(models, result))

    return run_model


def window_of(context: AssetExecutionContext, config: ModelOptions) -> TimeWindow | None:
    """The window of the run's partitions; None for a run that brings what is new, or everything."""
    of_partitions = context.has_partition_key or context.has_partition_key_range
    if config.full or config.since_mark or not of_partitions:
        return None
    asked = context.partition_time_window
    return TimeWindow(asked.start.astimezone(UTC), asked.end.astimezone(UTC))


def kind(model: Model) -> str:
    return "view" if model.metadata.materialization == "view" else "table"


def dependencies(project: Project, model: Model) -> list[AssetDep]:
    """The assets that its query reads; of a stream, only the tenants whose tables it names."""
    tenants: dict[Any, list[str]] = {}
    for bronze in project.streams(model.name):
        tenants.setdefault(key_of(project, bronze.name), []).append(bronze.place.tenant)
    streams = [
        AssetDep(key, partition_mapping=SpecificPartitionsPartitionMapping(sorted(set(of)))) for key, of in tenants.items()
    ]
    others = [
        AssetDep(key_of(project, name), partition_mapping=overlapping(model, project.models.get(name)))
        for name in model.references
        if name not in project.bronze
    ]
    return [*streams, *others]


def overlapping(model: Model, read: Model | None) -> TimeWindowPartitionMapping | None:
    """Windows of one model depend on those of another that they overlap; where one has none, on all of it."""
    if model.metadata.partitions is None or read is None or read.metadata.partitions is None:
        return None
    with warnings.catch_warnings():
        # Windows may begin earlier here than there, and that option is in beta.
        warnings.simplefilter("ignore", BetaWarning)
        return TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)


# --- checks ----------------------------------------------------------------------------------------------------------


def check_spec(model: Model, check: ModelCheck) -> AssetCheckSpec:
    return AssetCheckSpec(check.name, asset=model_key(model.name), description=description(check), blocking=check.blocking)


def description(check: ModelCheck) -> str:
    columns = ", ".join(check.columns)
    said = {
        "unique": f"No two rows share {columns}.",
        "not_null": f"{columns}: never NULL.",
        "accepted_values": f"{columns} has only the values that are accepted.",
        "relationships": f"Every {columns} is found in {check.relationships.to if check.relationships else ''}.",
        "row_count_change": "The number of rows does not move too far in one run.",
    }[check.kind]
    return f"{said} Only where {check.where}." if check.where else said


def told(results: Iterable[CheckResult], model: Model, asked: Set[str]) -> Iterator[AssetCheckResult]:
    """Verdicts as Dagster takes them; one that blocks nothing is a warning. The engine judges also what nobody requested."""
    blocking = {check.name for check in model.metadata.checks if check.blocking}
    for result in (each for each in results if each.name in asked):
        severity = AssetCheckSeverity.ERROR if result.name in blocking else AssetCheckSeverity.WARN
        yield reported(_plain(result), model_key(model.name))._replace(severity=severity)


def _plain(result: CheckResult) -> CheckResult:
    """Without numbers that there are none of: Dagster knows no None among facts."""
    facts = {name: value for name, value in result.facts.items() if value is not None}
    return CheckResult(result.name, result.passed, result.summary, facts)


# --- what a run did --------------------------------------------------------------------------------------------------


def run_metadata(models: ModelsResource, result: ModelResult) -> dict[str, Any]:
    project = models.project
    lineage = models.lineage(project, result.name)
    shown: dict[str, Any] = {
        "dagster/table_name": f"lake.{result.name}",
        "dagster/column_schema": column_schema(models.columns(result.name), lineage),
        **lineage_metadata(project, lineage),
        "action": result.action,
        "reason": str(result.reason),
        "plan": MetadataValue.md(steps_told(result)),
        "seconds": max(result.seconds.values(), default=0.0),
        **{f"rows {what}": count for what, count in result.rows.items()},
    }
    rows = models.rows(result.name)
    return shown if rows is None else shown | {"dagster/row_count": rows}


def steps_told(result: ModelResult) -> str:
    """What was decided and why, as a list that people read."""
    lines = [f"{result.action}: {result.reason}"]
    lines += [f"{'**destructive** ' if step.destructive else ''}{step.words}" for step in result.steps]
    lines += [f"warning: {warning}" for warning in result.warnings]
    return "\n".join(f"- {line}" for line in lines)
