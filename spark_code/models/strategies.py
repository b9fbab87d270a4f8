"""The three ways into a table. Each writes to a branch or to a table that nobody reads yet, and says what it wrote."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from uuid import uuid4

from pyiceberg.table import Table
from pyiceberg.types import NestedField
from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as f

from spark_code.models.align import aligned, comparable, has_source, own
from spark_code.models.incoming import Incoming, KeyFacts, bound, key_facts, one_a_key
from spark_code.models.types import spark_type
from tidemark.errors import DuplicateKeys
from tidemark.faults import fault_point
from tidemark.models.place import quoted
from tidemark.models.spec import AppendOptions, DeleteInsertOptions, MergeOptions
from tidemark.models.sql import literal
from tidemark.models.values import ORDERED, Value

# Up to so many new rows are sent to every task; the table is then read once and never shuffled.
FEW = 2_000_000


# Bytes of a table that Spark shuffles in no time.
SMALL = 32 * 1024 * 1024


def is_large(table: Table) -> bool:
    published = table.current_snapshot()
    said = published.summary.additional_properties if published and published.summary else {}
    return int(said.get("total-files-size", SMALL)) > SMALL


@dataclass(frozen=True)
class Target:
    """Where rows go: a name that Spark can write to, and the columns as they are stored there."""

    spark: SparkSession
    name: str
    fields: tuple[NestedField, ...]
    # Column of the table → column of the query, where the two differ.
    stored_as: Mapping[str, str] = field(default_factory=dict)
    # Whether the table is too large to be shuffled for a few rows.
    large: bool = False
    # Columns of rows that were there before: what is compared when rows are told apart by content.
    before: frozenset[str] | None = None

    @property
    def rows(self) -> DataFrame:
        return self.spark.table(self.name)

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


@contextmanager
def gathered(incoming: Incoming, *, whole: bool) -> Iterator[Batch]:
    """Looks at the keys before anything is written. A batch is kept at hand, the whole of a query is not."""
    options = incoming.options
    incoming = one_a_key(chosen(incoming))
    many = isinstance(options, DeleteInsertOptions)
    if not options.key_columns or (whole and many):
        yield Batch(incoming)
    elif whole:
        yield Batch(incoming, key_facts(incoming))
    else:
        rows = incoming.rows.persist()
        try:
            incoming = replace(incoming, rows=rows)
            yield Batch(incoming, key_span(incoming) if many else key_facts(incoming))
        finally:
            rows.unpersist()


def written(target: Target, batch: Batch, *, whole: bool, replacing: bool = False) -> Written:
    """Writes the batch by its model's strategy, or as the whole of what the table is to have."""
    if whole:
        return load(target, batch, replacing=replacing)
    options = batch.incoming.options
    if isinstance(options, MergeOptions):
        return merge(target, batch)
    return delete_insert(target, batch) if isinstance(options, DeleteInsertOptions) else append(target, batch)


# --- append ----------------------------------------------------------------------------------------------------------


def load(target: Target, batch: Batch, *, replacing: bool) -> Written:
    """Everything that the query has; with `replacing`, in place of all that is there, in the same snapshot."""
    rows = aligned(batch.rows, target.fields, target.stored_as)
    if isinstance(batch.incoming.options, MergeOptions):
        # Files in the order of the key: a later merge of few keys reads few of them.
        rows = rows.sortWithinPartitions(*map(own, target.keys(batch.incoming)))
    return write(target, batch.incoming, rows, replacing=replacing)


def append(target: Target, batch: Batch) -> Written:
    """Adds the rows, without those of the look-back that are there already."""
    options = batch.incoming.options
    rows = aligned(batch.rows, target.fields, target.stored_as)
    if isinstance(options, AppendOptions) and options.deduplicates:
        rows = _not_there_yet(target, batch.incoming, rows)
    return write(target, batch.incoming, rows)


def write(target: Target, incoming: Incoming, rows: DataFrame, *, replacing: bool = False) -> Written:
    """Writes rows that have the table's shape, and counts them on the way."""
    field = incoming.filter_field
    stored = target.stored(field.name) if field else None
    greatest = f.max(own(stored.name) if stored else f.lit(None)).cast("string").alias("greatest")
    seen = Observation()
    counted = rows.observe(seen, f.count(f.lit(1)).alias("rows"), greatest)
    writer = counted.writeTo(target.name)
    fault_point("models.before_write")
    if replacing:
        writer.overwrite(f.lit(True))
    else:
        writer.append()
    fault_point("models.after_write")
    told = seen.get
    return Written(inserted=int(told["rows"] or 0), greatest=incoming.value(told["greatest"]))


def _not_there_yet(target: Target, incoming: Incoming, rows: DataFrame) -> DataFrame:
    """Rows of the look-back that are not in the table: by key, or by content and how often."""
    stored = target.rows
    field = incoming.filter_field
    if field is not None and incoming.start is not None:
        column = target.stored(field.name)
        stored = stored.where(own(column.name) >= bound(incoming.start, column.field_type))
    if incoming.options.key_columns:
        keys = target.keys(incoming)
        return rows.join(stored.select(*_renamed(keys)), _same_keys(keys), "left_anti")
    shared = [each for each in target.fields if has_source(incoming.rows, each, target.stored_as)]
    shared = [each for each in shared if target.before is None or each.name in target.before]
    there = _numbered(stored, shared).select("__content", "__nth")
    fresh = _numbered(rows, shared).join(there, ["__content", "__nth"], "left_anti")
    return fresh.drop("__content", "__nth")


def _numbered(rows: DataFrame, fields: Sequence[NestedField]) -> DataFrame:
    """Equal rows counted: two that are alike are two rows."""
    content = f.xxhash64(f.to_json(f.struct(*(own(each.name) for each in fields))))
    marked = rows.withColumn("__content", content)
    return marked.withColumn("__nth", f.row_number().over(Window.partitionBy("__content").orderBy("__content")))


# --- merge -----------------------------------------------------------------------------------------------------------


def merge(target: Target, batch: Batch, *, insert: bool = True) -> Written:
    """Adds rows of new keys and replaces rows that differ; a row that is the same already is not written."""
    assert batch.facts is not None, "a merge has keys"
    if not batch.facts.rows:
        return Written()
    # Not merely cached: Spark makes a cached result anew when a table that it was made from changes, and this one is about
    # to change. Judged again after the delete, every changed row would be a new one.
    judged = _judged(target, batch.incoming, batch.facts).localCheckpoint()
    return _merge(target, batch.incoming, judged, batch.facts, insert=insert)


def _judged(target: Target, incoming: Incoming, facts: KeyFacts) -> DataFrame:
    """Every new row as it is to be stored, and whether it is new, changes a row, or is there already."""
    names = [each.name for each in target.fields]
    keys = target.keys(incoming)
    new = aligned(incoming.rows, target.fields, target.stored_as)
    stored = _within(target, incoming, facts).select(*_renamed(names), f.lit(True).alias("__there"))
    kept = _kept(target, incoming)
    joined = _joined(new, stored, keys, facts, target.large)
    differs = f.lit(False)
    for each in target.fields:
        if each.name not in kept and each.name not in keys:
            of = spark_type(each.field_type)
            differs = differs | ~comparable(own(each.name), of).eqNullSafe(comparable(own(_old(each.name)), of))
    final = [
        f.when(own("__there"), own(_old(name))).otherwise(own(name)).alias(name) if name in kept else own(name)
        for name in names
    ]
    verdict = f.when(own("__there").isNull(), "insert").when(differs, "update").otherwise("same")
    return joined.select(*final, verdict.alias("__verdict"))


def _joined(new: DataFrame, stored: DataFrame, keys: Sequence[str], facts: KeyFacts, large: bool) -> DataFrame:
    """New rows, each beside the stored row of its key.

    A large table is not to be shuffled for a few rows: they are sent to wherever its rows are read, and what they meet
    there comes back.
    """
    if large and facts.rows <= FEW:
        wanted = new.select(*(own(name).alias(_key(name)) for name in keys))
        stored = f.broadcast(stored.join(f.broadcast(wanted), _same_keys(keys, _key), "left_semi"))
    return new.join(stored, _same_keys(keys), "left")


def _kept(target: Target, incoming: Incoming) -> list[str]:
    """Columns of a stored row that a new row does not change: those it lacks, and those that are never updated."""
    options = incoming.options
    never = {name.lower() for name in options.no_update_columns} if isinstance(options, MergeOptions) else set()
    lacking = [each.name for each in target.fields if not has_source(incoming.rows, each, target.stored_as)]
    return lacking + [target.stored(name).name for name in sorted(never)]


def _merge(target: Target, incoming: Incoming, judged: DataFrame, facts: KeyFacts, *, insert: bool) -> Written:
    verdicts = [f.count_if(own("__verdict") == verdict).alias(verdict) for verdict in ("insert", "update", "same")]
    counts = {verdict: int(count) for verdict, count in judged.agg(*verdicts).collect()[0].asDict().items()}
    if sum(counts.values()) != facts.rows:
        raise DuplicateKeys(
            f"{incoming.model}: its table has several rows of one key ({', '.join(incoming.options.key_columns)}); somebody "
            "else wrote to it. Nothing was written. Make it anew with `tidemark model run --full`."
        )
    inserted, updated = counts["insert"] if insert else 0, counts["update"]
    if updated:
        delete_keys(target, incoming, judged.where("__verdict = 'update'"), facts)
        fault_point("models.between_delete_and_insert")
    if inserted or updated:
        wanted = judged.where("__verdict <> 'same'" if insert else "__verdict = 'update'")
        write(target, incoming, wanted.drop("__verdict").coalesce(1 if inserted + updated < 200_000 else 8))
    greatest = incoming.value(facts.greatest)
    return Written(inserted, updated, unchanged=counts["same"], greatest=greatest)


def delete_keys(target: Target, incoming: Incoming, rows: DataFrame, facts: KeyFacts) -> None:
    """Deletes the rows of the table that have the keys of these; NULL is a key like others."""
    keys = target.keys(incoming)
    wanted = rows.select(*map(own, keys))
    with viewed(f.broadcast(wanted) if facts.rows <= FEW else wanted, "keys") as view:
        same = " AND ".join(f"k.{quoted(key)} <=> t.{quoted(key)}" for key in keys)
        near = _near(target, incoming, facts)
        between = f"t.{quoted(keys[0])} BETWEEN {near[0]} AND {near[1]} AND " if near else ""
        target.spark.sql(f"DELETE FROM {target.name} AS t WHERE {between}EXISTS (SELECT 1 FROM {view} AS k WHERE {same})")


def _within(target: Target, incoming: Incoming, facts: KeyFacts) -> DataFrame:
    """The part of the table that the keys of the new rows can be in: whole files are skipped by it."""
    near = _near(target, incoming, facts)
    key = target.stored(incoming.options.key_columns[0])
    rows = target.rows
    return rows.where(own(key.name).between(f.expr(near[0]), f.expr(near[1]))) if near else rows


def _near(target: Target, incoming: Incoming, facts: KeyFacts) -> tuple[str, str] | None:
    """The least and the greatest first key, as SQL; None where that says nothing."""
    key = target.stored(incoming.options.key_columns[0])
    if facts.null_key or facts.least_key is None or facts.greatest_key is None or not isinstance(key.field_type, ORDERED):
        return None
    of = spark_type(key.field_type).simpleString()
    return f"CAST({literal(facts.least_key)} AS {of})", f"CAST({literal(facts.greatest_key)} AS {of})"


# --- delete and insert -----------------------------------------------------------------------------------------------


def delete_insert(target: Target, batch: Batch) -> Written:
    """Deletes by key, by condition or by range, and puts the new rows in place. Published, the two are one snapshot."""
    rows = aligned(batch.rows, target.fields, target.stored_as)
    if batch.facts is not None:
        if not batch.facts.rows:
            return Written()
        delete_keys(target, batch.incoming, rows, batch.facts)
    else:
        target.spark.sql(f"DELETE FROM {target.name} WHERE {condition(target, batch.incoming)}")
    fault_point("models.between_delete_and_insert")
    return write(target, batch.incoming, rows)


def chosen(incoming: Incoming) -> Incoming:
    """With a condition, only the rows of the query that it names."""
    options = incoming.options
    if not isinstance(options, DeleteInsertOptions) or not options.where_condition:
        return incoming
    return replace(incoming, rows=incoming.rows.where(_with_start(options.where_condition, incoming)))


def condition(target: Target, incoming: Incoming) -> str:
    """Which rows of the table go, as SQL on the table's own columns."""
    options = incoming.options
    if isinstance(options, DeleteInsertOptions) and options.where_condition:
        return _with_start(options.where_condition, incoming)
    field = incoming.filter_field
    if field is None or incoming.start is None:
        return "true"
    column = target.stored(field.name)
    of = spark_type(column.field_type).simpleString()
    return f"{quoted(column.name)} >= CAST({literal(str(incoming.start))} AS {of})"


def _with_start(text: str, incoming: Incoming) -> str:
    if "@start" not in text:
        return text
    field = incoming.filter_field
    if field is None or incoming.start is None:
        return text.replace("@start", "NULL")
    of = spark_type(field.field_type).simpleString()
    return text.replace("@start", f"CAST({literal(str(incoming.start))} AS {of})")


def key_span(incoming: Incoming) -> KeyFacts:
    """The bounds of the keys; rows may share one here."""
    first = own(incoming.options.key_columns[0])
    told = incoming.rows.agg(
        f.count(f.lit(1)).alias("rows"),
        f.min(first).cast("string").alias("least"),
        f.max(first).cast("string").alias("greatest"),
        f.coalesce(f.bool_or(first.isNull()), f.lit(False)).alias("null_key"),
    ).collect()[0]
    return KeyFacts(int(told["rows"]), None, told["least"], told["greatest"], bool(told["null_key"]))


# --- parts -----------------------------------------------------------------------------------------------------------


@contextmanager
def viewed(rows: DataFrame, what: str) -> Iterator[str]:
    """The rows under a name for SQL, gone afterwards."""
    name = f"tidemark_{what}_{uuid4().hex}"
    rows.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        rows.sparkSession.catalog.dropTempView(name)


def _old(name: str) -> str:
    return f"__old_{name}"


def _key(name: str) -> str:
    return f"__key_{name}"


def _renamed(names: Sequence[str]) -> list[Column]:
    return [own(name).alias(_old(name)) for name in names]


def _same_keys(keys: Sequence[str], spelled: Callable[[str], str] = str) -> Column:
    """A new row and a stored one have the same key; NULL is a key like others."""
    first, *others = [own(spelled(name)).eqNullSafe(own(_old(name))) for name in keys]
    for each in others:
        first = first & each
    return first
