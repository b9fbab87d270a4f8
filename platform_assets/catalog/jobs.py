"""The jobs of the catalogue, one connection a run: the run itself, and its upkeep."""

from dagster import AssetSelection, Failure, In, MetadataValue, Nothing, OpExecutionContext, define_asset_job, job, op

from partitions.catalog import connections
from platform_assets.catalog.assets import GROUP
from resources.catalog import CatalogResource
from spark_code.catalog.audit import audit
from spark_code.catalog.maintenance import maintain
from tidemark.checks import failed

catalog_job = define_asset_job(
    "catalog",
    selection=AssetSelection.groups(GROUP),
    description="List, read what changed, stage, check, publish, and move the marker of one connection.",
)


@op
def compare_everything(context: OpExecutionContext, catalog: CatalogResource) -> None:
    """All checks against what is published, every row of it: what `tidemark check --full` does."""
    results = audit(catalog.subject(context.partition_key), whole=True)
    for result in results:
        context.log.info(f"{result.name}: {'passed' if result.passed else 'FAILED'}, {result.summary}")
    wrong = failed(results)
    if wrong:
        told = "; ".join(f"{result.name}: {result.summary}" for result in wrong)
        raise Failure(f"{context.partition_key}: {told}", allow_retries=False)


@op(ins={"compared": In(Nothing)})
def clean_up(context: OpExecutionContext, catalog: CatalogResource) -> None:
    """Compacts, forgets old runs, removes what nothing refers to: what `tidemark maintain` does."""
    done = maintain(catalog.subject(context.partition_key))
    context.add_output_metadata({"done": MetadataValue.json(done)})


@job(partitions_def=connections, description="Compares all of a published state, then cleans up behind its runs.")
def catalog_upkeep() -> None:
    clean_up(compare_everything())
