"""Runs models from the command line: the same job, in the same instance, as from the web UI."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from dagster import DagsterInstance
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)

from platform_assets import launch as launcher
from platform_assets.keys import model_key
from platform_assets.models.assets import op_name
from platform_assets.models.definitions import job_of, since_the_mark
from tidemark.clock import SystemClock
from tidemark.control import ControlDatabase, RunRecord
from tidemark.errors import UsageError
from tidemark.models.graph import Project
from tidemark.models.place import ModelPlace
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
    """Runs the models to their end in this process, in dependency order; with keys, only those windows of them."""
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
    names = {ModelPlace(model.name).address: model.name for model in models}
    steps = {op_name(name): address for address, name in names.items()}
    done = launcher.launch(
        instance,
        control,
        job_of(models[0]),
        list(names),
        run_config={} if keys else since_the_mark(names.values(), full=full),
        selection=[model_key(name) for name in names.values()],
        tags=partition_tags(models[0], keys),
        subject_of_step=steps.get,
    )
    return [_launched(names[each.subject], each) for each in done]


def _launched(name: str, outcome: launcher.Outcome) -> Launched:
    if isinstance(outcome, RunRecord):
        return Launched(name, outcome, None)
    error = outcome.error
    return Launched(name, outcome.record, f"{type(error).__name__}: {error}" if error else None)


def partition_tags(model: Model, keys: tuple[str, str] | None) -> dict[str, str]:
    """What gives Dagster the partitions of a run: those requested, or that of now, which a run without any is of."""
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
