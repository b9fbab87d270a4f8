"""What Dagster knows of models: an asset each, a job for those of the same partitions, a schedule where one is set."""

from collections.abc import Iterable

from dagster import (
    AssetSelection,
    DefaultScheduleStatus,
    Definitions,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    define_asset_job,
    schedule,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from platform_assets.automation import in_the_way, unattended
from platform_assets.keys import model_key
from platform_assets.models.assets import model_asset, op_name
from resources.models import ModelsResource
from tidemark.config import Config
from tidemark.models.graph import load_project
from tidemark.models.place import ModelPlace
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
        schedules=[scheduled(jobs[job_of(model)], model) for model in models if model.metadata.schedule],
    )


def job_of(model: Model) -> str:
    """The job that runs a model. Dagster wants one for every set of partitions."""
    partitions = model.metadata.partitions
    return JOB if partitions is None else f"{JOB}_by_{partitions.by}_from_{partitions.start:%Y_%m_%d_%H}".removesuffix("_00")


def running(job: str, models: Iterable[Model]) -> UnresolvedAssetJobDefinition:
    return define_asset_job(
        job,
        selection=AssetSelection.assets(*(model_key(model.name) for model in models)),
        description="Brings models up to date, in dependency order.",
    )


def scheduled(job: UnresolvedAssetJobDefinition, model: Model) -> ScheduleDefinition:
    """A schedule that runs one model. One with partitions runs as that of now, and brings all that is new all the same."""
    assert model.metadata.schedule is not None, "the caller checks"
    partitions, name = model.metadata.partitions, f"model_{op_name(model.name)}"

    @schedule(
        job=job,
        cron_schedule=model.metadata.schedule,
        execution_timezone="UTC",
        name=name,
        description=f"Brings {model.name} up to date.",
        default_status=DefaultScheduleStatus.RUNNING,
    )
    def scheduled_run(context: ScheduleEvaluationContext, models: ModelsResource) -> RunRequest | SkipReason:
        address = ModelPlace(model.name).address
        busy = in_the_way(context.instance, models.opened.control, [address], schedule=name)
        if busy:
            return SkipReason(busy)
        key = partitions.key_at(context.scheduled_execution_time) if partitions else None
        if partitions and key is None:
            return SkipReason(f"the first partition of {model.name} begins at {partitions.start:%Y-%m-%d %H:%M} UTC")
        return RunRequest(
            asset_selection=[model_key(model.name)],
            partition_key=key,
            run_config=since_the_mark([model.name]) if key else {},
            tags=unattended("schedule", address),
        )

    return scheduled_run


def since_the_mark(names: Iterable[str], *, full: bool = False) -> dict[str, object]:
    """The configuration of a run that brings what is new, or everything, and not a window."""
    return {"ops": {op_name(name): {"config": {"full": full, "since_mark": True}} for name in names}}
