"""The configuration is parsed once a process: with hundreds of connections that takes longer than most steps of a run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from platform_assets.instance import prepare_home
from tidemark.config import load_config

pytestmark = pytest.mark.fast

CONNECTIONS = 546
BEGIN = """
import json, sys
from tidemark.config import document, loading

parses = []
read = loading.read_document
loading.read_document = lambda *given, **options: (parses.append(str(given[0])), read(*given, **options))[1]

def report(**facts):
    print(json.dumps({"parses": len(parses), **facts}))
    sys.exit()
"""
# What a code server does: the definitions, and then ticks of schedules and sensors.
DEFINITIONS = """
from platform_assets.definitions import defs
from dagster import DagsterInstance, build_schedule_context, build_sensor_context
from resources.catalog import CatalogResource
from resources.platform import PlatformResource

platform = PlatformResource()
resources = {"platform": platform, "catalog": CatalogResource(platform=platform)}
repository = defs.get_repository_def()
schedules = [each for each in repository.schedule_defs if each.name.startswith("catalog_")]
with DagsterInstance.local_temp() as instance:
    for schedule in schedules[:5]:
        with build_schedule_context(instance=instance, repository_def=repository, resources=resources) as context:
            assert schedule.evaluate_tick(context).run_requests
    for name in ("sync_partitions", "close_dead_runs", "watch_c0"):
        with build_sensor_context(instance=instance, repository_def=repository, resources=resources) as context:
            repository.get_sensor_def(name)(context)
report(schedules=len(schedules), sensors=len(repository.sensor_defs))
"""
# What `tidemark catalog run c0` opens.
COMMAND = """
from tidemark.config import load_config
from platform_assets.opening import instance_of, platform_of

config = load_config()
with instance_of(config):
    from platform_assets.definitions import defs
    from resources.platform import PlatformResource
    report(same=PlatformResource().platform.config is config is platform_of(config).config)
"""


@pytest.fixture
def many(tmp_path: Path) -> Path:
    shop = {"app": "sqlite", "url": f"sqlite:///{tmp_path}/shop.db", "schedule": "0 * * * *", "watch": 60}
    connections = {f"c{number}": {**shop, "id": str(number)} for number in range(CONNECTIONS)}
    (tmp_path / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state", "connections": connections}))
    return tmp_path


def reported(folder: Path, code: str) -> Any:
    environment = {name: value for name, value in os.environ.items() if name not in ("TIDEMARK_CONFIG", "DAGSTER_HOME")}
    command = [sys.executable, "-c", BEGIN + code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_definitions_and_their_ticks_parse_the_configuration_once(many: Path) -> None:
    found = reported(many, DEFINITIONS)
    assert found["schedules"] == CONNECTIONS
    assert found["sensors"] > CONNECTIONS
    assert found["parses"] == 1


def test_a_command_that_runs_something_parses_the_configuration_once(many: Path) -> None:
    assert reported(many, COMMAND) == {"parses": 1, "same": True}


def test_processes_of_dagster_find_the_file_under_the_name_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths in it begin at the link: read under its real name, it would name another store."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "tidemark.yaml").write_text("store: state\n")
    link = tmp_path / "tidemark.yaml"
    link.symlink_to(tmp_path / "shared" / "tidemark.yaml")
    prepare_home(load_config(link))
    assert load_config().store.folder == tmp_path / "state"
