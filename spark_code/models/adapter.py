"""The lake as models use it: queries read by Spark, tables made and changed in few commits."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count

from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AddSchemaUpdate, AssertRefSnapshotId, AssertTableUUID, SetCurrentSchemaUpdate
from pyiceberg.types import NestedField
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_code.models.types import NoSuchType, iceberg_fields, renumbered
from spark_code.platform import Platform
from tidemark.errors import LakeError, LostRace, QueryInvalid
from tidemark.faults import fault_point
from tidemark.lake import CATALOG, MAIN
from tidemark.models.compare import doubled, same
from tidemark.models.place import NAMESPACE, ModelPlace, quoted, spark_name
from tidemark.models.sql import BadSql, variables_in, with_variables
from tidemark.publication import PUBLISHED

# Deletes are written next to the files, so that the cost of a merge follows the change. Small row groups let a reader of
# one range of keys skip the others.
PROPERTIES = {
    "format-version": "2",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    # One task writes the deletes of a file: several would each rewrite all of its earlier ones.
    "write.delete.distribution-mode": "hash",
    "write.distribution-mode": "none",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.row-group-size-bytes": str(16 * 1024 * 1024),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
# Spark's name for a table that it does not find.
MISSING = "TABLE_OR_VIEW_NOT_FOUND"


class ModelAdapter:
    """Tables, views and queries of the models of one platform. Names are models' names."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.lake = platform.lake
        self.reader = platform.lake.reader
        self._namespaces: set[tuple[str, ...]] = set()

    @property
    def spark(self) -> SparkSession:
        """The session, with names in queries meaning tables of the lake."""
        session = self.platform.spark
        if session.catalog.currentCatalog() != CATALOG:
            session.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{NAMESPACE}")
            session.sql(f"USE {CATALOG}.{NAMESPACE}")
        return session

    # --- looking -----------------------------------------------------------------------------------------------------

    def table(self, name: str) -> Table | None:
        return self.reader.table(ModelPlace(name).table)

    def existing(self, name: str) -> Table:
        found = self.table(name)
        if found is None:
            raise LakeError(f"{name}: its table is gone from the lake. Run the model again: it is rebuilt.")
        return found

    def table_exists(self, name: str) -> bool:
        """Whether the model has a table that was published once; one that a killed first run made does not count."""
        found = self.table(name)
        return found is not None and (found.current_snapshot() is not None or PUBLISHED in found.properties)

    def query(self, sql: str, name: str, variables: Mapping[str, object] | None = None) -> DataFrame:
        """The query, read but not run; what is wrong with it is named."""
        try:
            if variables is not None and variables_in(sql):
                sql = with_variables(sql, {key: _plain(value) for key, value in variables.items()})
            frame = self.spark.sql(sql.rstrip().rstrip(";"))
        except BadSql as wrong:
            raise QueryInvalid(f"{name}: its query, line {wrong.line}: {wrong}") from None
        except (ParseException, AnalysisException) as wrong:
            if wrong.getCondition() == MISSING:
                missing = (wrong.getMessageParameters() or {}).get("relationName", "a table").replace("`", "")
                raise QueryInvalid(
                    f"{name}: its query reads {missing}, which is not there. Ingest the stream, or run the model, that it "
                    "belongs to first."
                ) from None
            raise QueryInvalid(f"{name}: its query cannot be read: {first_words(wrong)}") from None
        self._refuse_nameless(frame, name)
        return frame

    def query_fields(self, frame: DataFrame, name: str) -> tuple[NestedField, ...]:
        try:
            return iceberg_fields(frame.schema)
        except NoSuchType as wrong:
            raise QueryInvalid(f"{name}: {wrong}.") from None

    def _refuse_nameless(self, frame: DataFrame, name: str) -> None:
        if not frame.columns:
            raise QueryInvalid(f"{name}: its query returns no columns. A model is one SELECT of at least one.")
        twice = doubled(frame.columns)
        if twice:
            raise QueryInvalid(
                f"{name}: its query has columns of the same name: {', '.join(twice)}. Letter case does not count. "
                "Give one of them another name."
            )

    # --- making and changing tables ----------------------------------------------------------------------------------

    def make(self, table: str, fields: Iterable[NestedField], location: str | None = None) -> Table:
        """An empty table of exactly these columns, numbers included."""
        parts = table.split(".")
        self._make_namespace(tuple(parts[:-1]))
        location = location or "/".join([self.reader.settings.warehouse.rstrip("/"), *parts])
        schema = Schema(*fields)
        fault_point("models.before_make")
        try:
            made = self.reader.catalog.create_table(table, schema, location=location, properties=PROPERTIES)
        except TableAlreadyExistsError:
            raise LakeError(
                f"{table}: there is a view of that name, and the model is a table. Drop it, or rename one."
            ) from None
        if made.schema().fields != schema.fields:
            numbered = Schema(*schema.fields, schema_id=1)
            updates = (AddSchemaUpdate(schema_=numbered), SetCurrentSchemaUpdate(schema_id=1))
            self.reader.catalog.commit_table(made, (), updates)
        fault_point("models.after_make")
        return self.reader.catalog.load_table(table)

    def first_table(self, table: str, fields: Iterable[NestedField]) -> Table:
        """The empty table of a first run. One that a killed first run made gets these columns, unless somebody has published
        in it: a drop has no such condition, and might take away what another run has published since."""
        fault_point("models.before_first_table")
        found, schema = self.reader.table(table), Schema(*fields)
        if found is None:
            return self.make(table, schema.fields)
        if found.schema().fields == schema.fields:
            return found
        number = max(each.schema_id for each in found.metadata.schemas) + 1
        unpublished = AssertTableUUID(uuid=found.metadata.table_uuid), AssertRefSnapshotId(ref=MAIN, snapshot_id=None)
        numbered = Schema(*schema.fields, schema_id=number)
        updates = AddSchemaUpdate(schema_=numbered), SetCurrentSchemaUpdate(schema_id=number)
        try:
            self.reader.catalog.commit_table(found, unpublished, updates)
        except CommitFailedException:
            raise LostRace(f"{table}: another run has published it meanwhile. Run again.") from None
        return self.reader.catalog.load_table(table)

    def _make_namespace(self, parts: tuple[str, ...]) -> None:
        """By Spark: it also makes the catalogue's own tables in a new database."""
        for depth in range(1, len(parts) + 1):
            if parts[:depth] not in self._namespaces:
                self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{'.'.join(map(quoted, parts[:depth]))}")
                self._namespaces.add(parts[:depth])

    def create_view(self, name: str, sql: str, confirm: Callable[[], None]) -> None:
        """Makes or replaces a view of the query, if `confirm` does not object right before.

        Neither Spark nor the catalogue can replace a view on a condition, so it is the lease that keeps a process that was
        stopped and woken from replacing a newer view. Every run makes its view again, so the next one would put it right.
        """
        place = ModelPlace(name)
        if self.table(name) is not None:
            raise QueryInvalid(
                f"{name}: there is a table of that name, and the model is a view. Drop it, or rename the model."
            )
        self.query(sql, name)
        self._make_namespace(tuple(place.table.split(".")[:-1]))
        fault_point("models.before_view")
        confirm()
        self.spark.sql(f"CREATE OR REPLACE VIEW {place.spark_name} AS {sql.rstrip().rstrip(';')}")
        fault_point("models.after_view")

    def frame(self, table: str, branch: str | None = None) -> DataFrame:
        return self.spark.table(spark_name(table, branch))


def numbered(fields: Iterable[NestedField], table: Table) -> Iterator[NestedField]:
    """Columns as a table can take them: one that it has already keeps its numbers, any other gets new ones."""
    fresh = count(table.metadata.last_column_id + 1)
    known = {field.name.lower(): field for field in table.schema().fields}
    for field in fields:
        old = known.get(field.name.lower())
        if old is not None and same(old.field_type, field.field_type):
            yield NestedField(old.field_id, field.name, old.field_type, required=False)
        else:
            yield renumbered(field, fresh)


def first_words(wrong: PySparkException) -> str:
    """Spark's own words without its long ends. Those about rows may quote them: of these only the condition is kept."""
    if not isinstance(wrong, AnalysisException | ParseException):
        return f"{wrong.getCondition() or type(wrong).__name__}. The log has Spark's own words."
    return str(wrong).partition("\n\nJVM stacktrace")[0].partition(";\n'")[0].strip()[:600]


def _plain(value: object) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
