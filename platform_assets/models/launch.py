"""Runs models from the command line: the same job, in the same instance, as from the web UI."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from uuid import uuid4

from dagster import DagsterEvent, DagsterExecutionInterruptedError, DagsterInstance
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)

from platform_assets.launch import QUIET, REPOSITORY
from platform_assets.models.assets import op_name
from platform_assets.models.definitions import job_of, since_the_mark
from platform_assets.models.metadata import model_key
from resources.models import run_name
from tidemark import errors
from tidemark.clock import SystemClock
from tidemark.control import ControlDatabase, RunRecord
from tidemark.errors import TidemarkError, UnknownRun, UsageError
from tidemark.models.graph import Project
from tidemark.models.place import SYSTEM
from tidemark.models.project import Model


@dataclass(frozen=True)
class Launched:
    """What came of one model: its row in the ledger, and why it failed where there is none."""

    name: str
    record: RunRecord | None
    failure: str | None

    @property
    def well(self) -> bool:
        return self.failure is None and self.record is not None and self.record.status in ("published", "unchanged")


def launch(
    instance: DagsterInstance,
    control: ControlDatabase,
    project: Project,
    models: Sequence[Model],
    *,
    full: bool = False,
    keys: tuple[str, str] | None = None,
) -> list[Launched]:
    """Runs the models to their end in this process, each behind those it reads; with keys, only those windows of them."""
    done: dict[str, Launched] = {}
    for _, group in groupby(models, job_of):
        wanted = list(group)
        for model in wanted:
            if any(name in done and not done[name].well for name in project.reads(model.name)):
                done[model.name] = Launched(model.name, None, None)
        ready = [model for model in wanted if model.name not in done]
        done |= {each.name: each for each in (_run(instance, control, ready, full, keys) if ready else ())}
    return [done[model.name] for model in models]


def _run(
    instance: DagsterInstance, control: ControlDatabase, models: Sequence[Model], full: bool, keys: tuple[str, str] | None
) -> list[Launched]:
    """One run in Dagster, of models that share their partitions."""
    from platform_assets.definitions import defs

    dagster_run, names = str(uuid4()), [model.name for model in models]
    given = {} if keys else since_the_mark(names, full=full)
    try:
        done = defs.resolve_job_def(job_of(models[0])).execute_in_process(
            instance=instance,
            run_id=dagster_run,
            run_config={**given, **QUIET},
            tags={**REPOSITORY, "tidemark/started-by": "command line", **partition_tags(models[0], keys)},
            asset_selection=[model_key(name) for name in names],
            raise_on_error=False,
        )
    except DagsterExecutionInterruptedError:
        raise KeyboardInterrupt from None
    failures = {event.step_key: told(event) for event in done.all_events if event.is_step_failure}
    return [Launched(name, record_of(control, dagster_run, name), failures.get(op_name(name))) for name in names]


def partition_tags(model: Model, keys: tuple[str, str] | None) -> dict[str, str]:
    """What tells Dagster the partitions of a run: those asked for, or that of now, which a run without any is of."""
    partitions = model.metadata.partitions
    if partitions is None:
        return {}
    if keys is None:
        now = partitions.key_at(SystemClock().now())
        if now is None:
            raise UsageError(f"{model.name}: its first partition begins at {partitions.start:%Y-%m-%d %H:%M} UTC, not yet.")
        return {PARTITION_NAME_TAG: now}
    if keys[0] == keys[1]:
        return {PARTITION_NAME_TAG: keys[0]}
    return {ASSET_PARTITION_RANGE_START_TAG: keys[0], ASSET_PARTITION_RANGE_END_TAG: keys[1]}


def told(event: DagsterEvent) -> str:
    """The error of a step by its name; the words of foreign ones may quote rows, and stay with Dagster."""
    error = event.step_failure_data.error
    while error is not None and error.cause is not None:
        error = error.cause
    name = error.cls_name if error and error.cls_name else "an error without a name"
    kind = getattr(errors, name, None)
    if error is None or not (isinstance(kind, type) and issubclass(kind, TidemarkError)):
        return f"{name}: see the run in `tidemark ui`."
    return f"{name}: {error.message.partition(': ')[2].strip()}"


def record_of(control: ControlDatabase, dagster_run: str, name: str) -> RunRecord | None:
    try:
        return control.runs.find(SYSTEM, name, run_name(dagster_run, name))
    except UnknownRun:
        return None
