"""Blocking checks: what a staged state and its diff must satisfy before the marker may be materialised."""

from collections.abc import Iterator

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetCheckSpec,
    asset_check,
    multi_asset_check,
)

from partitions.catalog import connections
from platform_assets.catalog.assets import current_state, incremental_diff
from platform_assets.checks import reported
from resources.catalog import CatalogResource
from tidemark.catalog.checks import CHECKS

WHAT = {
    "decision_matrix": "Every unit is in the state as its label says: fresh as read, carried as before, removed ones gone.",
    "no_orphan_columns": "Every column belongs to a table of the state.",
    "no_duplicate_names": "Every qualified name is unique.",
    "counts_add_up": "Columns: previous − dropped + fresh = staged.",
    "carried_unchanged": "Columns of NO CHANGE tables are byte for byte what they were.",
    "removals_within_guard": "No more tables were removed than the guard allows.",
}


@multi_asset_check(
    name="state_checks",
    specs=[
        AssetCheckSpec(name, asset=current_state, description=WHAT[name], blocking=True, partitions_def=connections)
        for name in CHECKS
    ],
)
def state_checks(context: AssetCheckExecutionContext, catalog: CatalogResource) -> Iterator[AssetCheckResult]:
    """Judges the staged state with DuckDB over what pyiceberg reads."""
    run = catalog.run(context)
    with run.step("checks"):
        yield from map(reported, run.verify(run.staged))


@asset_check(asset=incremental_diff, blocking=True, partitions_def=connections)
def diff_agrees_with_state(context: AssetCheckExecutionContext, catalog: CatalogResource) -> AssetCheckResult:
    """The diff holds exactly what the staged state changed."""
    run = catalog.run(context)
    with run.step("checks"):
        return reported(run.verify_diff(run.staged))
