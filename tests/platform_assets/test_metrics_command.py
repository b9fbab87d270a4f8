"""`tidemark metrics`, and the runs that wait in Dagster's queue."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from dagster import DagsterRunStatus
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_run_for_test

from platform_assets.instance import open_instance
from platform_assets.metrics import waiting_runs
from resources.tags import subject_tags
from tests.services.ports import free_port
from tidemark.config import Config, load_config
from tidemark.control import ControlDatabase

TIDEMARK = Path(sys.executable).with_name("tidemark")
SECONDS = 60


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    (tmp_path / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state"}))
    loaded = load_config(tmp_path / "tidemark.yaml")
    control = ControlDatabase(loaded.control)
    control.migrate()
    control.close()
    return loaded


@pytest.mark.fast
def test_runs_in_the_queue_are_counted_by_subject_and_by_job_where_there_is_none(config: Config) -> None:
    with open_instance(config) as instance:
        for status, job, tags in (
            (DagsterRunStatus.QUEUED, "catalog", subject_tags(["catalog/shop"])),
            (DagsterRunStatus.QUEUED, "catalog", subject_tags(["catalog/shop"])),
            (DagsterRunStatus.QUEUED, "models", subject_tags(["model/gold.a", "model/gold.b"])),
            (DagsterRunStatus.QUEUED, "somebody_s_own", {}),
            (DagsterRunStatus.STARTED, "catalog", subject_tags(["catalog/shop"])),
        ):
            origin = RemoteRepositoryOrigin(GrpcServerCodeLocationOrigin("nowhere", 1, location_name="tests"), "r")
            create_run_for_test(
                instance, job_name=job, status=status, tags=tags, remote_job_origin=origin.get_job_origin(job)
            )
    waiting = waiting_runs(config)
    assert waiting is not None
    assert waiting() == {"catalog/shop": 2, "model/gold.a": 1, "model/gold.b": 1, "somebody_s_own": 1}


@pytest.mark.fast
def test_no_instance_is_made_to_look_for_waiting_runs(config: Config) -> None:
    assert waiting_runs(config) is None
    assert not (config.path.parent / "state" / "dagster").exists()


@pytest.mark.service
def test_the_command_prints_metrics_for_a_file(config: Config) -> None:
    done = subprocess.run([TIDEMARK, "metrics", "--config", config.path], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert "\ntidemark_up 1.0\n" in done.stdout


@pytest.mark.service
def test_the_command_prints_that_the_database_is_away_and_does_not_fail(tmp_path: Path) -> None:
    url = f"postgresql://tidemark:canary-6d@127.0.0.1:{free_port()}/control"
    (tmp_path / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state", "control": url}))
    command = [TIDEMARK, "metrics", "--config", tmp_path / "tidemark.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert "\ntidemark_up 0.0\n" in done.stdout
    assert "canary" not in done.stdout + done.stderr


@pytest.mark.service
def test_the_command_serves_metrics_until_it_is_stopped(config: Config) -> None:
    port = free_port()
    command = [TIDEMARK, "metrics", "--serve", str(port), "--config", config.path]
    serving = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    latest = time.monotonic() + SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as answer:
                assert b"tidemark_up 1.0" in answer.read()
                break
        except (urllib.error.URLError, ConnectionError):
            assert serving.poll() is None, serving.communicate()
            assert time.monotonic() < latest
            time.sleep(0.1)
    os.kill(serving.pid, signal.SIGINT)
    assert serving.communicate(timeout=SECONDS)[1].startswith(f"http://127.0.0.1:{port}/metrics")
    assert serving.returncode == 0
