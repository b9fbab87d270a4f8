"""Runs that are tried again, by Dagster after a failure or by a person in the web UI: each can succeed."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import (
    DagsterInstance,
    Definitions,
    JobDefinition,
    JobExecutionResult,
    ReexecutionOptions,
    execute_job,
    in_process_executor,
    reconstructable,
)

from platform_assets.catalog.definitions import catalog_definitions
from platform_assets.connectors.definitions import ingest_definitions
from platform_assets.launch import QUIET
from resources.catalog import CatalogResource, MarkerResource
from resources.connectors import ConnectorsResource
from resources.io_managers import ExtractsIOManager, JsonDiffIOManager, StagedStateIOManager
from resources.platform import PlatformResource, share_platform
from spark_code.platform import Platform
from tests.catalog.harness import Catalog, SparkForTests
from tidemark.catalog.rows import Kind
from tidemark.config import load_config
from tidemark.connectors.place import StreamPlace

ADDRESS = "stream/default/shop/shop.carts"
PARTITION = {"dagster/partition": "default"}


def catalog_job() -> JobDefinition:
    """The job of the catalogue, likewise."""
    catalog = CatalogResource(platform=PlatformResource())
    own = Definitions(
        executor=in_process_executor,
        resources={
            "catalog": catalog,
            "marker_file": MarkerResource(catalog=catalog),
            "extracts": ExtractsIOManager(catalog=catalog),
            "staged_state": StagedStateIOManager(catalog=catalog),
            "json_diff": JsonDiffIOManager(catalog=catalog),
        },
    )
    config = load_config(Path(os.environ["TIDEMARK_CONFIG"]))
    return Definitions.merge(own, catalog_definitions(config)).resolve_job_def("catalog")


def ingest_job() -> JobDefinition:
    """The job as every process that executes it finds it."""
    config = load_config(Path(os.environ["TIDEMARK_CONFIG"]))
    own = Definitions(
        executor=in_process_executor, resources={"connectors": ConnectorsResource(platform=PlatformResource())}
    )
    return Definitions.merge(own, ingest_definitions(config)).resolve_job_def("ingest_shop")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    with DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield instance


@pytest.fixture
def platform(tmp_path: Path, spark: SparkForTests, monkeypatch: pytest.MonkeyPatch) -> Platform:
    with sqlite3.connect(tmp_path / "shop.db") as source:
        source.execute("CREATE TABLE carts (id INTEGER PRIMARY KEY, changed INTEGER)")
        source.executemany("INSERT INTO carts VALUES (?, ?)", [(1, 10), (2, 20)])
    stream = {"id": "shop.carts", "source": "carts", "key": ["id"], "cursor": "changed", "cursor_type": "integer"}
    manifest = {
        "connector": "shop",
        "kind": "sql",
        "settings": {"url": f"sqlite:///{tmp_path}/shop.db"},
        "streams": [stream],
    }
    (tmp_path / "shop.connector.yaml").write_text(yaml.safe_dump(manifest))
    path = tmp_path / "tidemark.yaml"
    path.write_text(yaml.safe_dump({"store": str(tmp_path / "store"), "connectors": ["*.connector.yaml"]}))
    monkeypatch.setenv("TIDEMARK_CONFIG", str(path))
    return share_platform(Platform(load_config(path), start=spark))


def execute(instance: DagsterInstance, **options: Any) -> JobExecutionResult:
    return execute_job(reconstructable(ingest_job), instance, tags=PARTITION, run_config=QUIET, **options)


@pytest.mark.parametrize(
    ("fault", "redone"),
    [
        ("ingest.after_plan", {"landed", "checks", "bronze"}),
        ("lake.before_publish", {"bronze"}),
        ("ingest.before_state", {"bronze"}),
    ],
)
def test_a_stream_whose_run_failed_is_brought_up_to_date_from_the_step_that_failed(
    platform: Platform, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, fault: str, redone: set[str]
) -> None:
    monkeypatch.setenv("TIDEMARK_FAULT", f"{fault}:raise")
    with execute(instance) as first:
        assert not first.success
    monkeypatch.delenv("TIDEMARK_FAULT")
    again = ReexecutionOptions.from_failure(first.run_id, instance)
    with execute(instance, reexecution_options=again) as second:
        assert second.success
        steps = {event.step_key.split("__")[-1] for event in second.all_events if event.is_step_success}
    assert steps == redone
    assert platform.control.runs.latest(ADDRESS) is not None
    assert platform.spark.table(f"lake.{StreamPlace('default', 'shop', 'shop.carts').latest}").count() == 2


# What fails where, and the last step of the catalogue that is done again.
FAULTS = {"run.before_plan": "listing", "lake.before_publish": "marker", "lake.after_publish": "marker"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_connection_whose_run_failed_is_brought_up_to_date_from_the_step_that_failed(
    catalog: Catalog, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("TIDEMARK_CONFIG", str(catalog.platform.config.path))
    catalog.source.execute("CREATE TABLE note (id INTEGER)")
    instance.add_dynamic_partitions("connections", ["shop"])
    options: dict[str, Any] = {"tags": {"dagster/partition": "shop"}, "run_config": QUIET}
    monkeypatch.setenv("TIDEMARK_FAULT", f"{fault}:raise")
    with execute_job(reconstructable(catalog_job), instance, **options) as first:
        assert [event.step_key for event in first.all_events if event.is_step_failure] == [FAULTS[fault]]
    monkeypatch.delenv("TIDEMARK_FAULT")
    again = ReexecutionOptions.from_failure(first.run_id, instance)
    with execute_job(reconstructable(catalog_job), instance, reexecution_options=again, **options) as second:
        assert second.success
    assert [each["attributes"]["name"] for each in catalog.state(Kind.TABLE)] == ["note"]
    last = catalog.subject.control.runs.latest(catalog.subject.address)
    assert last is not None
    assert last.run_id == second.run_id
