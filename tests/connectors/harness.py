"""A stream in a test: a manifest, a source, and the verbs that a user has."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from resources.platform import share_platform
from spark_code.connectors.run import IngestRun
from spark_code.connectors.subject import StreamSubject
from spark_code.platform import Platform
from tests.catalog.harness import SparkForTests
from tidemark.checks import failed
from tidemark.config import load_config
from tidemark.connectors.contract import OutputState
from tidemark.connectors.manifest import load_manifest
from tidemark.control import RunRecord


@dataclass
class Stream:
    """One stream of one connector of one tenant."""

    folder: Path
    platform: Platform
    tenant: str = "t1"

    @classmethod
    def make(cls, folder: Path, spark: SparkForTests, kind: str, settings: dict[str, Any], **stream: Any) -> "Stream":
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tidemark.yaml").write_text(yaml.safe_dump({"store": str(folder / "store")}))
        made = cls(folder, share_platform(Platform(load_config(folder / "tidemark.yaml"), spark)))
        made.describe(kind, settings, **stream)
        return made

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
        run = IngestRun(self.subject, str(uuid4()))
        run.begin()
        try:
            with run.step("plan"):
                plan = run.plan(full=full, allow_deletions=allow_deletions)
            with run.step("land"):
                run.land(plan)
            with run.step("checks"):
                assert not failed(run.verify())
            return run.publish()
        finally:
            run.end()

    def reopen(self) -> None:
        """A new platform, as a new process would open it."""
        self.platform = share_platform(replace(self.platform, config=load_config(self.platform.config.path)))

    # --- looking -----------------------------------------------------------------------------------------------------

    @property
    def last_run(self) -> RunRecord:
        return self.platform.control.runs.history("connectors", self.subject.name, limit=1)[0]

    @property
    def state(self) -> str | None:
        found = self.subject.registry.get("shop", "shop.orders")
        return found.last_cursor if found else None

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
