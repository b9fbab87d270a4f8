"""Runs that are under way in this process: Dagster creates a resource again for every step, and a run outlives a step."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from dagster import DagsterInstance

from resources.tags import subject_tags, subjects_of
from tidemark.control import RunRecord
from tidemark.runs import DeadRun, Run

R = TypeVar("R", bound=Run[Any])

# How the words begin with which a run is closed from outside: they hold no secret, and may be sent.
OURS = "Tidemark: "

# By Dagster's run id and the subject's address: a Dagster run may bring several subjects up to date.
_under_way: dict[tuple[str, str], Run[Any]] = {}


def begun(instance: DagsterInstance, dagster_run: str, address: str, make: Callable[[], R]) -> R:
    """The run of a subject in a Dagster run; made and begun when its first step asks for it."""
    found: Any = _under_way.get((dagster_run, address))
    if found is None:
        tag_subject(instance, dagster_run, address)
        found = make()
        found.begin()
        _under_way[dagster_run, address] = found
    run: R = found
    return run


def tag_subject(instance: DagsterInstance, dagster_run: str, address: str) -> None:
    """Runs that a person started in the web UI do not name their subjects: their first step does."""
    run = instance.get_run_by_id(dagster_run)
    known = subjects_of(run.tags) if run else [address]
    if address not in known:
        instance.add_run_tags(dagster_run, subject_tags([*known, address]))


def end_all(dagster_run: str) -> None:
    """Ends the runs of a Dagster run, however that ended: one that has not finished is closed as failed."""
    with ExitStack() as ending:
        for key in [key for key in _under_way if key[0] == dagster_run]:
            ending.callback(_under_way.pop(key).end)


def closes_dead_runs(instance: DagsterInstance, dagster_run: str) -> DeadRun:
    """What recovery does with a dead run: Dagster's own launcher cannot see that its process is gone."""

    def close(record: RunRecord) -> None:
        if record.dagster_run is None or record.dagster_run == dagster_run:
            return
        found = instance.get_run_by_id(record.dagster_run)
        if found is not None and not found.is_finished:
            instance.report_run_failed(found, f"{OURS}the process of this run is gone. {record.subject} was recovered.")

    return close
