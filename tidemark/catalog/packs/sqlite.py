"""SQLite. The file is opened read-only; everything is computed in this process."""

import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from tidemark.catalog.packs.base import (
    ColumnFacts,
    DatabaseFacts,
    Listing,
    PackedTables,
    SchemaFacts,
    SourcePack,
    TableFacts,
    TableReading,
    TableRef,
    database_file,
    digest_of,
    object_id_of,
)
from tidemark.catalog.scope import Scope
from tidemark.errors import SourceError, SourceUnreachable

# SQLite's own names for the one database and the one schema of a file.
MAIN = "main"
TABLES_AT_ONCE = 5_000

CLOCK = "SELECT strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')"

TABLES = """
SELECT name, type, CASE type WHEN 'view' THEN sql END AS definition, sql LIKE 'CREATE VIRTUAL%' AS virtual
FROM sqlite_master
WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
ORDER BY name"""

PROBE = "SELECT 1 FROM pragma_table_xinfo(?, 'main')"

COLUMNS = """
SELECT asked.value, x.name, x.cid + 1, x.type, NOT x."notnull",
       CASE x.hidden WHEN 2 THEN 'GENERATED ALWAYS VIRTUAL' WHEN 3 THEN 'GENERATED ALWAYS STORED' ELSE x.dflt_value END,
       nullif(x.pk, 0)
FROM json_each(:names) AS asked
JOIN pragma_table_xinfo(asked.value, 'main') AS x
WHERE x.hidden <> 1
ORDER BY asked.key, x.cid"""

# A key names its target as it was typed, in any case, and may leave the column out: then the primary key is meant.
FOREIGN_KEYS = """
SELECT asked.value, f."from", coalesce(t.name, f."table"), coalesce(c.name, f."to")
FROM json_each(:names) AS asked
JOIN pragma_foreign_key_list(asked.value, 'main') AS f
LEFT JOIN sqlite_master AS t
       ON t.type = 'table' AND t.name = f."table" COLLATE NOCASE AND t.sql NOT LIKE 'CREATE VIRTUAL%'
LEFT JOIN pragma_table_xinfo(t.name, 'main') AS c
       ON c.name = f."to" COLLATE NOCASE OR (f."to" IS NULL AND c.pk = f.seq + 1)
WHERE coalesce(c.name, f."to") IS NOT NULL"""


class SqlitePack(SourcePack):
    app = "sqlite"
    signal: ClassVar[Literal["digest", "clock"]] = "digest"
    schemes = ("sqlite",)

    # How long to wait for somebody who is writing.
    lock_seconds: ClassVar[float] = 10.0

    @staticmethod
    def target_of(url: str) -> str:
        return str(database_file(url))

    def listing(self, scope: Scope, since: datetime | None = None) -> Listing:
        del since  # a digest needs no clock
        with self._snapshot() as connection:
            ((now,),) = connection.execute(CLOCK)
            found = [row for row in connection.execute(TABLES).fetchall() if scope.covers(MAIN, row[0])]
            tables = PackedTables(_tables(connection, found))
        schema = SchemaFacts(MAIN, MAIN, None, listed=True, why_not=None)
        return Listing(
            identity=str(database_file(self.url).resolve()),
            clock=datetime.fromisoformat(now),
            databases=(DatabaseFacts(MAIN, None),),
            schemas=(schema,) if scope.reaches(MAIN) else (),
            tables=tables,
        )

    def pulse(self) -> str | None:
        """The version of the schema, which every change of it moves, and the file, which may be replaced by another."""
        with self._snapshot() as connection:
            ((version,),) = connection.execute("PRAGMA schema_version")
            file = database_file(self.url).stat()
        return f"{version}.{file.st_ino}.{file.st_mtime_ns}"

    def columns(self, tables: Sequence[TableRef]) -> Iterator[tuple[TableRef, TableReading | None]]:
        asked = {table.name for table in tables}
        with self._snapshot() as connection:
            found = {row[0]: row for row in connection.execute(TABLES).fetchall() if row[0] in asked}
            columns = _columns(connection, [(name, kind == "view" or virtual) for name, kind, _, virtual in found.values()])
        for table in tables:
            yield table, _reading(found[table.name], columns[table.name]) if table.name in found else None

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """One read transaction; nobody's change comes in between."""
        path = database_file(self.url)
        if not path.is_file():
            raise SourceUnreachable(f"there is no SQLite file {path}. Check the path in the url.")
        try:
            address = f"file:{quote(str(path.resolve()))}?mode=ro"
            connection = sqlite3.connect(address, uri=True, timeout=self.lock_seconds, isolation_level=None)
            try:
                # A name that is not UTF-8 is shown with escapes rather than stopping everything.
                connection.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
                connection.execute("BEGIN")
                yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise self._named(error) from None

    def _named(self, error: sqlite3.Error) -> SourceError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return SourceUnreachable(
                f"{self.target} is locked by somebody who writes; waited {self.lock_seconds:g} s. Run again later."
            )
        if code == sqlite3.SQLITE_CANTOPEN:
            return SourceUnreachable(f"{self.target} cannot be opened. Check that it may be read.")
        if code == sqlite3.SQLITE_NOTADB:
            return SourceError(f"{self.target} is not a SQLite database")
        return SourceError(f"{self.target} could not be read: {error}")


def _tables(connection: sqlite3.Connection, found: list[tuple[Any, ...]]) -> Iterator[TableFacts]:
    """The facts of tables. Columns are only needed for the digests, so those of some tables are held at a time."""
    for start in range(0, len(found), TABLES_AT_ONCE):
        some = found[start : start + TABLES_AT_ONCE]
        columns = _columns(connection, [(name, kind == "view" or virtual) for name, kind, _, virtual in some])
        for name, kind, definition, _ in some:
            yield _table(name, kind, definition, columns[name])


def _columns(connection: sqlite3.Connection, tables: list[tuple[str, bool]]) -> dict[str, list[tuple[Any, ...]]]:
    """The facts of the columns of each table, in order. The second of a pair says that the table may be broken."""
    names = [name for name, may_break in tables if not may_break or _compiles(connection, name)]
    asked = {"names": json.dumps(names)}
    targets: dict[tuple[str, str], set[tuple[str, str, str, str]]] = defaultdict(set)
    for table, column, target, target_column in connection.execute(FOREIGN_KEYS, asked):
        targets[table, column].add((MAIN, MAIN, target, target_column))
    columns: dict[str, list[tuple[Any, ...]]] = {name: [] for name, _ in tables}
    for table, rows in groupby(connection.execute(COLUMNS, asked), key=lambda row: row[0]):
        columns[table] = [(*row[1:], tuple(sorted(targets.get((table, row[1]), ())))) for row in rows]
    return columns


def _compiles(connection: sqlite3.Connection, name: str) -> bool:
    """A view over a table that is gone, or a virtual table whose module is not loaded, has no columns to list."""
    try:
        connection.execute(PROBE, (name,)).fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_ERROR:
            return False
        raise
    return True


def _table(name: str, kind: str, definition: str | None, columns: list[tuple[Any, ...]]) -> TableFacts:
    return TableFacts(
        database=MAIN,
        schema=MAIN,
        name=name,
        kind=kind,
        object_id=object_id_of(name),
        digest=digest_of(kind, definition, columns),
        comment=None,
        definition=definition,
        column_count=len(columns),
    )


def _reading(row: tuple[Any, ...], columns: list[tuple[Any, ...]]) -> TableReading:
    name, kind, definition, _ = row
    return TableReading(_table(name, kind, definition, columns), tuple(_column(*each) for each in columns))


def _column(
    name: str,
    ordinal: int,
    declared: str,
    nullable: int,
    default: str | None,
    key: int | None,
    targets: tuple[tuple[str, str, str, str], ...],
) -> ColumnFacts:
    length, precision, scale = _sizes(declared)
    return ColumnFacts(name, ordinal, declared, length, precision, scale, bool(nullable), default, None, key, targets)


def _sizes(declared: str) -> tuple[int | None, int | None, int | None]:
    """Length, or precision and scale, as declared: SQLite itself does not care."""
    sizes = re.search(r"\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\)", declared)
    if not sizes:
        return None, None, None
    first, second = int(sizes[1]), sizes[2]
    if second is None and re.search("CHAR|TEXT|CLOB|BLOB|BINARY", declared.upper()):
        return first, None, None
    return None, first, None if second is None else int(second)
