"""A new Dagster instance that several processes open at once."""

import os
import time
from pathlib import Path

import pytest

from platform_assets.instance import open_instance
from tests.services.children import Child
from tidemark.config import load_config

pytestmark = pytest.mark.fault


def test_processes_that_open_a_new_instance_at_once_leave_it_whole(tmp_path: Path) -> None:
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        (folder / "tidemark.yaml").write_text("store: store\n")
        opened = [Child(open_and_close, folder / "tidemark.yaml", environment=os.environ) for _ in range(5)]
        (folder / "go").touch()
        assert [each.wait() for each in opened] == [0] * 5
        open_and_close(folder / "tidemark.yaml")


def open_and_close(config: Path) -> None:
    while not (config.parent / "go").exists():
        time.sleep(0.001)
    with open_instance(load_config(config)) as instance:
        instance.get_runs()
