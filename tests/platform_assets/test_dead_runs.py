"""Runs whose process was killed: Dagster itself would leave them as they were, and they would hold every limit."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from dagster import (
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    build_sensor_context,
    in_process_executor,
    job,
    op,
)
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._grpc.client import DagsterGrpcClient

from platform_assets.automation import in_the_way
from platform_assets.dead_runs import NOT_BEGUN, NOT_SUBMITTED, SILENT, UNSEEN, cancel_orphans, close_dead
from platform_assets.housekeeping import close_dead_runs
from platform_assets.instance import instance_settings
from resources.models import ModelsResource
from resources.platform import PlatformResource
from resources.runs import OURS, closes_dead_runs
from resources.tags import PROCESS, process_of, process_tag, subjects_of
from tests.platform_assets.dagster_runs import a_run
from tests.services.ports import free_port
from tidemark.control import ControlDatabase

SHOP = "catalog/shop"
STARTED = DagsterRunStatus.STARTED

pytestmark = pytest.mark.fast


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def control(configured: Path) -> ControlDatabase:
    return PlatformResource().platform.control


def status(instance: DagsterInstance, run: DagsterRun) -> DagsterRunStatus:
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status


def later(by: timedelta) -> datetime:
    return datetime.now(UTC) + by + timedelta(seconds=5)


CHILD = """
import sys, time
from resources.tags import process_tag
print(process_tag(sys.argv[1])["tidemark/process"], flush=True)
time.sleep(600)
"""


class Child:
    """A process that says it executes a run, and does nothing else."""

    def __init__(self, instance: DagsterInstance, run: DagsterRun) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", CHILD, run.run_id], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        instance.add_run_tags(run.run_id, {PROCESS: self.process.stdout.readline().strip()})

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


def test_a_run_whose_process_was_killed_is_closed_at_the_next_look(
    instance: DagsterInstance, control: ControlDatabase
) -> None:
    run = a_run(instance, STARTED, SHOP)
    child = Child(instance, run)
    instance.report_engine_event("alive", run)
    assert close_dead(instance, control) == []
    child.kill()
    with build_sensor_context(instance, resources={"platform": PlatformResource()}) as context:
        said = close_dead_runs(context)
    assert run.run_id in str(said)
    assert status(instance, run) == DagsterRunStatus.FAILURE


def test_a_dead_run_is_in_nobodys_way_and_is_closed_by_whoever_meets_it(
    instance: DagsterInstance, control: ControlDatabase
) -> None:
    run = a_run(instance, STARTED, SHOP)
    child = Child(instance, run)
    instance.report_engine_event("alive", run)
    assert in_the_way(instance, control, [SHOP]) == f"{SHOP}: run {run.run_id} is started"
    child.kill()
    assert in_the_way(instance, control, [SHOP]) is None
    assert status(instance, run) == DagsterRunStatus.FAILURE


def test_a_retry_is_not_taken_for_dead_by_the_process_of_the_run_it_comes_from(
    instance: DagsterInstance, control: ControlDatabase
) -> None:
    first = a_run(instance, DagsterRunStatus.FAILURE, SHOP)
    retry = a_run(instance, STARTED, SHOP, **process_tag(first.run_id))
    instance.report_engine_event("alive", retry)
    assert process_of(retry.run_id, retry.tags) is None
    assert close_dead(instance, control) == []


def test_a_run_that_somebody_cancelled_after_its_process_died_is_closed_as_cancelled(
    instance: DagsterInstance, control: ControlDatabase
) -> None:
    run = a_run(instance, DagsterRunStatus.CANCELING, SHOP)
    Child(instance, run).kill()
    assert close_dead(instance, control) == [run.run_id]
    assert status(instance, run) == DagsterRunStatus.CANCELED


def test_after_a_reboot_the_lease_says_that_a_run_is_dead(instance: DagsterInstance, control: ControlDatabase) -> None:
    run = a_run(instance, STARTED, SHOP)
    instance.add_run_tags(run.run_id, {PROCESS: f"{run.run_id}|elsewhere|boot|1|2"})
    instance.report_engine_event("alive", run)
    control.runs.begin(SHOP, "r1", dagster_run=run.run_id)
    with control.leases.hold(SHOP, "r1"):
        assert close_dead(instance, control, later(UNSEEN)) == [], "it holds its lease, however silent it is"
    assert close_dead(instance, control) == [], "it may be about to say how it ended"
    assert close_dead(instance, control, later(SILENT)) == [run.run_id]


def test_a_run_that_never_reached_our_code_is_dead_when_nothing_is_heard_of_it(
    instance: DagsterInstance, control: ControlDatabase
) -> None:
    run = a_run(instance, DagsterRunStatus.STARTING, SHOP)
    instance.report_engine_event("alive", run)
    assert close_dead(instance, control, later(SILENT)) == [], "a busy machine is slow to start a process"
    assert close_dead(instance, control, later(NOT_BEGUN)) == [run.run_id]


def test_a_run_that_was_lost_with_the_server_that_started_it_is_dead_when_the_next_server_says_so(
    instance: DagsterInstance, control: ControlDatabase
) -> None:
    with code_server() as port:
        address = json.dumps({"host": "localhost", "port": port})
        lost = a_run(instance, DagsterRunStatus.STARTING, SHOP, **{GRPC_INFO_TAG: address})
        instance.report_engine_event("alive", lost)
        assert close_dead(instance, control) == [], "what the old server started may be about to begin"
        assert close_dead(instance, control, later(SILENT)) == [lost.run_id]
        away = a_run(instance, DagsterRunStatus.STARTING, SHOP, **{GRPC_INFO_TAG: address})
        instance.report_engine_event("alive", away)
    assert close_dead(instance, control, later(SILENT)) == [], "nobody answers: it may be starting there"
    assert close_dead(instance, control, later(NOT_BEGUN)) == [away.run_id]


@contextmanager
def code_server() -> Iterator[int]:
    """A real one, that has started no run."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "dagster",
        "api",
        "grpc",
        "-h",
        "localhost",
        "-p",
        str(port),
        "--empty-working-directory",
    ]
    process = subprocess.Popen([*command, "-f", __file__.replace("test_dead_runs", "nothing_defined")])
    client = DagsterGrpcClient(port=port, host="localhost")
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and process.poll() is None:
            with suppress(DagsterUserCodeUnreachableError):
                client.ping("are you there")
                break
            time.sleep(0.1)
        yield port
    finally:
        process.kill()
        process.wait()


def test_a_run_that_has_begun_without_naming_its_process_is_dead_sooner(
    instance: DagsterInstance, control: ControlDatabase
) -> None:
    run = a_run(instance, STARTED, SHOP)
    instance.report_engine_event("alive", run)
    assert close_dead(instance, control, later(SILENT)) == [run.run_id]


def test_a_run_that_nobody_started_blocks_its_subject_for_a_minute_only(
    instance: DagsterInstance, control: ControlDatabase
) -> None:
    run = a_run(instance, DagsterRunStatus.NOT_STARTED, SHOP)
    assert in_the_way(instance, control, [SHOP]) == f"{SHOP}: run {run.run_id} is not_started"
    assert in_the_way(instance, control, [SHOP], later(NOT_SUBMITTED)) is None
    assert status(instance, run) == DagsterRunStatus.FAILURE
    other = a_run(instance, DagsterRunStatus.NOT_STARTED, SHOP)
    assert close_dead(instance, control) == []
    assert close_dead(instance, control, later(NOT_SUBMITTED)) == [other.run_id]
    (said,) = instance.all_logs(other.run_id, of_type=DagsterEventType.RUN_FAILURE)
    assert said.dagster_event is not None
    assert str(said.dagster_event.message).startswith(OURS), "it may be sent"


def test_a_run_of_somebody_else_that_was_not_started_is_left_alone(
    instance: DagsterInstance, control: ControlDatabase
) -> None:
    a_run(instance, DagsterRunStatus.NOT_STARTED)
    assert close_dead(instance, control, later(UNSEEN)) == []


def test_a_process_that_is_seen_to_live_is_never_dead_by_silence(
    instance: DagsterInstance, control: ControlDatabase
) -> None:
    run = a_run(instance, STARTED, SHOP)
    child = Child(instance, run)
    instance.report_engine_event("alive", run)
    control.runs.begin(SHOP, "r1", dagster_run=run.run_id)
    assert close_dead(instance, control, later(10 * UNSEEN)) == [], "not even without its lease: it may wait for a database"
    child.kill()
    assert close_dead(instance, control) == [run.run_id]


@pytest.mark.parametrize("name", ["{}", "{}.gold.lines", "upkeep-{}-0"])
def test_a_run_that_holds_the_lease_of_its_subject_lives_before_it_is_in_the_ledger(
    instance: DagsterInstance, control: ControlDatabase, name: str
) -> None:
    run = a_run(instance, STARTED, "catalog/office", SHOP)
    with control.leases.hold(SHOP, "somebody else"):
        assert close_dead(instance, control, later(timedelta(0))) == [run.run_id], "nothing was ever heard of it"
    run = a_run(instance, STARTED, "catalog/office", SHOP)
    with control.leases.hold(SHOP, name.format(run.run_id)):
        assert close_dead(instance, control, later(UNSEEN)) == []
    assert close_dead(instance, control, later(UNSEEN)) == [run.run_id]


def test_a_killed_run_that_named_no_subject_is_closed_too(instance: DagsterInstance, control: ControlDatabase) -> None:
    run = a_run(instance, STARTED)
    child = Child(instance, run)
    assert close_dead(instance, control) == []
    child.kill()
    assert close_dead(instance, control) == [run.run_id]


def test_a_run_of_nothing_but_the_checks_of_a_model_names_it(
    instance: DagsterInstance, configured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resources.models.run_checks", lambda *_: [])
    for part in ("project", "opened"):
        monkeypatch.setattr(ModelsResource, part, MagicMock())

    @op
    def check(models: ModelsResource) -> None:
        assert models.check("gold.lines") == []

    @job(executor_def=in_process_executor)
    def checks() -> None:
        check()

    resources = {"models": ModelsResource(platform=PlatformResource())}
    done = checks.execute_in_process(instance=instance, resources=resources)
    run = instance.get_run_by_id(done.run_id)
    assert run is not None
    assert subjects_of(run.tags) == ["model/gold.lines"]


def test_a_run_on_another_machine_may_compute_without_a_word(instance: DagsterInstance, control: ControlDatabase) -> None:
    run = a_run(instance, STARTED, SHOP)
    instance.add_run_tags(run.run_id, {PROCESS: f"{run.run_id}|elsewhere|boot|1|2"})
    instance.report_engine_event("alive", run)
    assert close_dead(instance, control, later(SILENT)) == []
    assert close_dead(instance, control, later(UNSEEN)) == [run.run_id]


def test_a_run_whose_events_are_damaged_keeps_no_other_from_being_closed(tmp_path: Path, control: ControlDatabase) -> None:
    with DagsterInstance.local_temp(str(tmp_path)) as stored:
        older, damaged = (a_run(stored, STARTED, each) for each in (SHOP, "catalog/office"))
        for run in (older, damaged):
            stored.report_engine_event("alive", run)
        stored.event_log_storage.dispose()
        Path(stored.event_log_storage.path_for_shard(damaged.run_id)).write_bytes(b"not a database" * 500)  # type: ignore[attr-defined]
        closed = close_dead(stored, control, later(UNSEEN))
        assert older.run_id in closed


def test_runs_of_others_are_left_alone(instance: DagsterInstance, control: ControlDatabase) -> None:
    run = a_run(instance, STARTED)
    assert close_dead(instance, control, later(UNSEEN)) == []
    assert status(instance, run) == STARTED


def test_waiting_runs_of_a_subject_that_is_no_more_configured_are_cancelled(
    instance: DagsterInstance, control: ControlDatabase
) -> None:
    gone = a_run(instance, DagsterRunStatus.QUEUED, "catalog/gone")
    assert cancel_orphans(instance, lambda: {SHOP}, "another host's") == []
    wanted = a_run(instance, DagsterRunStatus.QUEUED, SHOP)
    with build_sensor_context(instance, resources={"platform": PlatformResource()}) as context:
        close_dead_runs(context)
    assert status(instance, gone) == DagsterRunStatus.CANCELED
    assert status(instance, wanted) == DagsterRunStatus.QUEUED


def test_recovery_closes_the_run_that_it_settles(instance: DagsterInstance, control: ControlDatabase) -> None:
    run = a_run(instance, STARTED, SHOP)
    record = control.runs.begin(SHOP, "r1", dagster_run=run.run_id)
    closes_dead_runs(instance, "another")(record)
    assert status(instance, run) == DagsterRunStatus.FAILURE


def test_no_limit_counts_partitions_and_pools_count_runs(tmp_path: Path) -> None:
    with DagsterInstance.local_temp(str(tmp_path), overrides=instance_settings(None)) as instance:
        limits = instance.get_concurrency_config()
    assert not limits.run_queue_config or not limits.run_queue_config.tag_concurrency_limits
    assert limits.pool_config.pool_granularity is not None
    assert (limits.pool_config.pool_granularity.value, limits.pool_config.default_pool_limit) == ("run", 1)
