"""How a session starts: what Java is told, and that workers begin with what tasks need."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_code import quick_start
from spark_code.java import packaged_java_home
from spark_code.platform import Platform
from spark_code.session import EVERYTHING, FIXED, jar_files, java_config, session_config
from tests.catalog.harness import SparkForTests
from tidemark.config import SparkSettings, load_config
from tidemark.errors import JavaMissing
from tidemark.lake import LakeSettings

SQLITE = LakeSettings({"uri": "jdbc:sqlite:/lake.db"})


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    for file in jar_files(EVERYTHING, tmp_path):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return tmp_path


@pytest.mark.fast
@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_a_local_spark_has_all_jars_on_its_class_path(cache: Path, master: str) -> None:
    told = java_config(SparkSettings(master=master), SQLITE, cache)
    assert told["spark.driver.extraClassPath"].split(":") == [str(file) for file in jar_files(EVERYTHING, cache)]
    assert "spark.jars" not in told


@pytest.mark.fast
@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "local-cluster[2,1,1024]"])
def test_a_cluster_is_sent_the_jars_of_its_lake_and_starts_python_as_it_does(cache: Path, master: str) -> None:
    told = java_config(SparkSettings(master=master), SQLITE, cache)
    assert len(told["spark.jars"].split(",")) == 2
    assert not {"spark.driver.extraClassPath", "spark.python.daemon.module"} & told.keys()
    assert "SharedArchiveFile" not in told["spark.driver.extraJavaOptions"]


@pytest.mark.fast
def test_a_class_path_of_the_users_own_stays_and_the_jars_come_beside_it(cache: Path) -> None:
    mine = SparkSettings(config={"spark.driver.extraClassPath": "mine.jar"})
    told = session_config(mine, SQLITE) | java_config(mine, SQLITE, cache)
    assert told["spark.driver.extraClassPath"] == "mine.jar"
    assert len(told["spark.jars"].split(",")) == 2


@pytest.mark.fast
def test_the_java_from_pypi_is_refused_for_a_lake_on_s3(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_CACHE", str(cache))
    monkeypatch.setenv("JAVA_HOME", str(packaged_java_home(cache)))
    monkeypatch.setenv("PATH", "/nowhere")
    on_s3 = LakeSettings({"uri": "jdbc:postgresql://host/lake", "warehouse": "s3://bucket/lake"})
    with pytest.raises(JavaMissing, match=r"jdk\.net"):
        session_config(SparkSettings(), on_s3)
    assert session_config(SparkSettings(remote="sc://host"), on_s3)["spark.remote"] == "sc://host"
    assert session_config(SparkSettings(), SQLITE)["spark.master"] == "local[*]"


@pytest.mark.fast
def test_the_file_of_the_lakes_catalogue_is_private_before_java_opens_it(tmp_path: Path) -> None:
    (tmp_path / "tidemark.yaml").write_text("store: state")
    (tmp_path / "state").mkdir()
    modes = []

    def start(settings: dict[str, str]) -> Any:
        modes.append((tmp_path / "state" / "lake.db").stat().st_mode & 0o777)
        return settings

    assert Platform(load_config(tmp_path / "tidemark.yaml"), start=start).spark
    assert modes == [0o600]


@pytest.mark.fast
def test_jars_that_were_not_fetched_are_asked_for_by_name(tmp_path: Path) -> None:
    assert "iceberg-spark-runtime" in java_config(SparkSettings(), SQLITE, tmp_path)["spark.jars.packages"]


@pytest.mark.fast
def test_without_an_archive_java_is_told_of_none(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_start, "ARCHIVE", cache / "spark.jsa")
    assert "SharedArchiveFile" not in java_config(SparkSettings(), SQLITE, cache)["spark.driver.extraJavaOptions"]
    (cache / "spark.jsa").touch()
    options = java_config(SparkSettings(), SQLITE, cache)["spark.driver.extraJavaOptions"]
    assert f"-XX:SharedArchiveFile={cache / 'spark.jsa'}" in options


def test_java_begins_with_the_archived_classes_and_python_with_the_imports_of_tasks(spark: SparkForTests) -> None:
    session = spark(session_config(SparkSettings(), SQLITE))
    java = session.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    descended = [java, *children(java)]
    assert any(str(quick_start.ARCHIVE) in Path(f"/proc/{pid}/maps").read_text() for pid in descended)

    def imported(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        list(rows)
        yield pa.record_batch({"there": ["spark_code.connectors.slices" in sys.modules]})

    assert session.range(1).mapInArrow(imported, "there boolean").collect()[0]["there"] is True


def children(pid: int) -> list[int]:
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*found, *(each for child in found for each in children(child))]


@pytest.mark.fast
@pytest.mark.parametrize("remote", [None, "sc://host"])
def test_what_results_depend_on_is_set_last_whatever_the_configuration_says(remote: str | None) -> None:
    wrong = {key: "Asia/Tokyo" if value == "UTC" else "true" for key, value in FIXED.items()}
    told = session_config(SparkSettings(remote=remote, config=wrong), SQLITE)
    assert FIXED.items() <= told.items()
    assert {"spark.sql.session.timeZone", "spark.sql.variable.substitute"} <= FIXED.keys()


@pytest.mark.fast
@pytest.mark.parametrize("spark", [SparkSettings(), SparkSettings(remote="sc://host")], ids=["local", "remote"])
def test_tables_are_never_taken_from_a_cache_whatever_the_lake_says(spark: SparkSettings) -> None:
    told = session_config(spark, LakeSettings(SQLITE.properties | {"cache-enabled": "true"}))
    assert told["spark.sql.catalog.lake.cache-enabled"] == "false"
