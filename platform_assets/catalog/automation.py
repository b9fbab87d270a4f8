"""When the catalogue runs by itself: at its time, or when a source changed. A schedule and a sensor per connection."""

from dagster import (
    DefaultScheduleStatus,
    DefaultSensorStatus,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    schedule,
    sensor,
)

from partitions.catalog import connections
from platform_assets.automation import in_the_way, plain_name, resting, unattended, within_deadline
from platform_assets.catalog.jobs import catalog_job
from resources.catalog import CatalogResource
from spark_code.catalog.subject import CatalogSubject
from tidemark.config import Config, Connection
from tidemark.control.runs import COUNTING
from tidemark.errors import TidemarkError
from tidemark.runs import Mode

# How far back the last run that read the source may lie: behind it are rollbacks, upkeep and failures.
HISTORY = 200


def schedules(config: Config) -> list[ScheduleDefinition]:
    """One for every connection that names a time."""
    return [scheduled(each, each.schedule) for each in config.connections.values() if each.schedule]


def scheduled(connection: Connection, cron: str) -> ScheduleDefinition:
    name = f"catalog_{plain_name(connection.name)}"

    @schedule(
        job=catalog_job,
        cron_schedule=cron,
        execution_timezone="UTC",
        name=name,
        description=f"Brings {connection.name} up to date.",
        default_status=DefaultScheduleStatus.RUNNING,
    )
    def scheduled_run(context: ScheduleEvaluationContext, catalog: CatalogResource) -> RunRequest | SkipReason:
        busy = in_the_way(context.instance, catalog.platform.platform.control, [connection.address], schedule=name)
        if busy:
            return SkipReason(busy)
        context.instance.add_dynamic_partitions(str(connections.name), [connection.name])
        return RunRequest(partition_key=connection.name, tags=unattended("schedule", connection.address))

    return scheduled_run


def watches(config: Config) -> list[SensorDefinition]:
    """One for every connection that is to be watched."""
    return [watched(each, each.watch) for each in config.connections.values() if each.watch]


def watched(connection: Connection, seconds: int) -> SensorDefinition:
    @sensor(
        job=catalog_job,
        name=f"watch_{plain_name(connection.name)}",
        minimum_interval_seconds=seconds,
        default_status=DefaultSensorStatus.RUNNING,
        description=f"Starts a run when the source of {connection.name} is no longer as the last run saw it.",
    )
    def source_changed(context: SensorEvaluationContext, catalog: CatalogResource) -> SensorResult | SkipReason:
        subject = catalog.subject(connection.name)
        busy = in_the_way(context.instance, subject.control, [subject.address])
        busy = busy or resting(context.instance, subject.address)
        if busy:
            return SkipReason(busy)
        try:
            seen = within_deadline(subject.address, lambda: unchanged(subject, context.cursor))
        except TidemarkError as error:
            return SkipReason(f"{type(error).__name__}: {error}")
        if seen is not None:
            return SensorResult(cursor=seen, skip_reason="the source is as the last run saw it")
        request = RunRequest(partition_key=connection.name, tags=unattended("sensor", subject.address))
        partition = connections.build_add_request([connection.name])
        return SensorResult(run_requests=[request], dynamic_partitions_requests=[partition])

    return source_changed


def unchanged(subject: CatalogSubject, cursor: str | None) -> str | None:
    """What to remember of a source that is as the last counting run saw it; None if a run is due.

    Compared is with what that run recorded, so a change stays due until one counts. The cursor only saves asking: the pulse
    that a source had when it last turned out to be unchanged.
    """
    recorded = last_fingerprint(subject)
    if recorded is None:
        return None
    pulse = subject.pack.pulse()
    seen = f"{recorded} {pulse}"
    if pulse is not None and cursor == seen:
        return seen
    return seen if subject.pack.fingerprint(subject.scope) == recorded else None


def last_fingerprint(subject: CatalogSubject) -> str | None:
    """The source as the last run saw it that read it and counts. A rollback or upkeep did not look at the source."""
    for run in subject.control.runs.history(subject.address, limit=HISTORY):
        if run.status in COUNTING and run.mode in (Mode.FULL, Mode.INCREMENTAL):
            return run.detail.get("fingerprint")
    return None
