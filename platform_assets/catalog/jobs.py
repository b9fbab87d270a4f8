"""The job of the catalogue, one connection a run."""

from dagster import AssetSelection, define_asset_job

from platform_assets.catalog.assets import GROUP

catalog_job = define_asset_job(
    "catalog",
    selection=AssetSelection.groups(GROUP),
    description="List, read what changed, stage, check, publish, and move the marker of one connection.",
)
