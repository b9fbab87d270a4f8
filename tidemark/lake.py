"""The lake without Spark: where it is, and a second, independent reader of its tables (pyiceberg plans, DuckDB reads)."""

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError, ProgrammingError

from tidemark.config import Config
from tidemark.control.files import make_private
from tidemark.errors import LakeError
from tidemark.lake_names import CATALOG as CATALOG
from tidemark.lake_names import MAIN as MAIN
from tidemark.lake_names import MARKER as MARKER
from tidemark.lake_names import RUN_ID as RUN_ID
from tidemark.lake_names import SHADOWS, is_shadow
from tidemark.lake_names import branch_of as branch_of

ALWAYS = AlwaysTrue()


@dataclass(frozen=True)
class LakeSettings:
    """Properties of an Iceberg catalogue, in Iceberg's own spelling; passed to Spark as they are."""

    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def warehouse(self) -> str:
        return self.properties.get("warehouse", "")

    @property
    def on_s3(self) -> bool:
        return self.warehouse.startswith(("s3://", "s3a://"))

    @property
    def sqlite_file(self) -> Path | None:
        """The file of an embedded catalogue; None if the catalogue is elsewhere."""
        uri = self.properties.get("uri", "")
        if self.properties.get("type") != "jdbc" or not uri.startswith("jdbc:sqlite:"):
            return None
        return Path(uri.removeprefix("jdbc:sqlite:").partition("?")[0])

    def only_to_read(self) -> "LakeSettings":
        """The same for a command that writes nothing, and is to begin quickly."""
        local = not urlsplit(self.warehouse).scheme or self.warehouse.startswith("file:")
        return LakeSettings({**self.properties, "py-io-impl": "tidemark.lake_files.LocalFiles"}) if local else self

    def for_python(self) -> dict[str, str]:
        """The same catalogue as pyiceberg spells it."""
        ours = {key: value for key, value in self.properties.items() if not key.startswith("jdbc.")}
        ours.pop("io-impl", None)
        if "client.region" in ours:
            ours["s3.region"] = ours["client.region"]
        if ours.get("type") == "jdbc":
            ours["type"] = "sql"
            ours["uri"] = sqlalchemy_url(self.properties)
            # Iceberg's Java side makes and migrates these tables; two makers would race.
            ours["init_catalog_tables"] = "false"
        return ours


def sqlalchemy_url(properties: Mapping[str, str]) -> str:
    """A JDBC address with its user and password as one SQLAlchemy URL."""
    uri = properties["uri"].removeprefix("jdbc:")
    if uri.startswith("sqlite:"):
        return "sqlite:///" + uri.removeprefix("sqlite:").partition("?")[0]
    url = make_url(uri.replace("postgresql://", "postgresql+psycopg://"))
    login = url.set(username=properties.get("jdbc.user"), password=properties.get("jdbc.password"))
    return login.render_as_string(hide_password=False)


def plain_name(column: str) -> str:
    """A path however it is spelled, by Iceberg in files of deletes or by DuckDB: without what stands before the folders."""
    return f"ltrim(regexp_replace({column}, '^(file:|s3a?:)', ''), '/')"


@dataclass(frozen=True)
class SnapshotFiles:
    """The files of one snapshot. They never change, so what is read from them is always the same."""

    # Path → records, deleted ones counted.
    data: Mapping[str, int]
    # Path → the files that say which of its rows are deleted.
    deletes: Mapping[str, frozenset[str]]
    # As Iceberg has it, until somebody needs it: pyiceberg imports pandas to turn it into one of Arrow.
    schema: Schema | pa.Schema

    @property
    def sql(self) -> str:
        """The rows of the snapshot, to be put after FROM. All files have the same columns."""
        return self._sql("")

    @property
    def evolving_sql(self) -> str:
        """The same of a table whose columns were added to or widened: types are those of all files together."""
        return self._sql(EVOLVING)

    def _sql(self, options: str) -> str:
        whole = self.data.keys() - self.deletes.keys()
        parts = [f"SELECT * FROM {parquet(whole, options)}"] if whole else []
        if self.deletes:
            gone = places_in(frozenset().union(*self.deletes.values()))
            parts.append(f"{placed_rows(self.deletes, options)} ANTI JOIN ({gone}) AS gone {AT_PLACE}")
        if not parts:
            return no_rows(self.schema.as_arrow() if isinstance(self.schema, Schema) else self.schema)
        return f"({' UNION ALL BY NAME '.join(parts)})"


# One join for all files: memory must not grow with their number, and a join for each would not be put aside.
AT_PLACE = f"ON {plain_name('row.filename')} = gone.path AND row.file_row_number = gone.pos"


def placed_rows(paths: Iterable[str], options: str = "") -> str:
    """The rows of data files under the name `row`, which knows file and place of each."""
    with_place = ", ".join(filter(None, (options, "file_row_number = true", "filename = true")))
    return f"SELECT row.* EXCLUDE (file_row_number, filename) FROM {parquet(paths, with_place)} AS row"


def places_in(deletes: Iterable[str]) -> str:
    """The places that files of deletes name."""
    return f"SELECT {plain_name('file_path')} AS path, pos FROM {parquet(deletes)}"


def rows_only_in(one: SnapshotFiles, other: SnapshotFiles | None) -> str:
    """The rows of a snapshot that another one does not have, to be put after FROM.

    Files never change: a row is the same if it stands in the same file at the same place and neither snapshot deletes it.
    """
    data, deletes = (other.data, other.deletes) if other else ({}, {})
    own = SnapshotFiles(
        {path: count for path, count in one.data.items() if path not in data},
        {path: files for path, files in one.deletes.items() if path not in data},
        one.schema,
    )
    parts = [f"SELECT * FROM {own.sql}"]
    here, there = one.deletes, deletes
    back = [path for path in one.data.keys() & there.keys() if not there[path] <= here.get(path, frozenset())]
    if back:
        gone = places_in(frozenset().union(*(there[path] for path in back)))
        still = frozenset().union(*(here.get(path, frozenset()) for path in back))
        gone += f" EXCEPT {places_in(still)}" if still else ""
        parts.append(f"{placed_rows(back)} SEMI JOIN ({gone}) AS gone {AT_PLACE}")
    return f"({' UNION ALL BY NAME '.join(parts)})"


def parquet(paths: Iterable[str], options: str = "") -> str:
    """DuckDB's reader of exactly these files: no sign in a path is a pattern, no folder name a column."""
    listed = ", ".join(quoted(re.sub(r"([*?\[])", r"[\1]", path)) for path in sorted(paths))
    return f"read_parquet([{listed}], hive_partitioning = false{', ' + options if options else ''})"


def quoted(text: str) -> str:
    """Text as a literal of DuckDB's SQL."""
    return "'" + text.replace("'", "''") + "'"


def no_rows(schema: pa.Schema) -> str:
    """A relation with these columns and no rows."""
    columns = ", ".join(f"NULL::{_DUCKDB.get(field.type, 'VARCHAR')} AS {field.name}" for field in schema)
    return f"(SELECT {columns} WHERE false)"


EVOLVING = "union_by_name = true"
_DUCKDB = {pa.int64(): "BIGINT", pa.int32(): "INTEGER"}


class LakeReader:
    """Reads tables, snapshots and file lists straight from the lake's metadata; never writes."""

    def __init__(self, settings: LakeSettings) -> None:
        self.settings = settings
        self._catalog: Catalog | None = None

    @property
    def catalog(self) -> Catalog:
        if self._catalog is None:
            if self.settings.sqlite_file is not None:
                make_private(self.settings.sqlite_file)  # or SQLite creates it for everybody to read
            self._catalog = load_catalog(CATALOG, **self.settings.for_python())
        return self._catalog

    @property
    def _is_new(self) -> bool:
        """Whether its catalogue is a file that is not there yet: to look must not create it."""
        file = self.settings.sqlite_file
        return file is not None and self._catalog is None and not file.exists()

    def table(self, name: str) -> Table | None:
        """The table as it is now, or None. Each call sees the newest metadata."""
        if self._is_new:
            return None
        try:
            return self.catalog.load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except (OperationalError, ProgrammingError) as error:
            if is_missing_catalogue(error):
                return None
            raise unreadable(error) from error
        except FileNotFoundError as error:
            raise LakeError(
                f"{name}: the lake lost the table's metadata file. Restore it, or drop the table for a new full run."
            ) from error

    def existing(self, name: str) -> Table:
        """The table, which must be there."""
        found = self.table(name)
        if found is None:
            raise LakeError(f"{name}: no such table in the lake.")
        return found

    def has_namespace(self, name: str) -> bool:
        if self._is_new:
            return False
        try:
            return self.catalog.namespace_exists(name)
        except (OperationalError, ProgrammingError) as error:
            if is_missing_catalogue(error):
                return False
            raise unreadable(error) from error

    def published(self, name: str) -> Snapshot | None:
        table = self.table(name)
        return table.current_snapshot() if table else None

    def staged(self, name: str, run_id: str) -> Snapshot | None:
        table = self.table(name)
        return table.snapshot_by_name(branch_of(run_id)) if table else None

    def shadows(self, name: str) -> list[str]:
        """The shadow tables of a table: those of runs that are under way or were stopped."""
        try:
            found = [".".join(each) for each in self.catalog.list_tables(SHADOWS)]
        except NoSuchNamespaceError:
            return []
        except (OperationalError, ProgrammingError) as error:
            if is_missing_catalogue(error):
                return []
            raise unreadable(error) from error
        return sorted(each for each in found if is_shadow(each, name))

    def branches(self, name: str) -> dict[str, int]:
        table = self.table(name)
        return {ref: at.snapshot_id for ref, at in table.refs().items() if ref != MAIN} if table else {}

    def files(self, name: str, snapshot: int, where: BooleanExpression = ALWAYS) -> SnapshotFiles:
        """The files of a snapshot, ready to be read by DuckDB: those that may have rows that satisfy the condition."""
        table = self.existing(name)
        if table.snapshot_by_id(snapshot) is None:
            raise LakeError(f"{name}: snapshot {snapshot} is no longer kept: upkeep removed it.")
        return snapshot_files(table, snapshot, where)

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A connection to a DuckDB that reads the lake's files where they lie. Only temporary tables are its own."""
        return engine_of(self.settings).cursor()

    def read(self, name: str, snapshot: int, fields: Iterable[str], where: str = "true") -> pa.Table:
        """Some fields of the rows of a snapshot, in no order."""
        with self.connect() as db:
            return db.sql(f"SELECT {', '.join(fields)} FROM {self.files(name, snapshot).sql} WHERE {where}").to_arrow_table()

    def has_snapshot(self, name: str, snapshot: int) -> bool:
        table = self.table(name)
        return table is not None and table.snapshot_by_id(snapshot) is not None

    def rows(self, name: str, snapshot: int | None) -> int:
        """How many rows a snapshot has."""
        return 0 if snapshot is None else self.live(self.files(name, snapshot))

    def live(self, files: SnapshotFiles) -> int:
        """How many rows these files have. From the places that deletes name: summaries still count deletes that compaction
        has applied."""
        return sum(files.data.values()) - self._deleted(files, files.deletes)

    def gone(self, before: SnapshotFiles, after: SnapshotFiles) -> int:
        """How many rows of the one snapshot the other lacks: counted from the places in files that deletes name.

        Summaries do not say. A file that goes as a whole counts there with rows that were deleted before, and deletes that
        are rewritten count again.
        """
        removed = before.data.keys() - after.data.keys()
        changed = {path for path in before.data.keys() - removed if before.deletes.get(path) != after.deletes.get(path)}
        records = sum(before.data[path] for path in removed)
        return records + self._deleted(after, changed) - self._deleted(before, removed | changed)

    def _deleted(self, files: SnapshotFiles, paths: Iterable[str]) -> int:
        """How many rows of these data files are deleted; a place that several files name is one."""
        touched = [path for path in paths if path in files.deletes]
        if not touched:
            return 0
        places = f"SELECT DISTINCT * FROM ({places_in({file for path in touched for file in files.deletes[path]})})"
        named = f"SELECT {plain_name('path')} FROM (SELECT unnest(?) AS path)"
        with self.connect() as db:
            counted = db.execute(f"SELECT count(*) FROM ({places}) WHERE path IN ({named})", [touched])
            return int(counted.fetchall()[0][0])

    def referenced(self, name: str) -> set[str]:
        """Every file that some snapshot of the table, or its metadata, still refers to."""
        table = self.table(name)
        return files_of(table.metadata, table.metadata_location, table.io) if table else set()


def files_of(metadata: TableMetadata, location: str, io: FileIO) -> set[str]:
    """Every file that this metadata refers to, the metadata's own among them."""
    files = {location, *(entry.metadata_file for entry in metadata.metadata_log)}
    for snapshot in metadata.snapshots:
        files.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(io):
            if manifest.manifest_path not in files:
                files.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(io, discard_deleted=False)
                files |= {entry.data_file.file_path for entry in entries}
    statistics = [*metadata.statistics, *metadata.partition_statistics]
    return {plain_path(path) for path in files | {each.statistics_path for each in statistics}}


def plain_path(path: str) -> str:
    return path.removeprefix("file:").replace("//", "/", 1) if path.startswith("file:") else path


def snapshot_files(table: Table, snapshot: int, where: BooleanExpression = ALWAYS) -> SnapshotFiles:
    """What pyiceberg plans for a read of the snapshot: all of it, or whatever the bounds of files do not rule out."""
    data: dict[str, int] = {}
    deletes: dict[str, frozenset[str]] = {}
    for task in table.scan(where, snapshot_id=snapshot).plan_files():
        path = plain_path(task.file.file_path)
        data[path] = task.file.record_count
        for file in task.delete_files:
            if file.content is not DataFileContent.POSITION_DELETES or file.file_format is not FileFormat.PARQUET:
                raise LakeError(f"{'.'.join(table.name())}: it has deletes that Tidemark did not write; rewrite its files.")
        if task.delete_files:
            deletes[path] = frozenset(plain_path(file.file_path) for file in task.delete_files)
    return SnapshotFiles(data, deletes, table.schema())


def files_between(table: Table, base: int | None, staged: int) -> tuple[set[str], set[str]]:
    """Data files that a snapshot has and an older one has not, and the other way round.

    Only manifests that the two do not share are read: what a small change costs does not depend on the table.
    """
    manifests: list[dict[str, ManifestFile]] = []
    for number in (base, staged):
        snapshot = table.snapshot_by_id(number) if number is not None else None
        listed = snapshot.manifests(table.io) if snapshot else []
        manifests.append({each.manifest_path: each for each in listed if each.content is ManifestContent.DATA})
    before, after = (
        {
            plain_path(entry.data_file.file_path)
            for path, manifest in own.items()
            if path not in other
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        }
        for own, other in (manifests, manifests[::-1])
    )
    return after - before, before - after


# By process too: one that was forked must neither use the engine of its parent nor end it.
ENGINES: dict[tuple[int, frozenset[tuple[str, str]]], duckdb.DuckDBPyConnection] = {}


def engine_of(lake: LakeSettings) -> duckdb.DuckDBPyConnection:
    """The process's DuckDB for this lake, begun once: that takes as long as to check a small run."""
    key = (os.getpid(), frozenset(lake.properties.items() if lake.on_s3 else ()))
    return ENGINES.get(key) or ENGINES.setdefault(key, started_engine(lake))


# What DuckDB may hold before it puts rows aside: a check of a large state must not need a large driver. Every thread holds
# some of it, so a machine of many cores must not have one for each.
ENGINE_MEMORY, ENGINE_THREADS = "1GB", 8


def started_engine(lake: LakeSettings) -> duckdb.DuckDBPyConnection:
    db = duckdb.connect()
    aside = spill_folder()
    db.execute(f"SET memory_limit = '{ENGINE_MEMORY}'; SET temp_directory = {quoted(aside)}")
    db.execute(f"SET threads = {min(ENGINE_THREADS, len(os.sched_getaffinity(0)))}")
    # Files never change, so what is known of one holds. Rows are read each time: a check looks at what is stored.
    db.execute("SET parquet_metadata_cache = true; SET enable_external_file_cache = false")
    if lake.on_s3:
        db.register_filesystem(s3_files(lake))
    return db


SPILL = re.compile(r"tidemark-spill-(\d+)-")


def spill_folder() -> str:
    """Where rows are put aside that nobody else is to read. They go with the process; those of one that was killed go when
    the next begins."""
    for old in Path(tempfile.gettempdir()).glob("tidemark-spill-*"):
        found = SPILL.match(old.name)
        if found and not Path(f"/proc/{found[1]}").exists() and Path("/proc/self").exists():
            shutil.rmtree(old, ignore_errors=True)
    owner = os.getpid()
    made = tempfile.mkdtemp(prefix=f"tidemark-spill-{owner}-")
    atexit.register(lambda: shutil.rmtree(made, ignore_errors=True) if os.getpid() == owner else None)
    return made


def s3_files(settings: LakeSettings) -> Any:
    """S3 as DuckDB takes it. Imported here: that is slow, and most lakes on a laptop do without."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    from tidemark.lake_s3 import SharedFiles

    bucket = make_url(settings.warehouse).host
    return SharedFiles(PyArrowFileIO(settings.for_python()).fs_by_scheme("s3", bucket))


def unreadable(error: OperationalError | ProgrammingError) -> LakeError:
    kind = error.orig.__class__.__name__
    return LakeError(f"the lake's catalogue database cannot be read: {kind}. Run `tidemark doctor`.")


def is_missing_catalogue(error: Any) -> bool:
    """Before the first run there is no catalogue database, or no table in it."""
    text = str(error.orig)
    return "no such table" in text or "does not exist" in text or "unable to open database file" in text


def lake_settings(config: Config) -> LakeSettings:
    """The catalogue named under `lake:`, or the default one: in the control database's place, data below the store."""
    if config.lake:
        return LakeSettings({key: str(value) for key, value in config.lake.items()})
    properties = {"type": "jdbc", "jdbc.schema-version": "V1", "warehouse": f"{config.store.url.rstrip('/')}/lake"}
    properties |= _catalogue_address(config.control)
    if config.store.url.startswith("s3://"):
        properties |= {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.path-style-access": "true"}
        properties |= {"s3.endpoint": config.store.endpoint} if config.store.endpoint else {}
        properties |= {"client.region": config.store.region} if config.store.region else {}
    return LakeSettings(properties)


def _catalogue_address(control: str) -> dict[str, str]:
    url = make_url(control)
    if url.get_backend_name() == "sqlite":
        # A file of its own: Spark's driver and ours would lock each other out of one.
        path = Path(url.database or "control.db").with_name("lake.db")
        return {"uri": f"jdbc:sqlite:{path}?busy_timeout=30000"}
    options = urlencode({key: value for key, value in url.query.items() if isinstance(value, str)})
    place = f"{url.host or '127.0.0.1'}:{url.port or 5432}/{url.database}" + (f"?{options}" if options else "")
    login = {"jdbc.user": url.username or "", "jdbc.password": url.password or ""}
    return {"uri": f"jdbc:postgresql://{place}"} | {key: value for key, value in login.items() if value}
