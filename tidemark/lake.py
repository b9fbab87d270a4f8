"""The lake without Spark: where it is, and a second, independent reader of its tables (pyiceberg plans, DuckDB reads)."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError, ProgrammingError

from tidemark.config import Config
from tidemark.errors import LakeError

CATALOG = "lake"
MAIN = "main"

# Keys of the summary of every snapshot that a run stages.
RUN_ID = "tidemark.run-id"
MARKER = "tidemark.marker"


def branch_of(run_id: str) -> str:
    """The branch on which a run stages."""
    return "run_" + re.sub(r"[^A-Za-z0-9]", "_", run_id)


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


# The data file that a row of a file of deletes is about, as `plain_path` has it.
DATA_FILE = "regexp_replace(file_path, '^file:/+', '/')"


@dataclass(frozen=True)
class SnapshotFiles:
    """The files of one snapshot. They never change, so what is read from them is always the same."""

    # Path → records, deleted ones counted.
    data: Mapping[str, int]
    # Path → the files that say which of its rows are deleted.
    deletes: Mapping[str, frozenset[str]]
    schema: pa.Schema

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
        parts += [without_deleted(path, deletes) for path, deletes in sorted(self.deletes.items())]
        return f"({' UNION ALL BY NAME '.join(parts)})" if parts else no_rows(self.schema)


def without_deleted(path: str, deletes: Iterable[str]) -> str:
    """The rows of a data file but for those that files of deletes name, by their place in it."""
    return (
        f"SELECT * EXCLUDE (file_row_number) FROM {parquet([path], 'file_row_number = true')} AS row ANTI JOIN "
        f"(SELECT pos FROM {parquet(deletes)} WHERE {DATA_FILE} = {quoted(path)}) AS gone "
        "ON row.file_row_number = gone.pos"
    )


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
            self._catalog = load_catalog(CATALOG, **self.settings.for_python())
        return self._catalog

    def table(self, name: str) -> Table | None:
        """The table as it is now, or None. Each call sees the newest metadata."""
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

    def has_namespace(self, name: str) -> bool:
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

    def branches(self, name: str) -> dict[str, int]:
        table = self.table(name)
        return {ref: at.snapshot_id for ref, at in table.refs().items() if ref != MAIN} if table else {}

    def files(self, name: str, snapshot: int) -> SnapshotFiles:
        """The files of a snapshot, ready to be read by DuckDB."""
        table = self.table(name)
        if table is None:
            raise LakeError(f"{name}: no such table in the lake.")
        if table.snapshot_by_id(snapshot) is None:
            raise LakeError(f"{name}: snapshot {snapshot} is no longer kept; see `tidemark history`.")
        return snapshot_files(table, snapshot)

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
        """How many rows a snapshot has. Counted: summaries still tell of deletes that compaction has applied."""
        if snapshot is None:
            return 0
        with self.connect() as db:
            return int(db.execute(f"SELECT count(*) FROM {self.files(name, snapshot).sql}").fetchall()[0][0])

    def gone(self, before: SnapshotFiles, after: SnapshotFiles) -> int:
        """How many rows of the one snapshot the other lacks: counted from the places in files that deletes name.

        Summaries do not tell. A file that goes as a whole counts there with rows that were deleted before, and deletes that
        are written anew count again.
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
        listed = parquet({file for path in touched for file in files.deletes[path]})
        places = f"SELECT DISTINCT {DATA_FILE} AS path, pos FROM {listed}"
        with self.connect() as db:
            counted = db.execute(f"SELECT count(*) FROM ({places}) WHERE path IN (SELECT unnest(?))", [touched])
            return int(counted.fetchall()[0][0])

    def referenced(self, name: str) -> set[str]:
        """Every file that some snapshot of the table, or its metadata, still refers to."""
        table = self.table(name)
        if table is None:
            return set()
        files = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
        for snapshot in table.snapshots():
            files.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                if manifest.manifest_path not in files:
                    files.add(manifest.manifest_path)
                    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
                    files |= {entry.data_file.file_path for entry in entries}
        statistics = [*table.metadata.statistics, *table.metadata.partition_statistics]
        return {plain_path(path) for path in files | {each.statistics_path for each in statistics}}


def plain_path(path: str) -> str:
    return path.removeprefix("file:").replace("//", "/", 1) if path.startswith("file:") else path


def snapshot_files(table: Table, snapshot: int) -> SnapshotFiles:
    """What pyiceberg plans for a read of the whole snapshot."""
    data: dict[str, int] = {}
    deletes: dict[str, frozenset[str]] = {}
    for task in table.scan(snapshot_id=snapshot).plan_files():
        path = plain_path(task.file.file_path)
        data[path] = task.file.record_count
        for file in task.delete_files:
            if file.content is not DataFileContent.POSITION_DELETES or file.file_format is not FileFormat.PARQUET:
                raise LakeError(f"{'.'.join(table.name())}: it has deletes that Tidemark did not write; rewrite its files.")
        if task.delete_files:
            deletes[path] = frozenset(plain_path(file.file_path) for file in task.delete_files)
    return SnapshotFiles(data, deletes, table.schema().as_arrow())


# By process too: one that was forked must neither use the engine of its parent nor end it.
ENGINES: dict[tuple[int, frozenset[tuple[str, str]]], duckdb.DuckDBPyConnection] = {}


def engine_of(lake: LakeSettings) -> duckdb.DuckDBPyConnection:
    """The process's DuckDB for this lake, begun once: that takes as long as to check a small run."""
    key = (os.getpid(), frozenset(lake.properties.items() if lake.on_s3 else ()))
    return ENGINES.get(key) or ENGINES.setdefault(key, started_engine(lake))


def started_engine(lake: LakeSettings) -> duckdb.DuckDBPyConnection:
    db = duckdb.connect()
    # Files never change, so what was once learnt of one holds. Rows are read each time: a check looks at what is stored.
    db.execute("SET parquet_metadata_cache = true; SET enable_external_file_cache = false")
    if lake.on_s3:
        db.register_filesystem(s3_files(lake))
    return db


def s3_files(settings: LakeSettings) -> Any:
    """S3 as DuckDB takes it. Imported here: it is dear, and most lakes on a laptop do without."""
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyiceberg.io.pyarrow import PyArrowFileIO

    bucket = make_url(settings.warehouse).host
    return ArrowFSWrapper(PyArrowFileIO(settings.for_python()).fs_by_scheme("s3", bucket))


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
