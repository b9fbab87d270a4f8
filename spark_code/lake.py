"""The lake through Spark: stage on a branch, look at it, publish it by moving one pointer."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidemark.errors import LakeError, LostRace
from tidemark.faults import fault_point
from tidemark.lake import CATALOG, MAIN, LakeReader, branch_of

SUMMARY = "spark.sql.iceberg.snapshot-property"


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
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{name.rpartition('.')[0]}")
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {CATALOG}.{name} ({columns}) USING iceberg "
            f"PARTITIONED BY ({partitioned_by}) TBLPROPERTIES ({listed})"
        )

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
            raise LostRace(
                f"{name}: another run published first; run {run_id} changed nothing. Run again."
            ) from refused
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
