"""PostgreSQL 14 and later. It keeps no time of the last change, so the server computes a digest per table."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import count as counted
from operator import itemgetter
from random import uniform
from time import monotonic, sleep
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import psycopg
from psycopg import errors, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Composed
from psycopg.sql import Literal as Quoted

from tidemark.catalog.packs import _postgresql_queries as queries
from tidemark.catalog.packs.base import (
    ColumnFacts,
    DatabaseFacts,
    Listing,
    PackedTables,
    Partitioning,
    SchemaFacts,
    SourcePack,
    TableFacts,
    TableName,
    TableReading,
    TableRef,
)
from tidemark.catalog.scope import Scope
from tidemark.errors import ConfigError, SourceError, SourceRefused, SourceUnreachable
from tidemark.keepalive import KEEPALIVE

T = TypeVar("T")
Cursor: TypeAlias = "psycopg.Cursor[tuple[Any, ...]]"
Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

OLDEST_VERSION = 140000
CONNECT_SECONDS = 10
# A reading during which an object was dropped is done again: at least so often, and for so long.
ATTEMPTS = 3
RETRY_SECONDS = 30
ROWS_AT_ONCE = 10_000
# Up to so many tables are read by index; beyond that whole catalogues are hashed.
FEW = 100
# The fields of a row that is read which are about a column; those before are the oid and the facts of the table.
COLUMN_FIELDS = slice(13, None)
# What a message may repeat of a URL; everything else in it might be a secret.
SHOWN = {
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "sslmode",
    "connect_timeout",
    "application_name",
    "client_encoding",
}
# The functions that print expressions look at the catalogue of this moment, not of our snapshot, and fail like this
# when an object was dropped in between.
VANISHED = (errors.InternalError_, errors.UndefinedTable, errors.UndefinedObject, errors.UndefinedColumn)


class PostgresqlPack(SourcePack):
    app = "postgresql"
    signal: ClassVar[Literal["digest", "clock"]] = "digest"
    schemes = ("postgresql", "postgres", "postgresql+psycopg")

    # How long to wait for a schema change that somebody has made and not yet committed.
    lock_timeout: ClassVar[str] = "30s"

    @staticmethod
    def target_of(url: str) -> str:
        known = conninfo_to_dict(_conninfo(url))
        return f"{known.get('host', 'localhost')}:{known.get('port', 5432)}/{known.get('dbname', '')}"

    def listing(self, scope: Scope, since: datetime | None = None) -> Listing:
        del since  # a digest needs no clock
        return self._in_snapshot(lambda cursor: self._listing(cursor, scope))

    def columns(self, tables: Sequence[TableRef]) -> Iterator[tuple[TableRef, TableReading | None]]:
        query = queries.READING.format(tables=_tables(queries.REQUESTED))
        requested = {"schemas": [table.schema for table in tables], "names": [table.name for table in tables]}
        rows = self._in_snapshot(lambda cursor: cursor.execute(query, requested).fetchall(), few=len(tables) <= FEW)
        heads: dict[tuple[str, str], tuple[Any, ...]] = {}
        columns: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for row in rows:
            oid, schema, name = row[:3]
            if schema is not None:
                heads[schema, name] = row[: COLUMN_FIELDS.start]
            if row[COLUMN_FIELDS.start] is not None:  # a table without columns comes as one row
                columns[oid].append(row[COLUMN_FIELDS])
        for table in tables:
            found = heads.get((table.schema, table.name))
            yield table, _reading(table.database, found[1:], columns[found[0]]) if found else None

    def pulse(self) -> str | None:
        return str(self._in_snapshot(lambda cursor: _row(cursor.execute(queries.PULSE))[0]))

    def fingerprint(self, scope: Scope) -> str:
        query = queries.FINGERPRINT.format(
            tables=_tables(queries.IN_SCOPE), database=queries.DATABASE, schemas=queries.SCHEMAS
        )
        return str(self._in_snapshot(lambda cursor: _row(cursor.execute(query, _patterns(scope)))[0]))

    def _listing(self, cursor: Cursor, scope: Scope) -> Listing:
        oid, database, comment, user, now, may_identify = _row(cursor.execute(queries.DATABASE))
        # Without the right to ask, the address must do: the digests would find a replaced source as well.
        system = _row(cursor.execute(queries.SYSTEM))[0] if may_identify else self.target
        schemas = [
            SchemaFacts(database, name, said, listed, None if listed else f'role "{user}" has no USAGE on the schema')
            for name, said, listed in cursor.execute(queries.SCHEMAS)
            if scope.reaches(name)
        ]
        # The rows of a million tables come some at a time, or, with an older library, one at a time.
        at_once = ROWS_AT_ONCE if psycopg.capabilities.has_stream_chunked() else 1
        query = queries.LISTING.format(tables=_tables(queries.IN_SCOPE))
        rows = cursor.stream(query, _patterns(scope), size=at_once)
        tables = PackedTables(_table(database, row) for row in rows if scope.covers(row[0], row[1]))
        return Listing(
            identity=f"{system}/{oid}",
            clock=now.replace(tzinfo=UTC),
            databases=(DatabaseFacts(database, comment),),
            schemas=tuple(schemas),
            tables=tables,
        )

    def _in_snapshot(self, read: Callable[[Cursor], T], few: bool = False) -> T:
        """Reads in one snapshot, and again in a new one if an object was dropped meanwhile."""
        give_up = monotonic() + RETRY_SECONDS
        for attempt in counted(1):
            try:
                return self._read_once(read, few)
            except VANISHED as error:
                if attempt >= ATTEMPTS and monotonic() > give_up:
                    raise SourceError(
                        f"{self.target}: tables were created and dropped during each of {attempt} readings "
                        f"({_said(error, self.url)}). Run again when fewer are made and dropped, or leave their "
                        "schema out of the scope."
                    ) from None
            sleep(uniform(0, 0.05 * min(attempt, 10)))  # out of step with whoever makes and drops them
        raise AssertionError("the loop ends by returning or raising")

    def _read_once(self, read: Callable[[Cursor], T], few: bool) -> T:
        # Closing ends the transaction: it read only, so there is nothing to commit.
        with closing(self._connect()) as connection:
            try:
                connection.execute(queries.OPEN.format(lock_timeout=Quoted(self.lock_timeout), nested_loops=Quoted(few)))
                return read(connection.cursor())
            except VANISHED:
                raise
            except errors.LockNotAvailable:
                raise SourceError(
                    f"{self.target}: waited {self.lock_timeout} for a schema change that is not committed. "
                    "Run again when it is done."
                ) from None
            except psycopg.Error as error:
                kind = SourceUnreachable if connection.broken else SourceError
                raise kind(f"{self.target} failed while it was read: {_said(error, self.url)}") from None

    def _connect(self) -> Connection:
        conninfo = _conninfo(self.url)
        try:
            connection = psycopg.connect(conninfo, autocommit=True)
        except psycopg.OperationalError as error:
            # The server's words come in its own language, so whether it answers is asked apart.
            silent = isinstance(error, errors.ConnectionTimeout) or pq.PGconn.ping(conninfo.encode()) != pq.Ping.OK
            if silent:
                raise SourceUnreachable(
                    f"{self.target} does not answer: {_said(error, self.url)}. Check host and port."
                ) from None
            raise SourceRefused(
                f"{self.target} refused the login: {_said(error, self.url)}. Check user, password and database."
            ) from None
        if connection.info.server_version < OLDEST_VERSION:
            connection.close()
            raise SourceError(f"{self.target} is older than PostgreSQL 14, the first that this pack reads")
        return connection


def _conninfo(url: str) -> str:
    """The URL for the driver. One that can be read in two ways is refused: part of a password would become the host."""
    rest = url.partition("://")[2]
    authority, _, path = rest.partition("/")
    try:
        known = conninfo_to_dict(f"postgresql://{rest}")
        ports = str(known.get("port") or "").replace(",", "")
        clear = authority.count("@") <= 1 and "@" not in path and (not ports or ports.isdecimal())
    except psycopg.ProgrammingError:
        clear = False
    if not clear:
        raise ConfigError(
            "the url of a postgresql connection cannot be read: write postgresql://user:password@host:port/database, "
            "and inside a part %40 for @, %3A for :, %2F for /, %3F for ?, %25 for %"
        )
    ours: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, "application_name": "tidemark", **KEEPALIVE}
    return make_conninfo(**{**ours, **known, "client_encoding": "utf8"})


def _said(error: psycopg.Error, url: str) -> str:
    """The first line of what the driver said, without anything that only the URL's owner should know."""
    line = str(error).strip().partition("\n")[0]
    known = conninfo_to_dict(_conninfo(url))
    secrets = [str(value) for name, value in known.items() if name not in SHOWN]
    for secret in filter(None, secrets):
        line = line.replace(secret, "***")
    return line


def _patterns(scope: Scope) -> dict[str, list[str]]:
    """The scope for the server. A pattern with [ ] is only pushed down as far as it is plain: Python decides those."""
    return {
        "include": [_like(pattern.partition("[")[0]) + ("%" if "[" in pattern else "") for pattern in scope.include],
        "exclude": [_like(pattern) for pattern in scope.exclude if "[" not in pattern],
    }


def _like(pattern: str) -> str:
    for sign in ("\\", "%", "_"):
        pattern = pattern.replace(sign, "\\" + sign)
    return pattern.replace("*", "%").replace("?", "_")


def _table(database: str, row: Sequence[Any]) -> TableFacts:
    schema, name, kind, object_id, digest, comment, definition, column_count, key, count, bound, parents = row
    names: tuple[TableName, ...] = tuple(map(tuple, parents or ()))
    # The server prints the key as in `RANGE (day)`.
    strategy, _, keys = (key or "").partition(" ")
    return TableFacts(
        database=database,
        schema=schema,
        name=name,
        kind=kind,
        object_id=object_id,
        digest=digest,
        comment=comment,
        definition=definition,
        column_count=column_count,
        partitioning=Partitioning(strategy, keys[1:-1], count) if key else None,
        partition_of=names[0] if bound else None,
        partition_bound=bound,
        inherits=() if bound else names,
    )


def _reading(database: str, head: Sequence[Any], columns: list[tuple[Any, ...]]) -> TableReading:
    return TableReading(_table(database, head), tuple(_column(row) for row in sorted(columns, key=itemgetter(1))))


def _column(row: tuple[Any, ...]) -> ColumnFacts:
    facts = (*row[:-1], tuple(map(tuple, row[-1] or ())))
    return ColumnFacts(*facts)


def _tables(chosen: SQL) -> Composed:
    return queries.TABLES.format(columns=queries.COLUMNS.format(chosen=chosen))


def _row(cursor: Cursor) -> tuple[Any, ...]:
    row = cursor.fetchone()
    assert row is not None, "a query that always gives one row"
    return row
