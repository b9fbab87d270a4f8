"""Dagster's own records of runs: of every subject the newest are kept, and all young ones."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dagster import DagsterInstance, DagsterRunStatus, RunRecord, RunsFilter
from dagster._core.storage.dagster_run import FINISHED_STATUSES
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.tags import PARTITION_NAME_TAG

from resources.tags import subjects_of
from tidemark.config.unattended import RetentionSettings

# A run of this job ends in reasonable time; what is left is deleted by the next. A time and no number: where more runs end
# in a day than a number allows, the records would grow for ever.
DEADLINE = timedelta(minutes=30)
PAGE = 500
BATCH = 100


def delete_old_runs(
    instance: DagsterInstance,
    settings: RetentionSettings,
    now: datetime | None = None,
    *,
    deadline: timedelta = DEADLINE,
    said: Callable[[str], None] = lambda _: None,
) -> int:
    """Deletes finished runs with their events and logs, the oldest first, until the deadline; returns how many."""
    until = time.monotonic() + deadline.total_seconds()
    since = (now or datetime.now(UTC)) - timedelta(days=settings.days)
    old = list(_old_runs(instance, settings.runs, since))[::-1]
    deleted = 0
    while deleted < len(old) and (not deleted or time.monotonic() < until):
        batch = old[deleted : deleted + BATCH]
        for run_id in batch:
            delete(instance, run_id)
        deleted += len(batch)
        said(f"{deleted} of {len(old)} old runs are deleted")
    return deleted


def _old_runs(instance: DagsterInstance, kept: int, since: datetime) -> Iterator[str]:
    """Newest first. Of the newest partitions the last success is kept too: Dagster shows what was made by it. Not of all:
    a model with a partition a day would keep every run for ever."""
    of_subject: Counter[tuple[str, ...]] = Counter()
    partitions: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for record in _finished(instance):
        run = record.dagster_run
        subject = (run.job_name, *sorted(subjects_of(run.tags)))
        of_subject[subject] += 1
        partition, made = run.tags.get(PARTITION_NAME_TAG, ""), partitions[subject]
        last_success = run.status == DagsterRunStatus.SUCCESS and partition not in made and len(made) < kept
        if last_success:
            made.add(partition)
        ended = datetime.fromtimestamp(record.end_time or record.update_timestamp.timestamp(), UTC)
        if of_subject[subject] > kept and ended < since and not last_success:
            yield run.run_id


def _finished(instance: DagsterInstance) -> Iterator[RunRecord]:
    cursor = None
    while True:
        page = instance.get_run_records(RunsFilter(statuses=list(FINISHED_STATUSES)), limit=PAGE, cursor=cursor)
        yield from page
        if len(page) < PAGE:
            return
        cursor = page[-1].dagster_run.run_id


def _delete_verdicts(instance: DagsterInstance, run_id: str) -> None:
    """Verdicts of asset checks, which Dagster leaves behind when it deletes a run."""
    storage = instance.event_log_storage
    if isinstance(storage, SqlEventLogStorage):
        with storage.index_connection() as connection:
            connection.execute(AssetCheckExecutionsTable.delete().where(AssetCheckExecutionsTable.c.run_id == run_id))


def delete(instance: DagsterInstance, run_id: str) -> None:
    """A run, its events, and what its steps printed."""
    instance.delete_run(run_id)
    _delete_verdicts(instance, run_id)
    with suppress(NotImplementedError):  # a compute log manager of somebody else's
        instance.compute_log_manager.delete_logs(prefix=[run_id])
    # On SQLite every run has a file of events of its own, which deleting its rows does not remove.
    shard = getattr(instance.event_log_storage, "path_for_shard", None)
    if shard:
        for file in (Path(shard(run_id) + suffix) for suffix in ("", "-wal", "-shm", "-journal")):
            file.unlink(missing_ok=True)
