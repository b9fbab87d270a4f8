"""The catalogue in the kill suite."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from spark_code.catalog.rollback import rewind_marker, roll_back
from spark_code.catalog.run import CatalogRun
from spark_code.catalog.subject import CatalogSubject
from tests.catalog.consumer import Consumer, by_name
from tests.catalog.harness import Catalog, SparkForTests, SqliteSource, in_order
from tests.runs.kills import Scenario, Victim, recovery
from tests.runs.places import strays_of
from tidemark.lake_sweep import sweep
from tidemark.runs.upkeep import keep_up

SETUP = (
    "CREATE TABLE still (a INTEGER, b INTEGER)",
    "CREATE TABLE changing (a INTEGER)",
    "CREATE TABLE going (a INTEGER)",
)
CHANGE = ("ALTER TABLE changing ADD COLUMN b TEXT", "DROP TABLE going", "CREATE TABLE coming (a INTEGER, b TEXT)")


@dataclass
class CatalogVictim(Victim):
    """One connection. Its runs are those of the job, without Dagster around them."""

    catalog: Catalog
    consumer: Consumer = field(default_factory=Consumer)
    # What a read of everything gives, by the statements that made the source.
    wanted: list[dict[str, Any]] | None = None

    @classmethod
    def make(cls, folder: Path, spark: SparkForTests, **settings: Any) -> "CatalogVictim":
        source = SqliteSource(folder / "shop.db")
        source.execute(*SETUP)
        return cls(Catalog.make(folder, spark, source, {"app": "sqlite", "url": source.url}, **settings))

    def __reduce__(self) -> tuple[Any, ...]:
        """A child only runs."""
        return CatalogVictim, (self.catalog,)

    @property
    def subject(self) -> CatalogSubject:
        return self.catalog.subject

    @property
    def table(self) -> str:
        return self.subject.layout.table

    def reopen(self) -> None:
        self.catalog.reopen()

    def run(self) -> None:
        with CatalogRun(self.subject, str(uuid4())) as run:
            run.publish(run.staged)

    def change(self) -> None:
        self.catalog.source.execute(*CHANGE)

    def go_back(self) -> None:
        runs = self.subject.control.runs.history(self.subject.address)
        roll_back(self.subject, next(run for run in reversed(runs) if run.snapshot))

    def rewind(self) -> None:
        marker = self.subject.marker.read().moment
        assert marker
        rewind_marker(self.subject, marker - timedelta(hours=1))

    def maintain(self) -> None:
        keep_up(self.subject, self.subject.lake, keep_runs=1, older_than=timedelta(0))

    # --- what must hold ----------------------------------------------------------------------------------------------

    def kept(self) -> None:
        """A consumer has followed so far; and the source, which no scenario changes, is read into an empty place."""
        self.consumer = Consumer()
        self.consumer.follow(self.catalog)
        folder = self.catalog.folder.with_name("fresh")
        source = self.catalog.source
        plain = Catalog.make(folder, self.catalog.platform.start, source, {"app": "sqlite", "url": source.url})
        CatalogVictim(plain).run()
        self.wanted = plain.unlabelled()

    def undisturbed(self) -> None: ...

    def shown(self) -> Any:
        return self.catalog.unlabelled() if self.subject.published().snapshot is not None else None

    def check_settled(self) -> None:
        catalog, consumer = self.catalog, self.consumer.copy()
        assert catalog.unlabelled() == self.wanted
        assert catalog.mirror() == in_order(catalog.state())
        consumer.follow(catalog)
        assert consumer.entities == by_name(catalog.mirror())

    def mark_is_ahead(self) -> bool:
        marker, recorded = self.subject.marker.read().moment, self.subject.published().recorded_marker
        return marker is not None and (recorded is None or marker > recorded)

    def moved_the_mark(self) -> str | None:
        moves = self.subject.control.marks.audit(self.subject.address)
        return moves[0].run_id if moves else None

    def strays(self) -> list[str]:
        """Objects that no published run, manifest or snapshot accounts for."""
        subject, platform = self.subject, self.catalog.platform
        table, reader = subject.layout.table, platform.reader
        # What a killed writer left is upkeep's to remove, once it is old enough: here it is.
        done = sweep(reader, platform.store, table, now=platform.clock.now(), older_than=timedelta(0))
        assert done.refused is None
        runs = {r.run_id for r in subject.control.runs.history(subject.address) if r.status in ("published", "unchanged")}
        objects = self.catalog.objects()
        odd = [key for key in objects if "/runs/" in key and key.split("/runs/")[1].split("/")[0] not in runs]
        root = "" if platform.lake_settings.on_s3 else platform.store.root
        temporary = [str(path) for path in Path(root).rglob("*") if ".tmp" in path.name] if root else []
        return [*odd, *temporary, *strays_of(platform, table)]


def ran(victim: CatalogVictim) -> None:
    victim.run()


def changed(victim: CatalogVictim) -> None:
    victim.run()
    victim.change()


def twice(victim: CatalogVictim) -> None:
    changed(victim)
    victim.run()


def nothing(victim: CatalogVictim) -> None: ...


AROUND = ("lake.before_publish", "lake.after_publish")
MARKED = ("control.before_mark_move", "marks.before_marker", "marker.after_swap", "run.after_finish")
MARKED_BACK = ("control.before_mark_rewind", "marks.before_marker", "marker.after_swap", "run.after_finish")
INCREMENTAL = Scenario(changed, CatalogVictim.run, (*AROUND, *MARKED, "state.between_delete_and_append"), whole=True)
SCENARIOS = {
    "first run": Scenario(nothing, CatalogVictim.run, (*AROUND, *MARKED, "mirror.before_file")),
    "incremental run": INCREMENTAL,
    "unchanged run": Scenario(ran, CatalogVictim.run, MARKED),
    "rollback": Scenario(twice, CatalogVictim.go_back, (*AROUND, *MARKED_BACK, "diff.after_write")),
    "rewind": Scenario(twice, CatalogVictim.rewind, MARKED_BACK),
    "upkeep": Scenario(twice, CatalogVictim.maintain, (*AROUND, "mirror.after_follow", "lake.after_expire")),
    "recovery of a published run": recovery(INCREMENTAL, "lake.after_publish"),
    "recovery of a staged run": recovery(INCREMENTAL, "lake.before_publish"),
}
