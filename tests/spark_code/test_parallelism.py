"""How many tasks work is shared by: what Spark has, wherever it is."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_code.catalog.state import ROWS_PER_FILE, file_count
from spark_code.connectors.planning import MOST_CONNECTIONS, tasks
from spark_code.platform import Platform
from spark_code.session import local_tasks, tasks_at_once
from tests.catalog.harness import SparkForTests
from tests.services.spark_connect import spark_connect
from tidemark.config import SparkSettings, load_config

ASK = """
import sys
from pyspark.sql import SparkSession
from spark_code.session import tasks_at_once
print(tasks_at_once(SparkSession.builder.remote(sys.argv[1]).getOrCreate()))
"""


def test_a_local_spark_has_as_many_tasks_as_cores(spark: SparkForTests) -> None:
    assert tasks_at_once(spark({})) == os.cpu_count()


def test_what_the_configuration_says_comes_first(tmp_path: Path) -> None:
    (tmp_path / "tidemark.yaml").write_text("{store: state, spark: {parallelism: 7}}")
    platform = Platform(load_config(tmp_path / "tidemark.yaml"), start=lambda _: pytest.fail("Spark need not start"))
    assert platform.parallelism == 7


@pytest.mark.parametrize(
    ("master", "tasks"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("local[*]", os.cpu_count())]
)
def test_a_local_spark_need_not_start_to_say_how_many_tasks_it_has(tmp_path: Path, master: str, tasks: int) -> None:
    (tmp_path / "tidemark.yaml").write_text(f"{{store: state, spark: {{master: '{master}'}}}}")
    platform = Platform(load_config(tmp_path / "tidemark.yaml"), start=lambda _: pytest.fail("Spark need not start"))
    assert platform.parallelism == tasks


@pytest.mark.parametrize("settings", [{"master": "spark://host:7077"}, {"remote": "sc://host"}])
def test_any_other_spark_is_asked(settings: dict[str, str]) -> None:
    assert local_tasks(SparkSettings(**settings)) is None


def test_a_server_of_spark_connect_says_how_many_it_has(tmp_path: Path) -> None:
    # As a cluster of five cores would look like: more than this machine need have.
    with spark_connect(tmp_path, {"spark.sql.leafNodeDefaultParallelism": "5"}) as address:
        asked = subprocess.run([sys.executable, "-c", ASK, address], capture_output=True, text=True, check=True)
    assert asked.stdout.split()[-1] == "5"


def test_a_large_write_is_shared_by_all_cores_and_a_small_one_is_not() -> None:
    assert file_count(10, 64) == 1
    assert file_count(1_000_000, 8) == 8
    assert file_count(1_000_000, 2) == 1_000_000 // ROWS_PER_FILE
    assert file_count(100_000_000, 8) == 100_000_000 // ROWS_PER_FILE


@pytest.mark.fast
@pytest.mark.parametrize(("cores", "slices"), [(2, 2), (200, MOST_CONNECTIONS)])
def test_a_stream_is_read_over_so_many_connections_at_most(cores: int, slices: int) -> None:
    subject: Any = SimpleNamespace(platform=SimpleNamespace(parallelism=cores))
    assert tasks(subject) == slices
