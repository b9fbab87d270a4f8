"""The PostgreSQL behind a log: its sessions, its tables, publications and slots, and the names of its errors."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import conninfo, errors, pq

from tidemark.connectors.contract import StreamDescription
from tidemark.connectors.kinds._sql_dialects import dialect_for
from tidemark.connectors.kinds._sql_dialects.base import LOCK_SECONDS
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import ConfigError, PositionLost, SourceError, SourceRefused, SourceUnreachable
from tidemark.keepalive import KEEPALIVE

OLDEST_VERSION = 150_000
GENERATED_VERSION = 180_000
WAIT = f"{LOCK_SECONDS}s"

Columns = list[tuple[str, int, int]]

# The log and a snapshot must write the same value as the same text, and no role's own time limit may cut a long read.
SESSION = f"""
SET client_encoding = 'UTF8'; SET timezone = 'UTC'; SET datestyle = 'ISO, YMD'; SET intervalstyle = 'postgres';
SET bytea_output = 'hex'; SET standard_conforming_strings = on; SET extra_float_digits = 1;
SET statement_timeout = 0; SET lock_timeout = '{WAIT}';
SET idle_in_transaction_session_timeout = 0; SET idle_session_timeout = 0"""

IDENTITY = """
ARRAY(SELECT a.attname::text FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid
      AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
      WHERE i.indrelid = c.oid AND i.indimmediate
        AND CASE c.relreplident WHEN 'i' THEN i.indisreplident WHEN 'n' THEN false ELSE i.indisprimary END
      ORDER BY array_position(i.indkey::int2[], a.attnum))"""

TABLES = f"""
SELECT * FROM (
    SELECT n.nspname || '.' || c.relname, {IDENTITY} AS key, obj_description(c.oid, 'pg_class'), c.relreplident
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition
      AND n.nspname <> 'information_schema' AND NOT starts_with(n.nspname, 'pg_')
      AND has_table_privilege(c.oid, 'SELECT')) AS listed
WHERE relreplident = 'f' OR key <> '{{}}' ORDER BY 1"""

TABLE = f"""
SELECT c.oid::bigint, c.relkind::text, c.relreplident::text, {IDENTITY},
       (SELECT COALESCE(string_agg(relid::oid || ':' || COALESCE(pg_relation_filenode(relid), 0), ' ' ORDER BY relid),
                        c.oid || ':' || pg_relation_filenode(c.oid)) FROM pg_partition_tree(c.oid)),
       (SELECT COALESCE(max(pg_relation_size(relid)), pg_relation_size(c.oid)) FROM pg_partition_tree(c.oid))
FROM pg_class AS c WHERE c.oid = to_regclass(%s)"""

COLUMNS = """
SELECT a.attname, a.atttypid::bigint, a.atttypmod FROM pg_attribute AS a
WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped
  AND CASE WHEN %s::text[] IS NULL THEN a.attgenerated::text = ANY (%s) ELSE a.attname = ANY (%s::text[]) END
ORDER BY a.attnum"""

PUBLICATION = """
SELECT t.attnames::text[], t.rowfilter IS NOT NULL, p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate,
       COALESCE(r.oid, s.oid, p.oid)::bigint
FROM pg_publication AS p
JOIN pg_class AS c ON c.oid = %s::oid JOIN pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_publication_tables AS t ON (t.pubname, t.schemaname, t.tablename) = (p.pubname, n.nspname, c.relname)
LEFT JOIN pg_publication_rel AS r ON r.prpubid = p.oid AND r.prrelid = c.oid
LEFT JOIN pg_publication_namespace AS s ON s.pnpubid = p.oid AND s.pnnspid = n.oid
WHERE p.pubname = %s"""

SLOT = """
SELECT plugin = 'pgoutput' AND database = current_database(), active, confirmed_flush_lsn - '0/0',
       wal_status = 'lost' OR confirmed_flush_lsn IS NULL
FROM pg_replication_slots WHERE slot_name = %s"""

Session = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Table:
    """`storage` is where its rows lie: another after a rewrite. `key` is what a deletion says of its row."""

    number: int
    kind: str
    identity: str
    key: tuple[str, ...]
    storage: str
    size: int


@dataclass(frozen=True, slots=True)
class Publication:
    """What a publication says of a table. `columns` is None if it does not have the table.

    `member` is another number when the table was taken out and put in again: what happened between is not in the log.
    """

    columns: tuple[str, ...] | None
    filtered: bool
    complete: bool
    member: str

    def refuse_partial(self, stream: StreamSpec, name: str) -> None:
        if self.filtered or not self.complete:
            raise SourceError(
                f"{stream.id}: the publication '{name}' leaves out some rows, or some of insert, update, delete and "
                "truncate, so the log is incomplete. Alter it, or leave `publication` away for one of the stream's own."
            )


@dataclass(frozen=True, slots=True)
class ReplicationSlot:
    ours: bool
    active: bool
    confirmed: int
    lost: bool


class Database:
    """Where the streams of a connector are. Picklable: it holds an address, and connects when it is asked something."""

    def __init__(self, url: str, credentials: Mapping[str, str], pace: Callable[[], None]) -> None:
        if not re.match(r"postgres(ql)?://", url):
            raise ConfigError("settings of a cdc connector: `url` must start with postgresql://")
        self._dialect = dialect_for(url, credentials)
        self.target, self.pace = self._dialect.target, pace

    def name(self, source: str) -> str:
        """`table` or `schema.table`, in quotes."""
        return self._dialect.name(source)

    def names(self, columns: Iterable[str]) -> str:
        return ", ".join(self._dialect.quoted(column) for column in columns)

    def texts(self, values: Iterable[str]) -> str:
        return ", ".join(self._dialect.text(value) for value in values)

    # --- sessions ----------------------------------------------------------------------------------------------------

    @contextmanager
    def session(self, who: str, *, autocommit: bool = True) -> Iterator[Session]:
        """A connection of its own. What goes wrong in it gets a name."""
        connection = self._connected(who)
        with self._named(connection, who):
            connection.execute(SESSION)
            connection.autocommit = autocommit
            yield connection

    def ask(self, connection: Session, question: str, *values: Any) -> list[tuple[Any, ...]]:
        self.pace()
        return connection.execute(question.encode(), values or None).fetchall()

    def tell(self, connection: Session, command: str) -> None:
        self.pace()
        connection.execute(command.encode())

    def exporting(self, who: str, slot: str) -> tuple[Session, str, int]:
        """A new slot: the session that must stay open for its snapshot to live, the snapshot, and where the log begins."""
        connection = self._connected(who, replication=True)
        try:
            with self._named(connection, who, keep=True):
                connection.execute(SESSION)
                self.pace()
                create = f"CREATE_REPLICATION_SLOT {self.names([slot])} LOGICAL pgoutput (SNAPSHOT 'export')"
                ((_, begin, snapshot, _),) = connection.execute(create.encode()).fetchall()
        except BaseException:
            connection.close()
            raise
        return connection, snapshot, read_lsn(begin)

    def _connected(self, who: str, *, replication: bool = False) -> Session:
        self.pace()
        try:
            return psycopg.connect(self._conninfo(replication), autocommit=True, connect_timeout=10, **KEEPALIVE)
        except psycopg.OperationalError as error:
            # The server's words come in its own language, so whether it answers is asked apart.
            if isinstance(error, errors.ConnectionTimeout) or pq.PGconn.ping(self._pinged()) != pq.Ping.OK:
                raise SourceUnreachable(f"{who}: {self.target} does not answer. Check host and port.") from None
        if replication:
            raise SourceRefused(
                f"{who}: {self.target} refuses this login a replication connection. Give it the right with "
                "`ALTER ROLE … REPLICATION`, let it in with pg_hba.conf, and have `max_wal_senders` to spare."
            )
        raise SourceRefused(f"{who}: {self.target} refused the login. Check user, password and database.")

    def _pinged(self) -> bytes:
        return conninfo.make_conninfo(self._dialect.url, connect_timeout=5).encode()

    def _conninfo(self, replication: bool) -> str:
        try:
            return conninfo.make_conninfo(self._dialect.url, **({"replication": "database"} if replication else {}))
        except psycopg.ProgrammingError:
            # What the driver says of it quotes it.
            raise ConfigError(
                "settings of a cdc connector: `url` cannot be read. Write postgresql://host:port/database."
            ) from None

    @contextmanager
    def _named(self, connection: Session, who: str, *, keep: bool = False) -> Iterator[None]:
        """What a driver says may quote an address or a value of a record: only its kind is repeated."""
        try:
            yield
        except errors.InsufficientPrivilege:
            raise SourceRefused(
                f"{who}: {self.target} refuses this to the login. It needs SELECT on the table, the attribute REPLICATION, "
                "and for a publication that is not there yet the ownership of the table and CREATE in the database."
            ) from None
        except errors.ObjectInUse:
            raise SourceError(f"{who}: the replication slot is in use by another session at {self.target}.") from None
        except errors.LockNotAvailable:
            raise SourceError(
                f"{who}: waited {WAIT} at {self.target} for transactions that are still open. Run again when they are done."
            ) from None
        except errors.ConfigurationLimitExceeded:
            raise SourceError(f"{who}: {self.target} has no replication slot left. Raise `max_replication_slots`.") from None
        except (errors.ObjectNotInPrerequisiteState, errors.UndefinedObject):
            raise PositionLost(
                f"{who}: the log at {self.target} can no longer be read from the committed position. "
                "`tidemark stream run --full` reads everything and follows the log from there."
            ) from None
        except psycopg.Error as error:
            if connection.broken:
                raise SourceUnreachable(f"{who}: {self.target} broke off ({type(error).__name__}).") from None
            raise SourceError(
                f"{who}: {self.target} refused a question ({type(error).__name__}). Was the table altered meanwhile?"
            ) from None
        finally:
            if not keep:
                connection.close()

    # --- what is there -----------------------------------------------------------------------------------------------

    def tables(self) -> list[StreamDescription]:
        """Tables whose changes and deletions the log has."""
        with self.session(self.target) as connection:
            rows = self.ask(connection, TABLES)
        return [StreamDescription(name, tuple(key), comment=comment) for name, key, comment, _ in rows]

    def table(self, connection: Session, stream: StreamSpec) -> Table:
        """The table, if the log has all that happens to the stream's records."""
        found = self.ask(connection, TABLE, self.name(stream.source_name))
        if not found or found[0][1] not in "rp":
            raise SourceError(f"{stream.id}: there is no table '{stream.source_name}' at {self.target}.")
        number, kind, identity, key, storage, size = found[0]
        self._refuse_identity(stream, identity, key)
        return Table(number, kind, identity, tuple(key), storage, size or 0)

    def _refuse_identity(self, stream: StreamSpec, identity: str, key: list[str]) -> None:
        name = stream.source_name
        if identity == "f":
            return
        if not key:
            raise SourceError(
                f"{stream.id}: '{name}' has no replica identity, so the log does not say which record was changed or "
                f"deleted. Give it a primary key, or `ALTER TABLE {name} REPLICA IDENTITY FULL`."
            )
        if set(key) != set(stream.key):
            raise SourceError(
                f"{stream.id}: the manifest's key is ({', '.join(stream.key)}), but the log identifies deletions by "
                f"({', '.join(key)}). Write that as `key`, or `ALTER TABLE {name} REPLICA IDENTITY FULL`."
            )

    def columns(self, connection: Session, table: Table, published: tuple[str, ...] | None) -> Columns:
        """Name, type and modifier of the columns that the log has; without a publication, of those it would have."""
        generated = ["", "s"] if connection.info.server_version >= GENERATED_VERSION else [""]
        names = None if published is None else list(published)
        rows = self.ask(connection, COLUMNS, table.number, names, generated, names)
        return [(name, number, modifier) for name, number, modifier in rows]

    def refuse_unable(self, connection: Session, who: str) -> None:
        """Refuses a server that cannot decode its log, before anything is made there."""
        level, standby = self.ask(connection, "SELECT current_setting('wal_level'), pg_is_in_recovery()")[0]
        if connection.info.server_version < OLDEST_VERSION:
            raise SourceError(f"{who}: {self.target} is older than PostgreSQL 15, the first whose log this kind reads.")
        if standby:
            raise SourceError(f"{who}: {self.target} is a standby. Give the address of the primary.")
        if level != "logical":
            raise SourceError(
                f"{who}: {self.target} runs with `wal_level = {level}`, and its log lacks what is needed. Set `wal_level = "
                "logical` in postgresql.conf and restart the server."
            )

    # --- publications and slots --------------------------------------------------------------------------------------

    def publication(self, connection: Session, table: Table, name: str) -> Publication | None:
        found = self.ask(connection, PUBLICATION, table.number, name)
        if not found:
            return None
        columns, filtered, complete, member = found[0]
        return Publication(None if columns is None else tuple(columns), filtered, complete, f"{member}.{table.number}")

    def publish(self, connection: Session, stream: StreamSpec, name: str, *, add: bool) -> None:
        """Makes the stream's own publication, or adds the table that was re-created to it."""
        publication, table = self.names([name]), self.name(stream.source_name)
        if add:
            self.tell(connection, f"ALTER PUBLICATION {publication} ADD TABLE ONLY {table}")
            return
        options = "publish_via_partition_root = true"
        if connection.info.server_version >= GENERATED_VERSION:
            options += ", publish_generated_columns = stored"
        self.tell(connection, f"CREATE PUBLICATION {publication} FOR TABLE ONLY {table} WITH ({options})")

    def slot(self, connection: Session, name: str) -> ReplicationSlot | None:
        found = self.ask(connection, SLOT, name)
        if not found:
            return None
        ours, active, confirmed, lost = found[0]
        return ReplicationSlot(bool(ours), active, int(confirmed or 0), bool(lost))

    def advance(self, connection: Session, name: str, lsn: int) -> None:
        self.ask(connection, "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)::text", name, lsn_text(lsn))

    def end_of_log(self, connection: Session) -> int:
        """What is not written to disk yet may still be undone by a crash."""
        ((end,),) = self.ask(connection, "SELECT pg_current_wal_flush_lsn() - '0/0'")
        return int(end)

    def name_for(self, connection: Session, stream: StreamSpec, prefix: str, owner: str) -> str:
        """A name that no other stream's slot on the server has: slots are the server's, not the database's."""
        database = connection.info.dbname
        mark = hashlib.sha256(f"{database}\0{stream.id}\0{owner}".encode()).hexdigest()[:8]
        readable = re.sub(r"[^a-z0-9]+", "_", f"{prefix}_{stream.id}".lower())
        return f"{readable[:54]}_{mark}"


def read_lsn(text: str) -> int:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(lsn: int) -> str:
    """As PostgreSQL writes a place in its log."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def padded(lsn: int) -> str:
    """The same, so that it sorts as the log does."""
    return f"{lsn >> 32:08X}/{lsn & 0xFFFFFFFF:08X}"
