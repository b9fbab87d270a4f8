"""Source packs for tests that read a real database on a bad day."""

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Literal

import psycopg

from tidemark.catalog.packs.base import Listing, TableReading, TableRef, database_file
from tidemark.catalog.packs.postgresql import PostgresqlPack
from tidemark.catalog.packs.sqlite import SqlitePack
from tidemark.catalog.scope import Scope
from tidemark.errors import SourceUnreachable

LONG_AGO = "2000-01-01T00:00:00+00:00"


class VanishingPack(SqlitePack):
    """Somebody drops the table `going` between the listing and the reading of columns."""

    app: ClassVar[str] = "vanishing"

    def columns(self, tables: Sequence[TableRef]) -> Iterator[tuple[TableRef, TableReading | None]]:
        with closing(sqlite3.connect(database_file(self.url))) as connection:
            connection.execute("DROP TABLE IF EXISTS going")
        yield from super().columns(tables)


class MeddledSqlitePack(SqlitePack):
    """Somebody changes the source between listing and reading, once: with the statements in a file next to the database."""

    app: ClassVar[str] = "meddled-sqlite"

    def columns(self, tables: Sequence[TableRef]) -> Iterator[tuple[TableRef, TableReading | None]]:
        plan = Path(f"{database_file(self.url)}.meddling")
        if plan.exists():
            statements = json.loads(plan.read_text())
            plan.unlink()
            with closing(sqlite3.connect(database_file(self.url))) as connection:
                for statement in statements:
                    connection.execute(statement)
        yield from super().columns(tables)


class MeddledPostgresqlPack(PostgresqlPack):
    """The same on PostgreSQL: the statements are in a table of a schema that is not in scope."""

    app: ClassVar[str] = "meddled-postgresql"

    def columns(self, tables: Sequence[TableRef]) -> Iterator[tuple[TableRef, TableReading | None]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for (statement,) in connection.execute("DELETE FROM meddling.todo RETURNING statement").fetchall():
                connection.execute(statement.encode())
        yield from super().columns(tables)


class ClockedPack(MeddledSqlitePack):
    """Only a clock says that a table changed. Times, and whether the schema can be listed, are in a file next to it."""

    app: ClassVar[str] = "clocked"
    signal: ClassVar[Literal["digest", "clock"]] = "clock"

    def listing(self, scope: Scope, since: datetime | None = None) -> Listing:
        told = json.loads(Path(f"{database_file(self.url)}.clock").read_text())
        listing = super().listing(scope, since)
        schemas = tuple(replace(schema, listed=not told["hidden"], why_not="hidden") for schema in listing.schemas)
        tables = tuple(
            replace(table, changed_at=datetime.fromisoformat(told["changed"].get(table.name, LONG_AGO)))
            for table in listing.tables
            if not told["hidden"]
        )
        return replace(listing, schemas=schemas, tables=tables)


class ForgetfulPack(SqlitePack):
    """Says nothing at all about the table `going`."""

    app: ClassVar[str] = "forgetful"

    def columns(self, tables: Sequence[TableRef]) -> Iterator[tuple[TableRef, TableReading | None]]:
        return (answer for answer in super().columns(tables) if answer[0].name != "going")


class FlakyPack(SqlitePack):
    """Columns cannot be read as often as the file beside the database says."""

    app: ClassVar[str] = "flaky"

    def columns(self, tables: Sequence[TableRef]) -> Iterator[tuple[TableRef, TableReading | None]]:
        counter = Path(f"{database_file(self.url)}.failures")
        left = int(counter.read_text()) if counter.exists() else 0
        if left:
            counter.write_text(str(left - 1))
            raise SourceUnreachable(f"the source went away in process {os.getpid()}")
        yield from super().columns(tables)
