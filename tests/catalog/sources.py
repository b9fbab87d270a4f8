"""Sources that tests change and packs read."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

from tests.services.postgres import PostgresServer
from tidemark.catalog.packs import ColumnFacts, Listing, SourcePack, TableFacts, TableRef
from tidemark.catalog.scope import Scope

EVERYTHING = Scope()


@dataclass(frozen=True)
class TestedSource:
    """`execute` runs statements one by one on a connection of its own, so that BEGIN … ROLLBACK works."""

    __test__ = False

    app: str
    url: str
    execute: Callable[..., None]


def sqlite_source(folder: Path) -> TestedSource:
    path = folder / "source.db"

    def execute(*statements: str) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    execute("PRAGMA user_version = 1")  # makes the file
    return TestedSource("sqlite", f"sqlite:///{path}", execute)


def duckdb_source(folder: Path) -> TestedSource:
    path = folder / "source.duckdb"

    def execute(*statements: str) -> None:
        with duckdb.connect(path) as connection:
            for statement in statements:
                connection.execute(statement)

    execute("SELECT 1")
    return TestedSource("duckdb", f"duckdb:///{path}", execute)


def postgresql_source(server: PostgresServer) -> TestedSource:
    url = server.new_database()
    return TestedSource("postgresql", url, lambda *statements: server.execute(url, *statements))


@dataclass(frozen=True)
class Reading:
    """All that a pack tells about a table: what ends up in the catalogue (`facts` without the signals), and the signals."""

    facts: TableFacts
    columns: tuple[ColumnFacts, ...]
    object_id: str
    digest: str


def read_all(pack: SourcePack, listing: Listing | None = None) -> dict[str, Reading]:
    """Every table by `schema.table`, with its columns."""
    listing = listing or pack.listing(EVERYTHING)
    tables = {TableRef(each.database, each.schema, each.name): each for each in listing.tables}
    readings = {}
    for ref, reading in pack.columns(list(tables)):
        table = tables[ref]
        assert reading is not None
        assert [column.ordinal for column in reading.columns] == sorted(column.ordinal for column in reading.columns)
        # Nothing happened in between, so what was read is what was listed: facts, id and digest.
        assert reading.table == replace(table, created_at=None, changed_at=None)
        facts = replace(table, object_id="", digest="")
        readings[f"{table.schema}.{table.name}"] = Reading(facts, reading.columns, table.object_id, table.digest)
    assert len(readings) == len(tables)
    return readings


def assert_digests_tell_the_truth(before: dict[str, Reading], after: dict[str, Reading]) -> None:
    """A digest changes exactly if something it stands for changed, and the number of columns is the one listed."""
    for name in before.keys() & after.keys():
        old, new = before[name], after[name]
        shown = (old.facts, old.columns) != (new.facts, new.columns)
        assert (old.digest != new.digest) == shown, f"{name}: {old} -> {new}"
    for name, reading in after.items():
        assert reading.facts.column_count == len(reading.columns), name


def labels_between(before: dict[str, Reading], after: dict[str, Reading]) -> dict[str, str]:
    """What the signals alone say about every table that is not as it was."""
    labels = {name: "REMOVED" for name in before.keys() - after.keys()}
    labels |= {name: "CREATED" for name in after.keys() - before.keys()}
    for name in before.keys() & after.keys():
        if (before[name].object_id, before[name].digest) != (after[name].object_id, after[name].digest):
            labels[name] = "UPDATED"
    return labels
