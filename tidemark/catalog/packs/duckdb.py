"""DuckDB. The file is opened read-only; everything is computed in this process."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Literal

import duckdb

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

MAGIC = b"DUCK"
MAGIC_OFFSET = 8
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Every question looks through all columns of the file, so it is about many tables.
TABLES_AT_ONCE = 20_000

# DuckDB compares names without regard to the case of ASCII letters, and constraints keep them as they were typed.
FOLD = """
CREATE TEMP MACRO tidemark_fold(name) AS translate(name, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')"""

DATABASE = """
SELECT database_name, comment, epoch_us(now()) FROM duckdb_databases() WHERE database_name = current_database()"""

SCHEMAS = """
SELECT schema_name, comment FROM duckdb_schemas()
WHERE database_name = current_database() AND schema_name NOT IN ('information_schema', 'pg_catalog')
ORDER BY schema_name"""

TABLES = """
SELECT schema_name, table_name, 'table' AS kind, comment, NULL AS definition
FROM duckdb_tables() WHERE database_name = current_database() AND NOT internal AND NOT temporary
UNION ALL
SELECT schema_name, view_name, 'view', comment, sql
FROM duckdb_views() WHERE database_name = current_database() AND NOT internal AND NOT temporary
ORDER BY ALL"""

# Integers have a precision in bits; only a declared one is a fact about the column.
COLUMNS = """
SELECT c.schema_name, c.table_name, c.column_name, c.column_index, c.data_type, c.character_maximum_length,
       CASE c.numeric_precision_radix WHEN 10 THEN c.numeric_precision END,
       CASE c.numeric_precision_radix WHEN 10 THEN c.numeric_scale END,
       c.is_nullable,
       CASE WHEN c.is_generated THEN 'GENERATED ALWAYS AS (' || c.generation_expression || ')'
            ELSE c.column_default END,
       c.comment,
       list_position(
           list_transform(k.constraint_column_names, lambda name: tidemark_fold(name)), tidemark_fold(c.column_name))
FROM duckdb_columns() AS c
LEFT JOIN (FROM duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY') AS k
    USING (database_name, schema_name, table_name)
WHERE c.database_name = current_database()
  AND (c.schema_name, c.table_name) IN (SELECT (unnest($schemas), unnest($names)))
ORDER BY c.schema_name, c.table_name, c.column_index"""

# A foreign key stays within its schema.
FOREIGN_KEYS = """
SELECT f.schema_name, f.table_name, s.column_name, coalesce(t.table_name, f.referenced_table),
       coalesce(t.column_name, f.target)
FROM (
    SELECT schema_name, table_name, unnest(constraint_column_names) AS source, referenced_table,
           unnest(referenced_column_names) AS target
    FROM duckdb_constraints() WHERE database_name = current_database() AND constraint_type = 'FOREIGN KEY'
) AS f
JOIN (FROM duckdb_columns() WHERE database_name = current_database()) AS s
  ON s.schema_name = f.schema_name AND s.table_name = f.table_name
 AND tidemark_fold(s.column_name) = tidemark_fold(f.source)
LEFT JOIN (FROM duckdb_columns() WHERE database_name = current_database()) AS t
       ON t.schema_name = f.schema_name AND tidemark_fold(t.table_name) = tidemark_fold(f.referenced_table)
      AND tidemark_fold(t.column_name) = tidemark_fold(f.target)
WHERE (f.schema_name, f.table_name) IN (SELECT (unnest($schemas), unnest($names)))"""


class DuckdbPack(SourcePack):
    app = "duckdb"
    signal: ClassVar[Literal["digest", "clock"]] = "digest"
    schemes = ("duckdb",)

    @staticmethod
    def target_of(url: str) -> str:
        return str(database_file(url))

    def listing(self, scope: Scope, since: datetime | None = None) -> Listing:
        del since  # a digest needs no clock
        with self._opened() as connection:
            ((database, comment, microseconds),) = connection.execute(DATABASE).fetchall()
            schemas = connection.execute(SCHEMAS).fetchall()
            found = [row for row in connection.execute(TABLES).fetchall() if scope.covers(row[0], row[1])]
            tables = PackedTables(_tables(connection, database, found))
        return Listing(
            identity=str(database_file(self.url).resolve()),
            clock=EPOCH + timedelta(microseconds=microseconds),
            databases=(DatabaseFacts(database, comment),),
            schemas=tuple(
                SchemaFacts(database, name, said, listed=True, why_not=None) for name, said in schemas if scope.reaches(name)
            ),
            tables=tables,
        )

    def pulse(self) -> str | None:
        """The file and its log of writes: whoever changes something writes one of them."""
        path = database_file(self.url)
        files = [file.stat() for file in (path, Path(f"{path}.wal")) if file.is_file()]
        return ";".join(f"{file.st_ino}.{file.st_size}.{file.st_mtime_ns}" for file in files)

    def columns(self, tables: Sequence[TableRef]) -> Iterator[tuple[TableRef, TableReading | None]]:
        asked = {(table.schema, table.name) for table in tables}
        with self._opened() as connection:
            ((database, *_),) = connection.execute(DATABASE).fetchall()
            found = {row[:2]: row for row in connection.execute(TABLES).fetchall() if row[:2] in asked}
            columns = _columns(connection, database, list(found))
        for table in tables:
            name = (table.schema, table.name)
            yield table, _reading(database, found[name], columns[name]) if name in found else None

    @contextmanager
    def _opened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        path = database_file(self.url)
        if not path.is_file():
            raise SourceUnreachable(f"there is no DuckDB file {path}. Check the path in the url.")
        # Given a file of another kind, DuckDB would go and fetch an extension that can read it.
        if not _is_duckdb(path):
            raise SourceError(f"{path} is not a DuckDB database")
        try:
            with duckdb.connect(path, read_only=True) as connection:
                connection.execute(FOLD)
                yield connection
        except duckdb.ConnectionException:
            raise SourceUnreachable(f"{path} is open for writing in this process. Close it there first.") from None
        except duckdb.IOException as error:
            if "lock" in str(error):
                raise SourceUnreachable(
                    f"{path} is locked by another process that writes: DuckDB allows no reader then. Run again later."
                ) from None
            raise SourceError(f"{path} could not be read: {error}") from None
        except duckdb.Error as error:
            raise SourceError(f"{path} could not be read: {error}") from None


def _is_duckdb(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(MAGIC_OFFSET + len(MAGIC))[MAGIC_OFFSET:] == MAGIC


def _tables(connection: duckdb.DuckDBPyConnection, database: str, found: list[tuple[Any, ...]]) -> Iterator[TableFacts]:
    """The facts of tables. Columns are only needed for the digests, so those of some tables are held at a time."""
    for start in range(0, len(found), TABLES_AT_ONCE):
        some = found[start : start + TABLES_AT_ONCE]
        columns = _columns(connection, database, [(schema, name) for schema, name, *_ in some])
        for row in some:
            yield _table(database, row, columns[row[0], row[1]])


def _columns(
    connection: duckdb.DuckDBPyConnection, database: str, tables: list[tuple[str, str]]
) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
    """The facts of the columns of each table, in order."""
    asked = {"schemas": [schema for schema, _ in tables], "names": [name for _, name in tables]}
    targets: dict[tuple[str, str, str], set[tuple[str, str, str, str]]] = defaultdict(set)
    for schema, table, column, target, target_column in connection.execute(FOREIGN_KEYS, asked).fetchall():
        targets[schema, table, column].add((database, schema, target, target_column))
    columns: dict[tuple[str, str], list[tuple[Any, ...]]] = {table: [] for table in tables}
    for schema, table, name, *facts in connection.execute(COLUMNS, asked).fetchall():
        columns[schema, table].append((name, *facts, tuple(sorted(targets.get((schema, table, name), ())))))
    return columns


def _table(database: str, row: tuple[Any, ...], columns: list[tuple[Any, ...]]) -> TableFacts:
    schema, name, kind, comment, definition = row
    return TableFacts(
        database=database,
        schema=schema,
        name=name,
        kind=kind,
        object_id=object_id_of(schema, name),
        digest=digest_of(kind, comment, definition, columns),
        comment=comment,
        definition=definition,
        column_count=len(columns),
    )


def _reading(database: str, row: tuple[Any, ...], columns: list[tuple[Any, ...]]) -> TableReading:
    return TableReading(_table(database, row, columns), tuple(ColumnFacts(*each) for each in columns))
