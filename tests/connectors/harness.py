"""A stream in a test: a manifest, a source, and the verbs that a user has."""

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from resources.platform import share_platform
from spark_code.connectors.run import IngestRun
from spark_code.connectors.subject import StreamSubject
from spark_code.platform import Platform
from tests.catalog.harness import SparkForTests
from tidemark.config import load_config
from tidemark.connectors.contract import OutputState
from tidemark.connectors.manifest import load_manifest
from tidemark.control import RunRecord
from tidemark.runs.upkeep import keep_up


@dataclass
class Stream:
    """One stream of one connector of one tenant."""

    folder: Path
    platform: Platform
    tenant: str = "t1"

    @classmethod
    def make(cls, folder: Path, spark: SparkForTests, kind: str, settings: dict[str, Any], **stream: Any) -> "Stream":
        return cls.configured(folder, spark, {}, kind, settings, **stream)

    @classmethod
    def configured(
        cls, folder: Path, spark: SparkForTests, config: dict[str, Any], kind: str, settings: dict[str, Any], **stream: Any
    ) -> "Stream":
        """The same, whose state is kept where the configuration says."""
        folder.mkdir(parents=True, exist_ok=True)
        document = {"store": str(folder / "store"), "connectors": ["shop.yaml"], "tenants": ["t1"], **config}
        (folder / "tidemark.yaml").write_text(yaml.safe_dump(document))
        made = cls.attach(folder, spark)
        made.describe(kind, settings, **stream)
        return made

    @classmethod
    def attach(cls, folder: Path, spark: SparkForTests, tenant: str = "t1") -> "Stream":
        """The stream that was made in this folder."""
        return cls(folder, share_platform(Platform(load_config(folder / "tidemark.yaml"), start=spark)), tenant)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled for a child: it opens its own, on a Spark that is warm."""
        assert self.platform.spark
        return Stream.attach, (self.folder, self.platform.start, self.tenant)

    def describe(self, kind: str, settings: dict[str, Any], **stream: Any) -> None:
        """Writes the manifest for the runs that follow."""
        manifest = {"connector": "shop", "kind": kind, "settings": settings, "streams": [{"id": "shop.orders", **stream}]}
        (self.folder / "shop.yaml").write_text(yaml.safe_dump(manifest))

    @property
    def subject(self) -> StreamSubject:
        manifest = load_manifest(self.folder / "shop.yaml")
        return StreamSubject(self.platform, self.tenant, manifest, manifest.streams[0])

    # --- verbs -------------------------------------------------------------------------------------------------------

    def run(self, *, full: bool = False, allow_deletions: bool = False) -> OutputState | None:
        with IngestRun(self.subject, str(uuid4())) as run:
            with run.step("plan"):
                plan = run.plan(full=full, allow_deletions=allow_deletions)
            with run.step("land"):
                run.land(plan)
            return run.publish()

    def maintain(self, keep_runs: int = 50) -> dict[str, Any]:
        """Upkeep of the stream's tables: what was done to each, in numbers."""
        detail = keep_up(self.subject, self.platform.lake, keep_runs=keep_runs, older_than=timedelta(0)).detail
        return detail.get("upkeep") or {"left alone": detail["left alone"]}

    def reopen(self) -> None:
        """A new platform, as a new process would open it."""
        self.platform = share_platform(replace(self.platform, config=load_config(self.platform.config.path)))

    # --- looking -----------------------------------------------------------------------------------------------------

    @property
    def last_run(self) -> RunRecord:
        return self.platform.control.runs.history(self.subject.address, limit=1)[0]

    @property
    def state(self) -> str | None:
        found = self.subject.marks.get(self.subject.address)
        return found.value if found else None

    def changes(self) -> list[dict[str, Any]]:
        """Every version that landed, as it arrived."""
        rows = self.platform.spark.table(f"lake.{self.subject.place.changes}").orderBy("emitted_at", "arrival").toArrow()
        return [row["record"] for row in rows.to_pylist()]

    def latest(self, key: str = "id") -> list[dict[str, Any]]:
        rows = self.platform.spark.table(f"lake.{self.subject.place.latest}").toArrow().to_pylist()
        return sorted((row["record"] for row in rows), key=lambda record: record[key])

    def quarantine(self) -> list[dict[str, Any]]:
        return self.platform.spark.table(f"lake.{self.subject.place.quarantine}").toArrow().to_pylist()

    def snapshot(self) -> int | None:
        published = self.platform.lake.reader.published(self.subject.place.table)
        return published.snapshot_id if published else None
