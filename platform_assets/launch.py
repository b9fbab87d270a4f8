"""Starts a run from the command line: the same job, in the same instance, as from the web UI."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from dagster import AssetKey, DagsterEvent, DagsterExecutionInterruptedError, DagsterInstance
from dagster._core.errors import DagsterAssetCheckFailedError
from dagster_shared.error import SerializableErrorInfo

from resources.tags import STARTED_BY, subject_tags
from tidemark import errors
from tidemark.control import ControlDatabase, RunRecord
from tidemark.control.runs import COUNTING
from tidemark.errors import ChecksFailed, TidemarkError, UnexpectedFailure
from tidemark.runs.naming import named

# What the web UI finds the runs of a job by.
REPOSITORY = {".dagster/repository": "__repository__@tidemark"}
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
# How messages of Dagster's event log begin that are safe to show.
NAMED = f"{TidemarkError.__module__}."


@dataclass(frozen=True)
class Failure:
    """A subject whose run did not count. No error: it never began, since a run that it waits for failed."""

    subject: str
    error: TidemarkError | None
    record: RunRecord | None = None


Outcome = RunRecord | Failure


def launch(
    instance: DagsterInstance,
    control: ControlDatabase,
    job: str,
    subjects: Sequence[str],
    *,
    run_config: Mapping[str, Any],
    partition: str | None = None,
    selection: Sequence[AssetKey] | None = None,
    tags: Mapping[str, str] | None = None,
    subject_of_step: Callable[[str], str | None] | None = None,
) -> list[Outcome]:
    """Runs a job to its end in this process. Per subject the row of the ledger, or why there is none that counts.

    `subject_of_step` says whose step failed where a run is of several subjects.
    """
    from platform_assets.definitions import defs

    run_id = str(uuid4())
    options: dict[str, Any] = {} if partition is None else {"partition_key": partition}
    try:
        done = defs.resolve_job_def(job).execute_in_process(
            instance=instance,
            run_id=run_id,
            run_config={**run_config, **QUIET},
            tags={**REPOSITORY, STARTED_BY: "command line", **subject_tags(subjects), **(tags or {})},
            asset_selection=selection,
            # Of several subjects the others go on when one fails; of one, its own error is the best.
            raise_on_error=len(subjects) == 1,
            **options,
        )
    except DagsterExecutionInterruptedError:
        raise KeyboardInterrupt from None
    except Exception as error:
        return [_failure(control, run_id, subjects[0], error)]
    failures = _failures(done.all_events, subject_of_step)
    records = {each.subject: each for each in control.runs.carried_by(run_id)}
    return [_outcome(subject, records.get(subject), failures.get(subject)) for subject in subjects]


def only(outcomes: Sequence[Outcome]) -> RunRecord:
    """The row of a run of one subject; its error is raised."""
    (outcome,) = outcomes
    if isinstance(outcome, RunRecord):
        return outcome
    assert outcome.error is not None, "nothing runs before the only subject"
    raise outcome.error


def _failure(control: ControlDatabase, run_id: str, subject: str, error: Exception) -> Failure:
    record = next((each for each in control.runs.carried_by(run_id) if each.subject == subject), None)
    if isinstance(error, DagsterAssetCheckFailedError):
        words = (record.error if record else None) or str(error)
        failed: TidemarkError = ChecksFailed(words.removeprefix("ChecksFailed: "))
    else:
        failed = named(error, subject)
    if failed is not error:
        failed.__cause__ = error
    return Failure(subject, failed, record)


def _outcome(subject: str, record: RunRecord | None, error: TidemarkError | None) -> Outcome:
    if error is None and record is not None and record.status in COUNTING:
        return record
    return Failure(subject, error, record)


def _failures(
    events: Sequence[DagsterEvent], subject_of_step: Callable[[str], str | None] | None
) -> dict[str, TidemarkError]:
    found = {}
    for event in events:
        step = event.step_key if event.is_step_failure else None
        subject = subject_of_step(step) if step and subject_of_step else None
        if subject is not None:
            found[subject] = error_of(event.step_failure_data.error, subject)
    return found


def error_of(error: SerializableErrorInfo | None, subject: str) -> TidemarkError:
    """The error of a step as it was. The words of foreign ones may quote rows: they stay with Dagster."""
    chain = list(causes(error))
    for each in chain:
        kind = getattr(errors, each.cls_name or "", None)
        if each.message.startswith(NAMED) and isinstance(kind, type) and issubclass(kind, TidemarkError):
            return kind(each.message.partition(": ")[2].strip())
    name = chain[-1].cls_name if chain else "an error without a name"
    return UnexpectedFailure(f"{subject}: {name}, which Tidemark has no name for; see the run in `tidemark ui`.")


def causes(error: SerializableErrorInfo | None) -> Iterator[SerializableErrorInfo]:
    """The error and what it was raised from, down to the bottom."""
    while error:
        yield error
        error = error.cause
