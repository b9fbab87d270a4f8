"""A job in Dagster for any system, a partition of it for each subject, and schedules that start it when subjects are due."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dagster import (
    DefaultScheduleStatus,
    Definitions,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    RunRequest,
    RunsFilter,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    job,
    op,
    schedule,
)
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from partitions.subjects import subjects
from platform_assets.automation import is_resumed_by, unattended
from resources.platform import PlatformResource
from resources.runs import closes_dead_runs
from resources.tags import subject_tags, subjects_of
from tidemark.config import Config
from tidemark.errors import UsageError
from tidemark.runs.system import System, open_subject, system_of

# In names only letters, digits and _ are allowed.
SIGNS = str.maketrans({" ": "_", "*": "x", "/": "s", ",": "c", "-": "t", "@": "a"})


def system_definitions(system: System, config: Config) -> Definitions:
    """The job of a system whose run is one step in Dagster, and the schedules that the configuration asks for."""
    made = _job(system)
    due = by_time((each.schedule, each.address) for each in system.configured(config))
    return Definitions(jobs=[made], schedules=subject_schedules(made, system.noun, due))


def _job(system: System) -> JobDefinition:
    steps = system.run
    assert steps is not None, "only systems whose run is one step"

    @op(name=f"run_{system.noun}")
    def run_subject(context: OpExecutionContext, platform: PlatformResource) -> None:
        address, dagster_run = context.partition_key, context.run_id
        if system_of(address) is not system:
            raise UsageError(f"{address} is no {system.noun}. Choose a partition that begins with {system.noun}/.")
        context.instance.add_run_tags(dagster_run, subject_tags([address]))
        on_dead = closes_dead_runs(context.instance, dagster_run)
        subject = open_subject(platform.platform, address)
        record = steps(subject, dagster_run, full=False, dagster_run=dagster_run, on_dead=on_dead)
        facts = {"status": record.status, "mode": record.mode or "", "reason": record.reason or ""}
        context.add_output_metadata({**facts, "detail": MetadataValue.json(record.detail)})

    @job(name=system.noun, partitions_def=subjects, description=system.summary)
    def run_system() -> None:
        run_subject()

    return run_system


def by_time(due: Iterable[tuple[str | None, str]]) -> dict[str, list[str]]:
    """Addresses by the cron expression that says when they are due; those without one are left out."""
    found = defaultdict(list)
    for cron, address in due:
        if cron:
            found[cron].append(address)
    return dict(found)


def subject_schedules(made: JobDefinition, name: str, due: Mapping[str, Sequence[str]]) -> list[ScheduleDefinition]:
    """One schedule of the job for every time at which subjects are due."""
    return [_schedule(made, name, cron, addresses) for cron, addresses in due.items()]


def _schedule(made: JobDefinition, name: str, cron: str, addresses: Sequence[str]) -> ScheduleDefinition:
    own_name = f"{name}_{cron.translate(SIGNS)}"

    @schedule(
        job=made,
        cron_schedule=cron,
        execution_timezone="UTC",
        name=own_name,
        description=f"{name.capitalize()} of {len(addresses)} subjects.",
        default_status=DefaultScheduleStatus.RUNNING,
    )
    def run_subjects(context: ScheduleEvaluationContext) -> Iterator[RunRequest | SkipReason]:
        unfinished = RunsFilter(job_name=made.name, statuses=list(NOT_FINISHED_STATUSES))
        runs = (run for run in context.instance.get_runs(unfinished) if not is_resumed_by(own_name, run))
        waiting = {each for run in runs for each in subjects_of(run.tags)}
        wanted = [each for each in addresses if each not in waiting]
        context.instance.add_dynamic_partitions(str(subjects.name), wanted)
        for address in wanted:
            # The key separates the requests of one time.
            yield RunRequest(run_key=address, partition_key=address, tags=unattended("schedule", address))
        if not wanted:
            yield SkipReason(f"a run of each of them is queued or under way already ({name})")

    return run_subjects
