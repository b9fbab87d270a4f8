"""Closes runs in Dagster whose process is gone: its launcher of local processes knows no health check."""

import logging
from collections.abc import Callable, Container, Sequence
from datetime import UTC, datetime, timedelta
from sqlite3 import DatabaseError

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter
from sqlalchemy.exc import SQLAlchemyError

from platform_assets.code_server import is_lost
from resources.runs import OURS
from resources.tags import process_of, subjects_of
from tidemark.control import ControlDatabase, RunRecord
from tidemark.control.process import proven_dead, seen_from_here
from tidemark.control.runs import RUNNING

log = logging.getLogger(__name__)

UNDER_WAY = [
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
# Without an event for so long, a run that has begun and of whose process nothing is known is dead.
SILENT = timedelta(minutes=2)
# Before that a busy machine may take its time to start a process. Not where the code
# server says that it does not execute the run: it was restarted, and whatever its predecessor started has begun by then.
NOT_BEGUN = timedelta(minutes=10)
# Whoever makes a run submits it within the same second, unless it is killed in between.
NOT_SUBMITTED = timedelta(minutes=1)
# The process is on another machine, or was before a reboot, and holds no lease: it may be computing without a word.
UNSEEN = timedelta(minutes=30)

LIMITS = {DagsterRunStatus.NOT_STARTED: NOT_SUBMITTED, DagsterRunStatus.STARTING: NOT_BEGUN}

Configured = Callable[[], Container[str]]


def close_dead(instance: DagsterInstance, control: ControlDatabase, now: datetime | None = None) -> list[str]:
    """Reports every dead run of ours as failed, so that it holds no limit any more. Returns their ids."""
    closed = []
    for run in instance.get_runs(RunsFilter(statuses=UNDER_WAY)):
        try:
            if close_if_dead(instance, control, run, now):
                closed.append(run.run_id)
        except Exception as error:  # its records are damaged: no reason to leave the others
            log.warning("run %s could not be looked at (%s: %s)", run.run_id, type(error).__name__, error)
    return closed


def close_if_dead(instance: DagsterInstance, control: ControlDatabase, run: DagsterRun, now: datetime | None = None) -> bool:
    """Whether the run was dead; then it is closed: as canceled if somebody had requested that, else as failed."""
    why = cause_of_death(instance, control, run, now or datetime.now(UTC)) if run.status in UNDER_WAY else None
    if why and run.status == DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, f"{OURS}{why}")
    elif why:
        instance.report_run_failed(run, f"{OURS}{why}")
    return why is not None


def cause_of_death(instance: DagsterInstance, control: ControlDatabase, run: DagsterRun, now: datetime) -> str | None:
    """Why a run that is under way in Dagster is not; None for one that lives, or that is not ours."""
    process = process_of(run.run_id, run.tags)
    if process is None and not subjects_of(run.tags):
        return None
    if process and proven_dead(process):
        return f"the process {process.pid} of this run on {process.host} is gone. The next run recovers its subjects."
    if process and seen_from_here(process):
        return None  # it lives, however silent it is
    began = [each for each in control.runs.carried_by(run.run_id) if each.status == RUNNING]
    if _holds_a_lease(control, run, began):
        return None
    quiet = now - last_heard(instance, run)
    if began and quiet > SILENT:
        return f"this run no longer holds the lease of {began[0].subject}: its process or its machine is gone."
    if quiet > SILENT and run.status == DagsterRunStatus.STARTING and not process and is_lost(run):
        return "the code server that started this run is gone, and the run never began."
    limit = UNSEEN if process else LIMITS.get(run.status, SILENT)
    return f"nothing was heard of this run for {limit.total_seconds() / 60:.0f} min." if quiet > limit else None


def _holds_a_lease(control: ControlDatabase, run: DagsterRun, began: Sequence[RunRecord]) -> bool:
    """A run takes the lease before it is in the ledger: until then its name, which has Dagster's in it, says whose it is."""
    ours = {each.run_id for each in began}
    holders = (control.leases.holder(each) for each in {*subjects_of(run.tags), *(each.subject for each in began)})
    return any(holder is not None and (holder in ours or run.run_id in holder) for holder in holders)


def last_heard(instance: DagsterInstance, run: DagsterRun) -> datetime:
    """When there was last an event of the run; one that was never started has none, and is as old as its record."""
    try:
        records = instance.get_records_for_run(run.run_id, limit=1, ascending=False).records
    except (DatabaseError, SQLAlchemyError):
        # On SQLite the events of a run are a file of their own, which may be damaged. Its record changes with its status.
        record = instance.get_run_record_by_id(run.run_id)
        return record.update_timestamp if record else datetime.fromtimestamp(0, UTC)
    if records:
        return datetime.fromtimestamp(records[0].timestamp, UTC)
    record = instance.get_run_record_by_id(run.run_id) if run.status == DagsterRunStatus.NOT_STARTED else None
    return record.create_timestamp if record else datetime.fromtimestamp(0, UTC)


def cancel_orphans(instance: DagsterInstance, configured: Configured, location: str | None = None) -> list[str]:
    """Cancels waiting runs of subjects that the configuration no longer names: they would wait, or fail, for nobody.

    Only those of this code location: hosts that share an instance have subjects of their own.
    """
    queued = instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.QUEUED]))
    waiting = [run for run in queued if subjects_of(run.tags) and (location is None or location_of(run) == location)]
    known = configured() if waiting else ()
    orphans = [run for run in waiting if not any(each in known for each in subjects_of(run.tags))]
    for run in orphans:
        instance.report_run_canceled(run, f"{OURS}{subjects_of(run.tags)[0]} is not in the configuration any more.")
    return [run.run_id for run in orphans]


def location_of(run: DagsterRun) -> str | None:
    origin = run.remote_job_origin
    return origin.repository_origin.code_location_origin.location_name if origin else None
