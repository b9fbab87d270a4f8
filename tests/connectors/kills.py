"""A stream in the kill suite."""

import sqlite3
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from platform_assets.connectors.moving import rewound
from spark_code.connectors.audit import audit
from spark_code.connectors.rollback import roll_back_stream
from spark_code.connectors.subject import StreamSubject
from tests.catalog.harness import SparkForTests
from tests.connectors.harness import Stream
from tests.runs.kills import Scenario, Victim, recovery
from tests.runs.places import strays_of
from tidemark.lake_sweep import sweep
from tidemark.runs.upkeep import keep_up

ORDERS = "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, price TEXT, updated_at DATETIME)"
# What cannot be a price is held in quarantine: a run that meets it publishes two tables.
FIELDS = {"id": "bigint", "item": "string", "price": "decimal(9,2)", "updated_at": "timestamp"}
FIRST = ("INSERT INTO orders VALUES (1, 'pen', '1.50', '2026-01-01T10:00:00Z'), (2, 'ink', 'free', '2026-01-01T11:00:00Z')",)
CHANGE = (
    "UPDATE orders SET item = 'pencil', updated_at = '2026-01-02T10:00:00Z' WHERE id = 1",
    "INSERT INTO orders VALUES (3, 'cap', '2.00', '2026-01-02T11:00:00Z')",
    "INSERT INTO orders VALUES (4, 'bag', 'dunno', '2026-01-02T12:00:00Z')",
)


@dataclass
class StreamVictim(Victim):
    """Orders of a shop in SQLite."""

    stream: Stream
    # Its quarantine, and then itself.
    publishes = 2

    @classmethod
    def make(cls, folder: Path, spark: SparkForTests, **config: Any) -> "StreamVictim":
        folder.mkdir(parents=True)
        path = folder / "shop.db"
        write(path, ORDERS, *FIRST)
        described = {"source": "orders", "key": ["id"], "cursor": "updated_at"}
        typed = {"schema_strategy": "fixed", "schema": FIELDS}
        return cls(Stream.configured(folder, spark, config, "sql", {"url": f"sqlite:///{path}"}, **described, **typed))

    @property
    def subject(self) -> StreamSubject:
        return self.stream.subject

    @property
    def table(self) -> str:
        return self.subject.place.table

    def reopen(self) -> None:
        self.stream.reopen()

    def run(self) -> None:
        self.stream.run()

    def change(self) -> None:
        write(self.stream.folder / "shop.db", *CHANGE)

    def go_back(self) -> None:
        runs = self.subject.control.runs.history(self.subject.address)
        roll_back_stream(self.subject, next(run for run in reversed(runs) if run.snapshot), "wrong prices")

    def rewind(self) -> None:
        config = self.stream.platform.config.path
        rewound(config, "t1/shop/shop.orders", None, 1, "wrong prices", dry_run=False)

    def maintain(self) -> None:
        keep_up(self.subject, self.stream.platform.lake, keep_runs=1, older_than=timedelta(0))

    # --- what must hold ----------------------------------------------------------------------------------------------

    def kept(self) -> None: ...

    def undisturbed(self) -> None: ...

    def shown(self) -> Any:
        reader, found = self.stream.platform.reader, []
        for name in self.subject.tables[:1]:
            table = reader.table(name)
            if table is None or table.current_snapshot() is None:
                return None
            rows = table.scan(selected_fields=("record", "operation")).to_arrow().to_pylist()
            found.append(sorted(map(repr, rows)))
        return found

    def check_settled(self) -> None:
        """The newest version of every record is as at the source, none landed twice, and none is held twice."""
        with sqlite3.connect(self.stream.folder / "shop.db") as connection:
            rows = connection.execute("SELECT id, item FROM orders ORDER BY id").fetchall()
        connection.close()
        landed = [(record["id"], record["item"]) for record in self.stream.latest()]
        held = sorted(row["record"] for row in self.stream.quarantine())
        assert landed == [row for row in rows if row[1] not in ("ink", "bag")]
        assert len(held) == len([row for row in rows if row[1] in ("ink", "bag")])
        assert [each.name for each in audit(self.subject) if not each.passed] == []

    def mark_is_ahead(self) -> bool:
        if self.shown() is None:
            return self.stream.state is not None
        return any(not each.passed for each in audit(self.subject) if each.name == "state_not_ahead")

    def moved_the_mark(self) -> str | None:
        moves = self.subject.marks.audit(self.subject.address)
        return moves[0].run_id if moves else None

    def strays(self) -> list[str]:
        place, platform = self.subject.place, self.stream.platform
        left = [info.key for info in platform.store.list(f"{place.root}/")]
        for table in self.subject.tables:
            sweep(platform.reader, platform.store, table, now=platform.clock.now(), older_than=timedelta(0))
            left += strays_of(platform, table)
        return left


def write(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def ran(victim: StreamVictim) -> None:
    victim.run()


def changed(victim: StreamVictim) -> None:
    victim.run()
    victim.change()


def twice(victim: StreamVictim) -> None:
    changed(victim)
    victim.run()


def nothing(victim: StreamVictim) -> None: ...


LANDED = ("ingest.after_plan", "bronze.after_add_files", "lake.after_publish", "ingest.before_state", "ingest.after_state")
INCREMENTAL = Scenario(changed, StreamVictim.run, LANDED, whole=True)
SCENARIOS = {
    "first run": Scenario(nothing, StreamVictim.run, LANDED),
    "incremental run": INCREMENTAL,
    "unchanged run": Scenario(ran, StreamVictim.run, ("ingest.after_plan", "run.after_finish")),
    "rollback": Scenario(twice, StreamVictim.go_back, ("control.after_mark_rewind", "rollback.before_publish")),
    "rewind": Scenario(twice, StreamVictim.rewind, ("control.before_mark_rewind", "control.after_mark_rewind")),
    "upkeep": Scenario(twice, StreamVictim.maintain, ("lake.after_compact", "lake.after_publish", "lake.after_expire")),
    "recovery of a published run": recovery(INCREMENTAL, "ingest.before_state"),
    "recovery of a staged run": recovery(INCREMENTAL, "bronze.after_add_files#2"),
}
