"""Upkeep, one job for all systems: a partition is a subject. And how long Dagster keeps its own records."""

from collections.abc import Iterable

from dagster import (
    DefaultScheduleStatus,
    MetadataValue,
    OpExecutionContext,
    RetryRequested,
    ScheduleDefinition,
    job,
    op,
)

from partitions.subjects import subjects
from platform_assets.automation import UPKEEP
from platform_assets.retention import delete_old_runs
from platform_assets.system_job import by_time, subject_schedules
from resources.platform import PlatformResource
from resources.runs import closes_dead_runs
from resources.tags import subject_tags
from tidemark.errors import RunInProgress
from tidemark.runs.system import Configured, open_subject, system_of
from tidemark.runs.upkeep import keep_up, sweep_store

# While a run works on the subject upkeep waits for it: so often, and so long each time.
WAITS, WAIT_SECONDS = 60, 60
RETENTION_SCHEDULE = "30 2 * * *"


@op(pool=UPKEEP)
def keep_subject_up(context: OpExecutionContext, platform: PlatformResource) -> None:
    """Compares all that is published where a system can, compacts, forgets old runs, removes what nothing refers to."""
    address, opened = context.partition_key, platform.platform
    context.instance.add_run_tags(context.run_id, subject_tags([address]))
    system, subject = system_of(address), open_subject(opened, address)
    run_id = f"upkeep-{context.run_id}-{context.retry_number}"
    on_dead = closes_dead_runs(context.instance, context.run_id)
    try:
        done = keep_up(
            subject,
            system.compactor(subject),
            audit=system.audit,
            run_id=run_id,
            dagster_run=context.run_id,
            on_dead=on_dead,
        )
    except RunInProgress as busy:
        raise RetryRequested(max_retries=WAITS, seconds_to_wait=WAIT_SECONDS) from busy
    context.add_output_metadata({"checks passed": done.detail["checks passed"], "done": MetadataValue.json(done.detail)})


@job(
    name=UPKEEP,
    partitions_def=subjects,
    description="Compares what is published and cleans up behind the runs of a subject.",
)
def upkeep_job() -> None:
    keep_subject_up()


@op
def delete_old_dagster_runs(context: OpExecutionContext, platform: PlatformResource) -> None:
    """Deletes finished runs that are neither among the newest of their subject nor young, with their events and logs."""
    # A line for every batch: a run of which nothing is heard is taken for dead.
    deleted = delete_old_runs(context.instance, platform.platform.config.retention, said=context.log.info)
    context.add_output_metadata({"deleted": deleted})


@op
def remove_temporary_files(context: OpExecutionContext, platform: PlatformResource) -> None:
    """Removes what killed writers left in the store, wherever it is: upkeep of a subject looks only where they write."""
    context.add_output_metadata({"removed": sweep_store(platform.platform)})


@job(
    description="For all subjects: deletes Dagster's records of old runs (`retention:` in the configuration says which) "
    "and temporary files in the store."
)
def dagster_retention() -> None:
    delete_old_dagster_runs()
    remove_temporary_files()


def upkeep_schedules(configured: Iterable[Configured]) -> list[ScheduleDefinition]:
    """One schedule for every time at which subjects are kept up, and one for Dagster's own records."""
    due = by_time((each.upkeep, each.address) for each in configured)
    retention = ScheduleDefinition(
        name="dagster_retention",
        job=dagster_retention,
        cron_schedule=RETENTION_SCHEDULE,
        execution_timezone="UTC",
        default_status=DefaultScheduleStatus.RUNNING,
    )
    return [*subject_schedules(upkeep_job, "upkeep", due), retention]
