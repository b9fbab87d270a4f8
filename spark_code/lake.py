"""The lake through Spark: stage on a branch, look at it, publish it by moving one pointer."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidemark.errors import LakeError, LostRace
from tidemark.faults import fault_point
from tidemark.lake import CATALOG, MAIN, LakeReader, branch_of
from tidemark.store import ObjectStore

SUMMARY = "spark.sql.iceberg.snapshot-property"


def without_checksum(key: str) -> str:
    """The file that a local checksum file `.name.crc` belongs to; any other file is its own."""
    folder, _, name = key.rpartition("/")
    return f"{folder}/{name[1:-4]}" if name.startswith(".") and name.endswith(".crc") else key


class Lake:
    """Tables of the lake. A name is `namespace.table`; Spark starts when it is first needed."""

    def __init__(self, session: Callable[[], SparkSession], reader: LakeReader) -> None:
        self._session = session
        self.reader = reader

    @property
    def spark(self) -> SparkSession:
        return self._session()

    def create(self, name: str, columns: str, partitioned_by: str, properties: Mapping[str, str]) -> None:
        """Makes the table if there is none; an existing one is left as it is."""
        if self.reader.table(name) is not None:
            return
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        self.create_namespace(name.rpartition(".")[0])
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {CATALOG}.{name} ({columns}) USING iceberg "
            f"PARTITIONED BY ({partitioned_by}) TBLPROPERTIES ({listed})"
        )

    def create_namespace(self, name: str) -> None:
        """With those that it lies in. By Spark, which also makes the catalogue's own tables in a new database."""
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            if not self.reader.has_namespace(".".join(parts[:depth])):
                self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{'.'.join(parts[:depth])}")

    def table(self, name: str, snapshot: int | None = None) -> DataFrame:
        """A snapshot's rows; the published one's unless said otherwise."""
        reader = self.spark.read
        return (reader if snapshot is None else reader.option("versionAsOf", str(snapshot))).table(f"{CATALOG}.{name}")

    # --- stage → publish -------------------------------------------------------------------------------------------

    def stage(self, name: str, run_id: str) -> str:
        """A branch for the run, from what is published now. Returns the name to write to."""
        fault_point("lake.before_branch")
        self.spark.sql(f"ALTER TABLE {CATALOG}.{name} CREATE OR REPLACE BRANCH {branch_of(run_id)}")
        fault_point("lake.after_branch")
        return f"{CATALOG}.{name}.branch_{branch_of(run_id)}"

    @contextmanager
    def summary(self, properties: Mapping[str, str]) -> Iterator[None]:
        """Puts these into the summary of every snapshot made inside."""
        keys = {f"{SUMMARY}.{key}": value for key, value in properties.items()}
        for key, value in keys.items():
            self.spark.conf.set(key, value)
        try:
            yield
        finally:
            for key in keys:
                self.spark.conf.unset(key)

    def publish(self, name: str, run_id: str) -> int:
        """Moves `main` to the run's branch. Of two runs from the same snapshot one gets there, the other is told."""
        fault_point("lake.before_publish")
        try:
            moved = self.spark.sql(
                f"CALL {CATALOG}.system.fast_forward(table => '{name}', branch => '{MAIN}', to => '{branch_of(run_id)}')"
            ).collect()
        except IllegalArgumentException as refused:
            if "not an ancestor" not in str(refused):
                raise
            raise LostRace(f"{name}: another run published first; run {run_id} changed nothing. Run again.") from refused
        fault_point("lake.after_publish")
        return int(moved[0]["updated_ref"])

    def discard(self, name: str, branch: str) -> None:
        """Drops a branch; what it staged is cleaned up by maintenance."""
        fault_point("lake.before_discard")
        self.spark.sql(f"ALTER TABLE {CATALOG}.{name} DROP BRANCH IF EXISTS {branch}")
        fault_point("lake.after_discard")

    # --- history ---------------------------------------------------------------------------------------------------

    def roll_back(self, name: str, snapshot: int) -> None:
        """Makes an earlier (or later, after a rollback) snapshot the published one."""
        fault_point("lake.before_rollback")
        try:
            self.spark.sql(
                f"CALL {CATALOG}.system.set_current_snapshot(table => '{name}', snapshot_id => {snapshot})"
            ).collect()
        except PySparkException as refused:
            raise LakeError(f"{name}: snapshot {snapshot} cannot be made current; see `tidemark history`.") from refused
        fault_point("lake.after_rollback")

    # --- upkeep ------------------------------------------------------------------------------------------------------

    def compact(self, name: str, order: str, summary: Mapping[str, str]) -> dict[str, int]:
        """Rewrites small files and applies deletes, keeping the order of rows by key."""
        with self.summary(summary):
            done = self.spark.sql(
                f"CALL {CATALOG}.system.rewrite_data_files(table => '{name}', strategy => 'sort', sort_order => '{order}', "
                "options => map('delete-file-threshold', '1', 'min-input-files', '2'))"
            ).collect()[0]
        rewritten, added = int(done["rewritten_data_files_count"]), int(done["added_data_files_count"])
        return {"files rewritten": rewritten, "files written": added}

    def forget(self, name: str, kept: set[int]) -> dict[str, int]:
        """Expires every snapshot that is not to be kept, with the files only it refers to."""
        table = self.reader.table(name)
        gone = [s.snapshot_id for s in table.snapshots() if s.snapshot_id not in kept] if table else []
        if gone:
            ids = ", ".join(map(str, gone))
            self.spark.sql(
                f"CALL {CATALOG}.system.expire_snapshots(table => '{name}', snapshot_ids => array({ids}), "
                "older_than => TIMESTAMP '1970-01-01 00:00:00', clean_expired_metadata => false)"
            ).collect()
        return {"snapshots forgotten": len(gone)}

    def sweep(self, name: str, store: ObjectStore) -> int:
        """Removes files below the table's folder that no snapshot refers to: what killed writers left.

        Only for the holder of the lease of whatever writes this table: nobody else is writing then. A lake that is not
        below the store is left to its own keeper.
        """
        table = self.reader.table(name)
        location = table.location() if table else ""
        if table is None or not location.startswith(f"{store.root}/"):
            return 0
        prefix = location.removeprefix(f"{store.root}/") + "/"
        known = {path.removeprefix(f"{store.root}/") for path in self.reader.referenced(name)}
        strays = [info.key for info in store.list(prefix) if without_checksum(info.key) not in known]
        store.delete(*strays)
        return len(strays)
