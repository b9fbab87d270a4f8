"""Verdicts as Dagster takes them."""

from dagster import AssetCheckResult, AssetKey, MetadataValue

from tidemark.checks import CheckResult


def reported(result: CheckResult, asset: AssetKey | None = None) -> AssetCheckResult:
    return AssetCheckResult(
        asset_key=asset,
        check_name=result.name,
        passed=result.passed,
        description=result.summary,
        metadata={
            name: MetadataValue.json(value) if isinstance(value, list) else value for name, value in result.facts.items()
        },
    )
