"""A stream whose slices are landed here and whose branches are made by PyIceberg: the run itself, without a Spark."""

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import AssertTableUUID, SetSnapshotRefUpdate

from spark_code.connectors import engine
from spark_code.connectors.bronze import BronzeTable
from spark_code.connectors.run import IngestRun
from spark_code.connectors.slices import SliceLander
from spark_code.connectors.subject import StreamSubject
from spark_code.lake import Lake
from spark_code.platform import Platform
from tidemark.config import load_config
from tidemark.connectors.contract import Slice
from tidemark.connectors.landing import SliceDone
from tidemark.connectors.manifest import load_manifest
from tidemark.lake import branch_of


@dataclass
class SparklessStream:
    """Orders of a shop in SQLite, with a number or whatever else as the cursor."""

    folder: Path
    platform: Platform

    @classmethod
    def make(cls, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str = "INTEGER", **stream: Any) -> "SparklessStream":
        without_spark(monkeypatch)
        config = {"store": "store", "connectors": ["shop.yaml"], "tenants": ["t1"], "spark": {"parallelism": 2}}
        (folder / "tidemark.yaml").write_text(yaml.safe_dump(config))
        described = {"id": "orders", "source": "orders", "key": ["id"], "cursor": "n", "cursor_type": "integer"} | stream
        source = {"connector": "shop", "kind": "sql", "settings": {"url": f"sqlite:///{folder}/shop.db"}}
        (folder / "shop.yaml").write_text(yaml.safe_dump({**source, "streams": [described]}))
        platform = Platform(load_config(folder / "tidemark.yaml"), start=lambda _: None)  # type: ignore[arg-type,return-value]
        platform.control.migrate()
        SqlCatalog("lake", **{**platform.lake_settings.for_python(), "init_catalog_tables": "true"})
        made = cls(folder, platform)
        made.write(f"CREATE TABLE orders (id INTEGER PRIMARY KEY, n {kind}, item TEXT)")
        return made

    @property
    def subject(self) -> StreamSubject:
        manifest = load_manifest(self.folder / "shop.yaml")
        return StreamSubject(self.platform, "t1", manifest, manifest.streams[0])

    def write(self, statement: str, rows: Iterable[tuple[Any, ...]] = ((),)) -> None:
        with sqlite3.connect(self.folder / "shop.db") as connection:
            connection.executemany(statement, rows)
        connection.close()

    def add(self, numbers: Iterable[int], cursor: Callable[[int], Any] = int) -> None:
        self.write("INSERT INTO orders VALUES (?, ?, 'pen')", ((number, cursor(number)) for number in numbers))

    def run(self, run_id: str, *, full: bool = False) -> None:
        with IngestRun(self.subject, run_id) as run:
            with run.step("plan"):
                plan = run.plan(full=full)
            with run.step("land"):
                run.land(plan)
            run.publish()

    def expire_lease(self) -> None:
        """As if a minute had passed in which its holder was stopped."""
        with self.platform.control._transactions.writing() as connection:
            connection.exec_driver_sql("UPDATE tidemark_leases SET expires_at = '2020-01-01 00:00:00.000000'")

    # --- looking -----------------------------------------------------------------------------------------------------

    def landed(self) -> list[int]:
        """Read from the files: one that is missing raises."""
        rows = self.platform.reader.existing(self.subject.place.table).scan().to_arrow()["record"].to_pylist()
        return sorted(row["id"] for row in rows)

    @property
    def state(self) -> str | None:
        found = self.subject.state()
        return found.value if found else None

    def reasons(self) -> list[tuple[str, str, str | None]]:
        history = self.platform.control.runs.history(self.subject.address)
        return [(run.run_id, run.status, run.reason) for run in reversed(history)]

    def data_files(self) -> set[Path]:
        return set((self.folder / "store").rglob("lake/bronze/t1/shop/orders/data/*.parquet"))

    def kept(self) -> list[str]:
        """What runs have left in the store."""
        return [info.key for info in self.platform.store.list(f"{self.subject.place.root}/runs/")]


def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = BronzeTable.prepared

    def land_slices(_spark: object, lander: SliceLander, slices: list[Slice]) -> list[SliceDone]:
        return [lander.land(each) for each in slices]

    def create_namespace(lake: Lake, name: str) -> None:
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            lake.reader.catalog.create_namespace_if_not_exists(".".join(parts[:depth]))

    def stage(lake: Lake, name: str, run_id: str) -> str:
        table = lake.reader.existing(name)
        head, branch = table.current_snapshot(), branch_of(run_id)
        assert head is not None
        begun = SetSnapshotRefUpdate(ref_name=branch, type=SnapshotRefType.BRANCH, snapshot_id=head.snapshot_id)  # type: ignore[call-arg]
        table.catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (begun,))
        return branch

    def with_a_snapshot(bronze: BronzeTable, schema: pa.Schema) -> Table:
        new, table = bronze.table is None, prepared(bronze, schema)
        if new:  # PyIceberg makes no branch of nothing
            table.append(table.schema().as_arrow().empty_table())
        return bronze.lake.reader.existing(bronze.name)

    monkeypatch.setattr(engine, "land_slices", land_slices)
    monkeypatch.setattr(BronzeTable, "views", lambda *_, **__: None)
    monkeypatch.setattr(BronzeTable, "prepared", with_a_snapshot)
    monkeypatch.setattr(Lake, "create_namespace", create_namespace)
    monkeypatch.setattr(Lake, "stage", stage)
