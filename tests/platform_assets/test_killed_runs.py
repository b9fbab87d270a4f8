"""A run of the command line that is killed with its process group: the next one goes on, and Dagster hears of it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from dagster import DagsterInstance, DagsterRunStatus

from platform_assets.automation import in_the_way
from platform_assets.dead_runs import close_dead
from platform_assets.instance import open_instance
from tests.catalog.harness import SqliteSource
from tidemark.config import load_config
from tidemark.control import ControlDatabase

pytestmark = pytest.mark.fault

SHOP = "catalog/shop"
RUN = """
import sys
from pathlib import Path
from platform_assets.catalog.launch import launch
from platform_assets.instance import open_instance
from tidemark.config import load_config
config = load_config(Path(sys.argv[1]))
with open_instance(config) as instance:
    launch(config, instance, "shop", full=False, allow_removals=False)
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    source = SqliteSource(tmp_path / "shop.db")
    source.execute("CREATE TABLE note (id INTEGER)")
    path = tmp_path / "tidemark.yaml"
    shop = {"app": "sqlite", "id": "1700000000", "url": source.url}
    path.write_text(yaml.safe_dump({"store": str(tmp_path / "store"), "connections": {"shop": shop}}))
    return path


def killed(config: Path, gate: Path, point: str) -> None:
    """Runs the connection until that point, and kills it with its process group."""
    environment = os.environ | {"TIDEMARK_FAULT": f"{point}:pause", "TIDEMARK_FAULT_GATE": str(gate)}
    child = subprocess.Popen([sys.executable, "-c", RUN, str(config)], env=environment, start_new_session=True)
    reached = gate.with_suffix(".reached")
    while not reached.exists():
        assert child.poll() is None, "it ended before that point"
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


@pytest.mark.parametrize("point", ["run.after_lease", "run.before_plan"])
def test_a_killed_run_is_in_nobody_s_way(config: Path, tmp_path: Path, point: str) -> None:
    killed(config, tmp_path / "gate", point)
    control = ControlDatabase(load_config(config).control)
    with open_instance(load_config(config)) as instance:
        (run,) = instance.get_runs()
        assert run.status == DagsterRunStatus.STARTED, "what Dagster itself believes"
        assert in_the_way(instance, control, [SHOP]) is None
        assert statuses(instance) == [DagsterRunStatus.FAILURE]
        assert close_dead(instance, control) == []
    subprocess.run([sys.executable, "-c", RUN, str(config)], check=True)
    with open_instance(load_config(config)) as instance:
        assert sorted(each.value for each in statuses(instance)) == ["FAILURE", "SUCCESS"]
    last = control.runs.latest(SHOP)
    assert last is not None
    assert last.status == "published"


def statuses(instance: DagsterInstance) -> list[DagsterRunStatus]:
    return [run.status for run in instance.get_runs()]
