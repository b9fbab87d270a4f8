"""Source packs for tests that read a real SQLite database on a bad day."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from tidemark.catalog.packs.base import ColumnFacts, TableRef, database_file
from tidemark.catalog.packs.sqlite import SqlitePack
from tidemark.errors import SourceUnreachable


class VanishingPack(SqlitePack):
    """Somebody drops the table `going` between the listing and the reading of columns."""

    app: ClassVar[str] = "vanishing"

    def columns(self, tables: Sequence[TableRef]) -> Iterator[tuple[TableRef, list[ColumnFacts] | None]]:
        import sqlite3
        from contextlib import closing

        with closing(sqlite3.connect(database_file(self.url))) as connection:
            connection.execute("DROP TABLE IF EXISTS going")
        yield from super().columns(tables)


class FlakyPack(SqlitePack):
    """Columns cannot be read as often as the file beside the database says."""

    app: ClassVar[str] = "flaky"

    def columns(self, tables: Sequence[TableRef]) -> Iterator[tuple[TableRef, list[ColumnFacts] | None]]:
        counter = Path(f"{database_file(self.url)}.failures")
        left = int(counter.read_text()) if counter.exists() else 0
        if left:
            counter.write_text(str(left - 1))
            raise SourceUnreachable(f"the source went away in process {os.getpid()}")
        yield from super().columns(tables)
