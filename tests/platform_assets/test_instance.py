"""The dagster.yaml that Tidemark writes, and the ones that it leaves alone."""

import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from dagster import DagsterInstance
from dagster._core.scheduler import DagsterDaemonScheduler
from dagster._daemon.daemon import SensorDaemon

from platform_assets import instance
from platform_assets.instance import prepare_home
from tidemark.config import Config, load_config
from tidemark.errors import ConfigError

pytestmark = pytest.mark.fast

CANARY = "canary-81c2d7"
# What an earlier version wrote, which did not mark its files.
UNMARKED = """telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  runs:
    tag_concurrency_limits:
      - key: dagster/partition
        value:
          applyLimitPerUniqueValue: true
        limit: 1
run_retries:
  enabled: true
  max_retries: 0
"""
SHARED = "postgresql://dagster:${DAGSTER_PASSWORD}@db.example.com:6432/runs?sslmode=require"


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_PASSWORD", CANARY)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)


def configured(folder: Path, storage: str | None = None) -> Config:
    document = {"store": "state", "dagster-home": "home"} | ({"dagster-storage": storage} if storage else {})
    (folder / "tidemark.yaml").write_text(yaml.safe_dump(document))
    return load_config(folder / "tidemark.yaml")


def written(folder: Path, storage: str | None = None) -> Path:
    return prepare_home(configured(folder, storage)) / "dagster.yaml"


def test_silent_sources_do_not_hold_up_other_sensors_as_the_daemon_evaluates_several_at_once(tmp_path):
    overrides = instance.instance_settings(None)
    with (
        DagsterInstance.local_temp(str(tmp_path), overrides=overrides) as made,
        SensorDaemon(made.get_sensor_settings()) as daemon,
    ):
        assert daemon._threadpool_executor is not None
        assert daemon._threadpool_executor._max_workers == 8


def test_a_code_server_that_is_away_for_minutes_fails_no_waiting_run_and_no_schedule(tmp_path):
    usual = tmp_path / "usual"
    usual.mkdir()
    with DagsterInstance.local_temp(str(usual), overrides={"run_queue": {"dequeue_num_workers": 4}}) as made:
        default = made.get_concurrency_config().run_queue_config
    with DagsterInstance.from_config(str(written(tmp_path).parent)) as made:
        queue, scheduler = made.get_concurrency_config().run_queue_config, made.scheduler
    assert queue is not None
    assert (queue.max_user_code_failure_retries, queue.user_code_failure_retry_delay) == (10, 30)
    assert default == queue._replace(max_user_code_failure_retries=0, user_code_failure_retry_delay=60), "all else is usual"
    assert isinstance(scheduler, DagsterDaemonScheduler)
    assert scheduler.max_tick_retries == 3


def test_without_a_setting_the_instance_is_kept_in_its_folder(tmp_path):
    settings = yaml.safe_load(written(tmp_path).read_text())
    assert "storage" not in settings
    assert settings["telemetry"] == {"enabled": False}


def test_a_shared_storage_is_written_without_its_password(tmp_path):
    file = written(tmp_path, SHARED)
    assert yaml.safe_load(file.read_text())["storage"] == {
        "postgres": {
            "postgres_db": {
                "scheme": "postgresql+psycopg2",
                "hostname": "db.example.com",
                "port": 6432,
                "db_name": "runs",
                "username": "dagster",
                "password": {"env": "DAGSTER_PASSWORD"},
                "params": {"sslmode": "require"},
            }
        }
    }
    assert CANARY not in file.read_text()


def test_a_file_that_tidemark_wrote_is_rewritten_when_settings_change(tmp_path):
    before = written(tmp_path).read_text()
    after = written(tmp_path, SHARED).read_text()
    assert "db.example.com" in after
    assert written(tmp_path).read_text() == before


def test_a_file_of_a_version_that_did_not_mark_its_files_is_rewritten(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text(UNMARKED)
    assert "db.example.com" in written(tmp_path, SHARED).read_text()


@pytest.mark.parametrize("added", ["# mine\n", "python_logs: {python_log_level: DEBUG}\n"])
def test_a_file_that_a_person_edited_is_left_alone(tmp_path, added):
    file = written(tmp_path, SHARED)
    edited = file.read_text() + added
    file.write_text(edited)
    assert written(tmp_path, SHARED.replace("db.", "other.")).read_text() == edited


def test_a_comment_below_the_first_line_makes_the_file_a_person_s_too(tmp_path):
    file = written(tmp_path, SHARED)
    first, rest = file.read_text().split("\n", 1)
    edited = f"{first}\n# mine\n{rest}"
    file.write_text(edited)
    assert written(tmp_path, SHARED.replace("db.", "other.")).read_text() == edited


def test_a_file_of_a_newer_version_is_left_to_that_version(tmp_path, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(instance, "VERSION", instance.VERSION + 1)
        theirs = written(tmp_path, SHARED).read_text()
    assert written(tmp_path, SHARED.replace("db.", "other.")).read_text() == theirs


def test_a_person_s_own_file_that_keeps_the_instance_on_this_host_is_refused_by_name(tmp_path):
    (tmp_path / "home").mkdir()
    own = tmp_path / "home" / "dagster.yaml"
    own.write_text("telemetry: {enabled: false}\n")
    with pytest.raises(ConfigError, match="not one that Tidemark wrote") as refused:
        written(tmp_path, SHARED)
    assert "hostname: db.example.com" in str(refused.value)
    assert CANARY not in str(refused.value)
    assert own.read_text() == "telemetry: {enabled: false}\n"
    assert written(tmp_path) == own


def test_a_variable_that_is_not_set_is_named_before_dagster_looks_for_it(tmp_path, monkeypatch):
    monkeypatch.delenv("DAGSTER_PASSWORD")
    config = configured(tmp_path, SHARED)
    with pytest.raises(ConfigError, match="DAGSTER_PASSWORD, which `dagster-storage` names, is not set"):
        prepare_home(config)


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "dagster_postgres", None)
    with pytest.raises(ConfigError, match=r"pip install 'tidemark\[postgres\]'"):
        written(tmp_path, SHARED)


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_store_that_the_instance_is_kept_in_is_for_its_owner_alone(tmp_path, usual_umask):
    (tmp_path / "tidemark.yaml").write_text(yaml.safe_dump({"store": "deep/state"}))
    home = prepare_home(load_config(tmp_path / "tidemark.yaml"))
    assert home == tmp_path / "deep" / "state" / "dagster"
    assert mode_of(home) == mode_of(home.parent) == 0o700
    assert mode_of(tmp_path / "deep") == 0o755, "what is above the store is not ours to close"


def test_next_to_a_store_elsewhere_the_folder_of_the_instance_is_for_its_owner_alone(tmp_path, usual_umask):
    (tmp_path / "tidemark.yaml").write_text(yaml.safe_dump({"store": "s3://bucket/prefix", "control": "postgresql://db"}))
    home = prepare_home(load_config(tmp_path / "tidemark.yaml"))
    assert home == tmp_path / ".tidemark" / "dagster"
    assert mode_of(home) == mode_of(home.parent) == 0o700


def test_a_store_that_was_opened_to_others_stays_open(tmp_path, usual_umask):
    (tmp_path / "state").mkdir(mode=0o755)
    (tmp_path / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state"}))
    prepare_home(load_config(tmp_path / "tidemark.yaml"))
    assert mode_of(tmp_path / "state") == 0o755


def test_a_process_that_was_stopped_while_it_opened_the_instance_holds_nobody_up(tmp_path, monkeypatch):
    monkeypatch.setattr(instance, "LOCK_SECONDS", 0.1)
    config = configured(tmp_path)
    with (prepare_home(config) / ".tidemark-opening").open("w") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        with instance.open_instance(config) as opened:
            assert opened.get_runs() == []
