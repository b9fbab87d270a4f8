"""Dagster's own records are bounded: old runs go, with their events and what they printed."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterRunStatus, in_process_executor, job, op

from platform_assets import retention
from platform_assets.retention import delete_old_runs
from platform_assets.upkeep import dagster_retention
from resources.platform import PlatformResource
from resources.tags import subject_tags
from tests.platform_assets.dagster_runs import a_run
from tidemark.config.unattended import RetentionSettings

SHOP, OTHER = "catalog/shop", "catalog/other"
KEPT = RetentionSettings(runs=5, days=30)


@op
def little() -> None:
    print("a line in the compute log")  # noqa: T201


@job(executor_def=in_process_executor)
def tiny() -> None:
    little()


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    with DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield instance


@pytest.fixture
def in_memory() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as instance:
        yield instance


def ended(instance: DagsterInstance, times: int, subject: str, **tags: str) -> list[str]:
    """Runs that succeeded."""
    return [a_run(instance, DagsterRunStatus.SUCCESS, subject, **tags).run_id for _ in range(times)]


def execute(instance: DagsterInstance, times: int, subject: str, **tags: str) -> list[str]:
    return [
        tiny.execute_in_process(instance=instance, tags={**subject_tags([subject]), **tags}).run_id for _ in range(times)
    ]


def later(days: int) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.fast
def test_the_newest_runs_of_every_subject_are_kept_and_all_young_ones(in_memory: DagsterInstance) -> None:
    shop, other = ended(in_memory, 12, SHOP), ended(in_memory, 3, OTHER)
    assert delete_old_runs(in_memory, KEPT) == 0, "all are young"
    assert delete_old_runs(in_memory, KEPT, later(31)) == 7
    assert {run.run_id for run in in_memory.get_runs()} == {*shop[-5:], *other}


@pytest.mark.fast
def test_of_every_partition_the_last_success_is_kept(in_memory: DagsterInstance) -> None:
    march = ended(in_memory, 2, SHOP, **{"dagster/partition": "2026-03-01"})
    ended(in_memory, 7, SHOP, **{"dagster/partition": "2026-03-02"})
    assert delete_old_runs(in_memory, KEPT, later(31)) == 3
    assert march[-1] in {run.run_id for run in in_memory.get_runs()}


@pytest.mark.fast
def test_a_model_with_a_partition_a_day_keeps_the_newest_and_not_every_one(in_memory: DagsterInstance) -> None:
    days = [ended(in_memory, 1, SHOP, **{"dagster/partition": f"2026-03-{day:02}"})[0] for day in range(1, 21)]
    assert delete_old_runs(in_memory, KEPT, later(31)) == 15
    assert {run.run_id for run in in_memory.get_runs()} == {*days[-5:]}


@pytest.mark.fast
def test_runs_that_have_not_ended_are_never_deleted(in_memory: DagsterInstance) -> None:
    waiting = a_run(in_memory, DagsterRunStatus.QUEUED, SHOP)
    ended(in_memory, 9, SHOP)
    delete_old_runs(in_memory, KEPT, later(31))
    assert waiting.run_id in {run.run_id for run in in_memory.get_runs()}


@pytest.mark.fast
def test_all_old_runs_are_deleted_however_many_there_are_and_every_batch_is_heard_of(
    in_memory: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 3)
    ended(in_memory, 12, SHOP)
    said: list[str] = []
    assert delete_old_runs(in_memory, KEPT, later(31), said=said.append) == 7
    assert said == [f"{done} of 7 old runs are deleted" for done in (3, 6, 7)]


@pytest.mark.fast
def test_at_the_deadline_the_oldest_are_gone_and_the_next_job_goes_on(
    in_memory: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 3)
    shop = ended(in_memory, 12, SHOP)
    assert delete_old_runs(in_memory, KEPT, later(31), deadline=timedelta(0)) == 3
    assert {run.run_id for run in in_memory.get_runs()} == {*shop[3:]}
    assert delete_old_runs(in_memory, KEPT, later(31)) == 4
    assert {run.run_id for run in in_memory.get_runs()} == {*shop[7:]}


def test_with_many_runs_the_folder_of_the_instance_stays_small(instance: DagsterInstance, tmp_path: Path) -> None:
    execute(instance, 10, SHOP)
    delete_old_runs(instance, KEPT, later(31))
    few = size(tmp_path)
    for _ in range(5):
        execute(instance, 10, SHOP)
        delete_old_runs(instance, KEPT, later(31))
    assert len(instance.get_runs()) == 5
    files = [file.stem for file in tmp_path.rglob("*.db") if len(file.stem) == 36]
    assert len(files) == 5, "of every run a file of events"
    assert size(tmp_path) < 1.5 * few


@pytest.mark.fast
def test_the_daily_job_removes_old_temporary_files_anywhere_in_the_store(
    in_memory: DagsterInstance, configured: Path, tmp_path: Path
) -> None:
    old, young = (tmp_path / "store" / "runs" / f".tidemark-1-{name}.tmp" for name in ("old", "young"))
    old.parent.mkdir(parents=True)
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    resources = {"platform": PlatformResource()}
    assert dagster_retention.execute_in_process(instance=in_memory, resources=resources).success
    assert (old.exists(), young.exists()) == (False, True)
