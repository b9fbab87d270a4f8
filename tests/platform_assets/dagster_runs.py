"""Runs as an instance has them, without executing any."""

from typing import Any

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunRequest, ScheduleEvaluationContext, SkipReason
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_run_for_test

from resources.tags import subject_tags

LOCATION = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("tidemark"), "__repository__")


def a_run(
    instance: DagsterInstance,
    status: DagsterRunStatus,
    *addresses: str,
    job: str = "job",
    parent: DagsterRun | None = None,
    **tags: str,
) -> DagsterRun:
    """A run of these subjects, or another attempt of one that failed."""
    attempt = {"dagster/parent_run_id": parent.run_id, "dagster/root_run_id": parent.run_id} if parent else {}
    return create_run_for_test(
        instance,
        job,
        status=status,
        tags={**subject_tags(addresses), **attempt, **tags},
        parent_run_id=parent.run_id if parent else None,
        root_run_id=parent.run_id if parent else None,
        remote_job_origin=RemoteJobOrigin(LOCATION, job),
    )


def requests(schedule: Any, context: ScheduleEvaluationContext) -> list[RunRequest]:
    """What a schedule asks for. Of several requests each needs a key of its own: Dagster fails the whole tick otherwise."""
    found = schedule(context)
    several = [found] if isinstance(found, RunRequest | SkipReason) else list(found)
    asked = [each for each in several if isinstance(each, RunRequest)]
    assert len(asked) < 2 or len({each.run_key for each in asked} - {None}) == len(asked)
    return asked
