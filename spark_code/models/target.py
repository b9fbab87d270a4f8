"""Where rows of a model go, and the one way they are written there."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from pyiceberg.table import Table
from pyiceberg.types import NestedField
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from spark_code.models.align import aligned, own
from spark_code.models.incoming import Incoming, KeyFacts
from tidemark.faults import fault_point
from tidemark.models.sql import literal
from tidemark.models.values import Value

# Bytes of a table that Spark shuffles in no time.
SMALL = 32 * 1024 * 1024


def is_large(table: Table) -> bool:
    published = table.current_snapshot()
    said = published.summary.additional_properties if published and published.summary else {}
    return int(said.get("total-files-size", SMALL)) > SMALL


@dataclass(frozen=True)
class Target:
    """Where rows go, and the columns as they are stored there."""

    spark: SparkSession
    # The table that has the rows before anything is written.
    stored_in: str
    # The columns that it is to be written with.
    fields: tuple[NestedField, ...]
    # Makes the place to write to, when it is first needed, and says its name: a run that has nothing to write makes none.
    stage: Callable[[], str]
    # Column of the table → column of the query, where the two differ.
    stored_as: Mapping[str, str] = field(default_factory=dict)
    # Whether the table is too large to be shuffled for a few rows.
    large: bool = False
    # Columns that every stored row was written with; the others came later, and older rows are NULL in them.
    identity: frozenset[str] | None = None

    @property
    def rows(self) -> DataFrame:
        """What was there before, in the columns that are to be."""
        return aligned(self.spark.table(self.stored_in), self.fields, {})

    def stored(self, query_name: str) -> NestedField:
        """The table's column that holds a column of the query."""
        own_names = {query.lower(): stored for stored, query in self.stored_as.items()}
        wanted = own_names.get(query_name.lower(), query_name).lower()
        return next(each for each in self.fields if each.name.lower() == wanted)

    def keys(self, incoming: Incoming) -> list[str]:
        """The table's names of the key columns."""
        return [self.stored(name).name for name in incoming.options.key_columns]


@dataclass(frozen=True)
class Written:
    """What a strategy did, in numbers."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    greatest: Value | None = field(default=None, repr=False)

    @property
    def changed(self) -> bool:
        return bool(self.inserted or self.updated or self.deleted)


@dataclass(frozen=True)
class Batch:
    """Rows that are ready to be written: each key once, their bounds known where there are keys."""

    incoming: Incoming
    facts: KeyFacts | None = None

    @property
    def rows(self) -> DataFrame:
        return self.incoming.rows


def write(target: Target, incoming: Incoming, rows: DataFrame, *, replacing: bool = False) -> Written:
    """Writes rows that have the table's shape, and counts them on the way."""
    field = incoming.filter_field
    stored = target.stored(field.name) if field else None
    greatest = f.max(own(stored.name) if stored else f.lit(None)).cast("string").alias("greatest")
    seen, wanted, stage = Observation(), (f.count(f.lit(1)).alias("rows"), greatest), target.stage()
    writer = rows.observe(seen, *wanted).writeTo(stage)
    fault_point("models.before_write")
    if replacing:
        writer.overwrite(f.lit(True))
    else:
        writer.append()
    fault_point("models.after_write")
    # A Spark Connect server that is busy gives up on what it has seen after 100 ms, and says nothing.
    observed = seen.get or _last_written(target.spark, stage, whole=replacing).agg(*wanted).collect()[0].asDict()
    return Written(inserted=int(observed["rows"] or 0), greatest=incoming.value(observed["greatest"]))


def _last_written(spark: SparkSession, stage: str, *, whole: bool) -> DataFrame:
    """The rows that the last write to the stage added, read back from there: to ask the query again may give others."""
    table, branch, name = stage.rpartition(".`branch_")
    table, name = (table, name.removesuffix("`")) if branch else (stage, "main")
    (last,) = spark.sql(
        f"SELECT s.snapshot_id, s.parent_id FROM {table}.refs AS r JOIN {table}.snapshots AS s USING (snapshot_id) "
        f"WHERE r.name = {literal(name)}"
    ).collect()
    if whole or last.parent_id is None:
        return spark.table(stage)
    between = {"start-snapshot-id": str(last.parent_id), "end-snapshot-id": str(last.snapshot_id)}
    return spark.read.format("iceberg").options(**between).load(table)


@contextmanager
def viewed(rows: DataFrame, what: str) -> Iterator[str]:
    """The rows under a name for SQL, gone afterwards."""
    name = f"tidemark_{what}_{uuid4().hex}"
    rows.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        rows.sparkSession.catalog.dropTempView(name)


def old_name(name: str) -> str:
    return f"__old_{name}"


def key_name(name: str) -> str:
    return f"__key_{name}"


def renamed(names: Sequence[str]) -> list[Column]:
    return [own(name).alias(old_name(name)) for name in names]


def same_keys(keys: Sequence[str], spelled: Callable[[str], str] = str) -> Column:
    """A new row and a stored one have the same key; NULL is a key like others."""
    first, *others = [own(spelled(name)).eqNullSafe(own(old_name(name))) for name in keys]
    for each in others:
        first = first & each
    return first
