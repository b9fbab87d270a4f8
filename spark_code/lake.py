"""The lake through Spark: tables, staging branches, compaction. Only `tidemark.publication` changes what readers see."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidemark.faults import fault_point
from tidemark.lake import CATALOG, LakeReader, branch_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUMMARY = "spark.sql.iceberg.snapshot-property"


class Lake:
    """Tables of the lake. A name is `namespace.table`; Spark starts when it is first needed."""

    def __init__(self, session: "Callable[[], SparkSession]", reader: LakeReader) -> None:
        self._session = session
        self.reader = reader

    @property
    def spark(self) -> "SparkSession":
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

    def table(self, name: str, snapshot: int | None = None) -> "DataFrame":
        """A snapshot's rows; the published one's unless said otherwise."""
        reader = self.spark.read
        return (reader if snapshot is None else reader.option("versionAsOf", str(snapshot))).table(f"{CATALOG}.{name}")

    # --- staging ---------------------------------------------------------------------------------------------------

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

    # --- upkeep ------------------------------------------------------------------------------------------------------

    def compact(self, table: str, run_id: str, order: str, summary: Mapping[str, str]) -> dict[str, int]:
        """Rewrites small files and applies deletes on the branch of a run, keeping the order of rows."""
        self.stage(table, run_id)
        with self.summary(summary):
            done = self.spark.sql(
                f"CALL {CATALOG}.system.rewrite_data_files(table => '{table}', branch => '{branch_of(run_id)}', "
                f"strategy => 'sort', sort_order => '{order}', "
                "options => map('delete-file-threshold', '1', 'min-input-files', '2'))"
            ).collect()[0]
        fault_point("lake.after_compact")
        return {
            "files rewritten": int(done["rewritten_data_files_count"]),
            "files written": int(done["added_data_files_count"]),
        }

    def expire(self, table: str, kept: frozenset[int]) -> int:
        """Expires every snapshot that is not to be kept, with the files only it refers to; the published one stays."""
        found = self.reader.table(table)
        if found is None:
            return 0
        kept = kept | {ref.snapshot_id for ref in found.refs().values()}
        gone = [each.snapshot_id for each in found.snapshots() if each.snapshot_id not in kept]
        if gone:
            ids = ", ".join(map(str, gone))
            self.spark.sql(
                f"CALL {CATALOG}.system.expire_snapshots(table => '{table}', snapshot_ids => array({ids}), "
                "older_than => TIMESTAMP '1970-01-01 00:00:00', clean_expired_metadata => false)"
            ).collect()
        fault_point("lake.after_expire")
        return len(gone)
