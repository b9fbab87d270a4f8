"""A model in a test: a lake of its own, a source that can be changed, and the verbs that a user has."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from resources.platform import share_platform
from spark_code.models.materialize import MaterializationHandler
from spark_code.platform import Platform
from tests.catalog.harness import SparkForTests
from tidemark.config import load_config
from tidemark.control import RunRecord
from tidemark.lake_names import SHADOW
from tidemark.lake_sweep import sweep
from tidemark.models.place import ModelPlace
from tidemark.models.results import ModelResult
from tidemark.models.spec import ModelMetadata
from tidemark.models.state import ModelState, ModelStateManager
from tidemark.models.subject import ModelSubject
from tidemark.models.windows import TimeWindow
from tidemark.runs.upkeep import keep_up

Row = dict[str, Any]

# For rows that are three: no second job to look at the first, no code that is compiled to be run once.
QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass
class ModelLab:
    """Models over sources that are temporary views."""

    folder: Path
    platform: Platform

    @classmethod
    def make(cls, folder: Path, spark: SparkForTests, **config: Any) -> "ModelLab":
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tidemark.yaml").write_text(yaml.safe_dump({"store": str(folder / "store"), **config}))
        lab = cls.attach(folder, spark)
        lab.platform.control.migrate()
        return lab

    @classmethod
    def attach(cls, folder: Path, spark: SparkForTests) -> "ModelLab":
        """The laboratory that was made in this folder, without its sources."""
        lab = cls(folder, share_platform(Platform(load_config(folder / "tidemark.yaml"), start=spark)))
        lab.hurry()
        return lab

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled for a child: it opens its own, on a Spark that is warm; the sources are views, and stay behind."""
        return ModelLab.attach, (self.folder, self.platform.start)

    def hurry(self) -> None:
        """Settings for tiny tables, in the session that is open now."""
        for key, value in QUICK.items():
            self.spark.conf.set(key, value)

    @property
    def spark(self) -> Any:
        return self.platform.spark

    @property
    def handler(self) -> MaterializationHandler:
        return MaterializationHandler(self.platform)

    @property
    def states(self) -> ModelStateManager:
        return ModelStateManager(self.platform.control)

    # --- verbs -------------------------------------------------------------------------------------------------------

    def source(self, columns: str, *rows: Sequence[Any], name: str = "source") -> None:
        """A source of these columns, written as in CREATE TABLE, and rows."""
        typed = [column.split(maxsplit=1) for column in columns.split(", ")]
        values = ", ".join(f"({', '.join(map(written, row))})" for row in rows)
        listed = ", ".join(f"CAST({column} AS {of}) AS {column}" for column, of in typed)
        names = ", ".join(column for column, _ in typed)
        self.spark.sql(f"SELECT {listed} FROM VALUES {values} AS t({names})").createOrReplaceTempView(name)

    def run(
        self,
        name: str,
        sql: str,
        *,
        full: bool = False,
        window: TimeWindow | None = None,
        run_id: str | None = None,
        **metadata: Any,
    ) -> ModelResult:
        """Runs a model: incremental if its metadata say how, a table otherwise."""
        kind = metadata.pop("materialization", "incremental" if "incremental" in metadata else "table")
        return self.handler.materialize(name, sql, kind, metadata, full=full, window=window, run_id=run_id)

    def maintain(self, name: str, metadata: ModelMetadata, keep_runs: int = 1) -> dict[str, Any]:
        """Upkeep of the model's table: what was done to it, in numbers."""
        subject = ModelSubject(self.platform, name, metadata)
        done = keep_up(subject, self.platform.lake, keep_runs=keep_runs, older_than=timedelta(0))
        return done.detail.get("upkeep", {}).get(subject.place.table, {})

    def sweep(self, name: str) -> None:
        """Removes what nothing refers to, however young."""
        table, reader = ModelPlace(name).table, self.platform.reader
        more = [f"{table}{SHADOW}"]
        sweep(reader, self.platform.store, table, now=self.platform.clock.now(), older_than=timedelta(0), more=more)

    def reopen(self) -> None:
        """A new platform, as a new process would open it."""
        self.platform = share_platform(replace(self.platform, config=load_config(self.platform.config.path)))
        self.hurry()

    # --- looking -----------------------------------------------------------------------------------------------------

    def arrow(self, name: str) -> pa.Table:
        """The published rows, read without Spark."""
        reader, place = self.platform.lake.reader, ModelPlace(name)
        table = reader.table(place.table)
        assert table is not None
        return table.scan().to_arrow()

    def rows(self, name: str, by: str | None = None) -> list[Row]:
        """The published rows, in an order that does not depend on how they were written."""
        found = self.arrow(name).to_pylist()
        return sorted(found, key=lambda row: repr(row[by] if by else list(row.items())))

    def columns(self, name: str) -> dict[str, str]:
        table = self.platform.lake.reader.table(ModelPlace(name).table)
        assert table is not None
        return {field.name: str(field.field_type) for field in table.schema().fields}

    def snapshot(self, name: str) -> int | None:
        published = self.platform.lake.reader.published(ModelPlace(name).table)
        return published.snapshot_id if published else None

    def state(self, name: str) -> ModelState | None:
        return self.states.get(name)

    def last_run(self, name: str) -> RunRecord:
        return self.platform.control.runs.history(f"model/{name}", limit=1)[0]

    def told(self, name: str) -> tuple[Any, ...]:
        """Everything of a model that must not change when a run is refused."""
        state = self.state(name)
        return self.rows(name), self.columns(name), self.snapshot(name), state and (state.to_json(), state.version)


def written(value: Any) -> str:
    """A value as Spark's SQL writes it."""
    return "NULL" if value is None else repr(value) if isinstance(value, int) else f"'{value}'"


def incremental(strategy: str, policy: str | None = None, **options: Any) -> dict[str, Any]:
    """The `incremental:` part of a model's metadata."""
    return {"strategy": strategy, strategy: options} | ({"on_schema_change": policy} if policy else {})
