"""What Dagster knows of models: an asset each, one job for all, a schedule where a model asks for one."""

from dagster import AssetSelection, Definitions, RunRequest, ScheduleDefinition, define_asset_job, schedule
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from platform_assets.catalog.automation import AGAIN
from platform_assets.models.assets import model_asset, op_name
from platform_assets.models.metadata import model_key
from tidemark.config import Config
from tidemark.models.graph import load_project
from tidemark.models.project import Model

JOB = "models"


def model_definitions(config: Config) -> Definitions:
    """Everything that the configuration's folder of models describes."""
    project = load_project(config)
    if not project.models:
        return Definitions()
    run_models = define_asset_job(
        JOB,
        selection=AssetSelection.assets(*map(model_key, project.models)),
        description="Brings models up to date, each behind those it reads.",
    )
    return Definitions(
        assets=[model_asset(project, model) for model in project.models.values()],
        jobs=[run_models],
        schedules=[at_its_time(run_models, model) for model in project.models.values() if model.metadata.schedule],
    )


def at_its_time(job: UnresolvedAssetJobDefinition, model: Model) -> ScheduleDefinition:
    """A schedule that runs one model."""
    assert model.metadata.schedule is not None, "asked for"

    @schedule(
        job=job,
        cron_schedule=model.metadata.schedule,
        execution_timezone="UTC",
        name=f"model_{op_name(model.name)}",
        description=f"Brings {model.name} up to date.",
    )
    def scheduled() -> RunRequest:
        tags = {"tidemark/started-by": "schedule"} | AGAIN
        return RunRequest(asset_selection=[model_key(model.name)], tags=tags)

    return scheduled
