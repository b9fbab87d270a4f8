"""What Dagster knows of models: an asset each, a job for those of the same partitions, a schedule where one asks for it."""

from collections.abc import Iterable

from dagster import (
    AssetSelection,
    Definitions,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    define_asset_job,
    schedule,
)
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
    models = list(project.models.values())
    jobs = {
        job: running(job, [each for each in models if job_of(each) == job]) for job in dict.fromkeys(map(job_of, models))
    }
    return Definitions(
        assets=[model_asset(project, model) for model in models],
        jobs=list(jobs.values()),
        schedules=[at_its_time(jobs[job_of(model)], model) for model in models if model.metadata.schedule],
    )


def job_of(model: Model) -> str:
    """The job that runs a model. Dagster wants one for every set of partitions."""
    partitions = model.metadata.partitions
    return JOB if partitions is None else f"{JOB}_by_{partitions.by}_from_{partitions.start:%Y_%m_%d_%H}".removesuffix("_00")


def running(job: str, models: Iterable[Model]) -> UnresolvedAssetJobDefinition:
    return define_asset_job(
        job,
        selection=AssetSelection.assets(*(model_key(model.name) for model in models)),
        description="Brings models up to date, each behind those it reads.",
    )


def at_its_time(job: UnresolvedAssetJobDefinition, model: Model) -> ScheduleDefinition:
    """A schedule that runs one model. One with partitions runs as that of now, and brings all that is new all the same."""
    assert model.metadata.schedule is not None, "asked for"
    partitions = model.metadata.partitions

    @schedule(
        job=job,
        cron_schedule=model.metadata.schedule,
        execution_timezone="UTC",
        name=f"model_{op_name(model.name)}",
        description=f"Brings {model.name} up to date.",
    )
    def scheduled(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        tags = {"tidemark/started-by": "schedule"} | AGAIN
        key = partitions.key_at(context.scheduled_execution_time) if partitions else None
        if partitions and key is None:
            return SkipReason(f"the first partition of {model.name} begins at {partitions.start:%Y-%m-%d %H:%M} UTC")
        return RunRequest(
            asset_selection=[model_key(model.name)],
            partition_key=key,
            run_config=since_the_mark([model.name]) if key else {},
            tags=tags,
        )

    return scheduled


def since_the_mark(names: Iterable[str], *, full: bool = False) -> dict[str, object]:
    """The configuration of a run that brings what is new, or everything, and not a window."""
    return {"ops": {op_name(name): {"config": {"full": full, "since_mark": True}} for name in names}}
