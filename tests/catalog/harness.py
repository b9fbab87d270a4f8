"""A catalogue in a test: a configuration, a source, and the verbs that a user has."""

import json
import os
import sqlite3
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from dagster import AssetSelection, DagsterInstance, Definitions, ExecuteInProcessResult, define_asset_job
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from partitions.catalog import connections
from partitions.subjects import subjects
from platform_assets.catalog.launch import run_config
from platform_assets.launch import QUIET
from resources.platform import share_platform
from spark_code.catalog.subject import CatalogSubject
from spark_code.platform import Platform
from spark_code.session import prepare_environment, start_session
from tidemark.catalog.rows import Kind
from tidemark.catalog.states import entities
from tidemark.config import load_config
from tidemark.control import RunRecord

LAKE = "spark.sql.catalog.lake"


class SparkForTests:
    """One JVM for the whole process and its children; every platform gets a session of its own in it, with its own lake."""

    def __init__(self, base: SparkSession | None = None) -> None:
        self._base = base
        self._starting = threading.Lock()

    def __call__(self, settings: dict[str, str]) -> SparkSession:
        with self._starting:
            if self._base is None:
                # Without any lake: what the first one sets here, all later ones would inherit.
                plain = {key: value for key, value in settings.items() if not key.startswith(LAKE)}
                self._base = start_session(plain | for_tests(settings))
        session = self._base.newSession()
        for key, value in settings.items():
            if key.startswith(LAKE):
                session.conf.set(key, value)
        return session

    def stop(self) -> None:
        if self._base is not None:
            self._base.stop()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled for a child: it attaches to the JVM of the test process."""
        gateway = SparkContext._gateway
        assert self._base is not None
        assert gateway is not None
        parameters = gateway.gateway_parameters
        return attached, (parameters.port, parameters.auth_token)


def attached(port: int, secret: str) -> SparkForTests:
    """The Spark of another process, which need not be idle: connections are not shared."""
    prepare_environment()
    with patch.dict(os.environ, PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
        gateway = launch_gateway()
    context = gateway.jvm.JavaSparkContext.fromSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    python = SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))
    return SparkForTests(SparkSession(python))


def for_tests(settings: dict[str, str]) -> dict[str, str]:
    """Little data, many queries: to compile them, by Spark and by Java, takes longer than to run them."""
    java = settings.get("spark.driver.extraJavaOptions", "")
    return {
        "spark.driver.memory": "1500m",
        "spark.driver.extraJavaOptions": f"{java} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "2",
    }


@dataclass
class Catalog:
    """One connection called `shop`."""

    folder: Path
    platform: Platform
    source: Any
    instance: DagsterInstance = field(default_factory=DagsterInstance.ephemeral)
    name: str = "shop"

    @classmethod
    def make(cls, folder: Path, spark: SparkForTests, source: Any, connection: dict[str, Any], **config: Any) -> "Catalog":
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "store": str(folder / "store"),
            "connections": {"shop": {"id": "1700000000", "incremental-extraction": True, **connection}},
            **config,
        }
        path = folder / "tidemark.yaml"
        path.write_text(yaml.safe_dump(document))
        return cls.attach(folder, spark, source)

    @classmethod
    def attach(cls, folder: Path, spark: SparkForTests, source: Any, name: str = "shop") -> "Catalog":
        """The catalogue that was made in this folder."""
        platform = share_platform(Platform(load_config(folder / "tidemark.yaml"), start=spark))
        return cls(folder, platform, source, name=name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled for a child: it opens its own, on a Spark that is warm."""
        assert self.platform.spark
        return Catalog.attach, (self.folder, self.platform.start, self.source, self.name)

    @classmethod
    def of_sqlite(cls, folder: Path, spark: SparkForTests, **connection: Any) -> "Catalog":
        source = SqliteSource(folder / "shop.db")
        return cls.make(folder, spark, source, {"app": "sqlite", "url": source.url, **connection})

    @property
    def subject(self) -> CatalogSubject:
        return CatalogSubject(self.platform, self.platform.config.connection(self.name))

    # --- verbs -------------------------------------------------------------------------------------------------------

    def attempt(
        self, *, full: bool = False, allow_removals: bool = False, checks: bool = True, **options: Any
    ) -> ExecuteInProcessResult:
        """Runs the job; what went wrong is in the result."""
        from platform_assets.definitions import defs

        if not checks:
            # What somebody gets who selects the assets alone in the web UI.
            alone = define_asset_job("alone", selection=AssetSelection.groups("catalog").without_checks())
            defs = Definitions.merge(defs, Definitions(jobs=[alone]))
        self.instance.add_dynamic_partitions(str(connections.name), [self.name])
        job = defs.resolve_job_def("catalog" if checks else "alone")
        with patch.dict(os.environ, TIDEMARK_CONFIG=str(self.platform.config.path)):
            return job.execute_in_process(
                instance=self.instance,
                partition_key=self.name,
                run_config={**run_config(full=full, allow_removals=allow_removals), **QUIET},
                **{"raise_on_error": False, **options},
            )

    def upkeep(self) -> ExecuteInProcessResult:
        """Runs the upkeep job; what went wrong is in the result."""
        from platform_assets.definitions import defs

        address = self.subject.address
        self.instance.add_dynamic_partitions(str(subjects.name), [address])
        with patch.dict(os.environ, TIDEMARK_CONFIG=str(self.platform.config.path)):
            return defs.resolve_job_def("tidemark_upkeep").execute_in_process(
                instance=self.instance, partition_key=address, raise_on_error=False
            )

    def run(self, **options: Any) -> RunRecord:
        """Runs the job, which must succeed, and returns its row of the ledger."""
        result = self.attempt(raise_on_error=True, **options)
        return self.subject.control.runs.find(self.subject.address, result.run_id)

    def state(self, kind: Kind | None = None) -> list[dict[str, Any]]:
        """The published entities, sorted by name."""
        published = self.subject.published()
        assert published.snapshot is not None
        reader, table = self.platform.lake.reader, self.subject.layout.table
        lines = entities(reader, table, published.snapshot, published.labels_of, kind)
        return [json.loads(line) for line in lines]

    def unlabelled(self) -> list[dict[str, Any]]:
        """The published entities without their labels: what must not depend on how the state was arrived at."""
        state = self.state()
        for entity in state:
            del entity["attributes"]["incremental_state"]
        return state

    def labels(self) -> dict[str, str]:
        """Label of every published table, by its plain name."""
        return {e["attributes"]["name"]: e["attributes"]["incremental_state"] for e in self.state(Kind.TABLE)}

    def columns_of(self, table: str) -> list[str]:
        """Names of a table's columns, in their order."""
        found = [e["attributes"] for e in self.state(Kind.COLUMN) if e["attributes"]["tableName"] == table]
        return [column["name"] for column in sorted(found, key=lambda column: column["order"])]

    def reopen(self) -> None:
        """A new platform, as a new process would open it: nothing of the old one's connections is kept."""
        self.platform = share_platform(replace(self.platform, config=load_config(self.platform.config.path)))

    def configure(self, **connection: Any) -> None:
        """Changes the connection's settings for the runs that follow."""
        path = self.platform.config.path
        document = yaml.safe_load(path.read_text())
        document["connections"][self.name] |= {key.replace("_", "-"): value for key, value in connection.items()}
        path.write_text(yaml.safe_dump(document))
        self.reopen()

    def diff(self, run_id: str) -> dict[str, list[str]]:
        """Names of the entities in the diff of a run, by folder (and kind, below `delete`)."""
        store, root = self.platform.store, self.subject.layout.diff(run_id)
        found: dict[str, list[str]] = {}
        for info in store.list(root + "/"):
            path = info.key.removeprefix(root + "/")
            if path == "metadata.json":
                continue
            folder, _, file = path.partition("/")
            kind = f"{folder}/{file.rpartition('_')[0]}" if folder == "delete" else folder
            names = [json.loads(line)["attributes"]["name"] for line in store.read(info.key).splitlines()]
            found.setdefault(kind, []).extend(names)
        return found

    def deleted(self, run_id: str, kind: Kind) -> list[dict[str, Any]]:
        """Entities of one kind in the `delete/` folder of a run's diff."""
        store, root = self.platform.store, self.subject.layout.diff(run_id)
        files = [info.key for info in store.list(f"{root}/delete/") if info.key.startswith(f"{root}/delete/{kind}_")]
        return [json.loads(line) for key in files for line in store.read(key).splitlines()]

    def deleted_names(self, run_id: str) -> list[str]:
        return [e["attributes"]["name"] for kind in (Kind.TABLE, Kind.COLUMN) for e in self.deleted(run_id, kind)]

    # --- looking -----------------------------------------------------------------------------------------------------

    def mirror(self) -> list[dict[str, Any]]:
        """Every entity of the JSON mirror, sorted by name."""
        store, layout = self.platform.store, self.subject.layout
        lines = [
            json.loads(line)
            for info in store.list(layout.current_state + "/")
            if not info.key.endswith("_manifest.json")
            for line in store.read(info.key).splitlines()
        ]
        return in_order(lines)

    def objects(self) -> list[str]:
        """Every object of the connection, lake left out."""
        return [info.key for info in self.platform.store.list(self.subject.layout.root + "/")]

    def snapshot_of_everything(self) -> dict[str, Any]:
        """All that a failed run must leave as it was."""
        store, layout = self.platform.store, self.subject.layout
        kept = {info.key: info.etag for info in store.list(layout.root + "/") if not info.key.startswith(layout.runs)}
        published = self.subject.published()
        return {"objects": kept, "snapshot": published.snapshot, "marker": published.recorded_marker}


def in_order(entities: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(entities, key=lambda entity: (entity["attributes"]["qualifiedName"], entity["typeName"]))


@dataclass
class SqliteSource:
    path: Path

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.execute("PRAGMA user_version = 1")

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def execute(self, *statements: str) -> None:
        with sqlite3.connect(self.path) as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()
