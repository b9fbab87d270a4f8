"""Rows that replace those of their key: judged once, then deleted and written where they differ."""

from collections.abc import Mapping, Sequence

from pyiceberg.types import FloatType, IcebergType
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from spark_code.models.align import aligned, comparable, has_source, own
from spark_code.models.incoming import Incoming, KeyFacts, only_row
from spark_code.models.target import Batch, Target, Written, key_name, old_name, renamed, same_keys, viewed, write
from spark_code.models.types import spark_type
from tidemark.errors import DuplicateKeys
from tidemark.faults import fault_point
from tidemark.models.compare import same, widens
from tidemark.models.place import quoted
from tidemark.models.spec import MergeOptions
from tidemark.models.sql import literal
from tidemark.models.values import ORDERED

# Up to so many new rows are sent to every task; the table is then read once and never shuffled.
FEW = 2_000_000


def merge(target: Target, batch: Batch, *, insert: bool = True) -> Written:
    """Adds rows of new keys and replaces rows that differ; a row that is the same already is not written."""
    assert batch.facts is not None, "a merge has keys"
    if not batch.facts.rows:
        return Written()
    # Not merely cached: Spark recomputes a cached result when a table that it was made from changes, and this one is about
    # to change. Judged again after the delete, every changed row would be a new one.
    seen = Observation()
    verdicts = [f.count_if(own("__verdict") == verdict).alias(verdict) for verdict in ("insert", "update", "same")]
    judged = _judged(target, batch.incoming, batch.facts).observe(seen, *verdicts).localCheckpoint()
    # A Spark Connect server does not report what it has seen on the way to a checkpoint.
    observed = seen.get or judged.agg(*verdicts).collect()[0].asDict()
    counts = {verdict: int(count) for verdict, count in observed.items()}
    return _merge(target, batch.incoming, judged, counts, batch.facts, insert=insert)


def _judged(target: Target, incoming: Incoming, facts: KeyFacts) -> DataFrame:
    """Every new row as it is to be stored, and whether it is new, changes a row, or is there already."""
    names = [each.name for each in target.fields]
    keys = target.keys(incoming)
    new = aligned(incoming.rows, target.fields, target.stored_as)
    stored = _within(target, incoming, facts).select(*renamed(names), f.lit(True).alias("__there"))
    kept = _kept(target, incoming)
    joined = _joined(new, stored, keys, facts, target.large)
    differs = f.lit(False)
    for each in target.fields:
        if each.name not in kept and each.name not in keys:
            of = spark_type(each.field_type)
            differs = differs | ~comparable(own(each.name), of).eqNullSafe(comparable(own(old_name(each.name)), of))
    final = [
        f.when(own("__there"), own(old_name(name))).otherwise(own(name)).alias(name) if name in kept else own(name)
        for name in names
    ]
    verdict = f.when(own("__there").isNull(), "insert").when(differs, "update").otherwise("same")
    return joined.select(*final, verdict.alias("__verdict"))


def _joined(new: DataFrame, stored: DataFrame, keys: Sequence[str], facts: KeyFacts, large: bool) -> DataFrame:
    """New rows, each with the stored row of its key.

    A large table is not to be shuffled for a few rows: they are sent to wherever its rows are read, and what they meet
    there comes back.
    """
    if large and facts.rows <= FEW:
        wanted = new.select(*(own(name).alias(key_name(name)) for name in keys))
        stored = f.broadcast(stored.join(f.broadcast(wanted), same_keys(keys, key_name), "left_semi"))
    return new.join(stored, same_keys(keys), "left")


def _kept(target: Target, incoming: Incoming) -> list[str]:
    """Columns of a stored row that a new row does not change: those it lacks, and those that are never updated."""
    options = incoming.options
    never = {name.lower() for name in options.no_update_columns} if isinstance(options, MergeOptions) else set()
    lacking = [each.name for each in target.fields if not has_source(incoming.rows, each, target.stored_as)]
    return lacking + [target.stored(name).name for name in sorted(never)]


def _merge(
    target: Target, incoming: Incoming, judged: DataFrame, counts: Mapping[str, int], facts: KeyFacts, *, insert: bool
) -> Written:
    if sum(counts.values()) != facts.rows:
        raise DuplicateKeys(
            f"{incoming.model}: its table has several rows of one key ({', '.join(incoming.options.key_columns)}); somebody "
            "else wrote to it. Nothing was written. Rebuild it with `tidemark model run --full`."
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
        target.spark.sql(f"DELETE FROM {target.stage()} AS t WHERE {between}EXISTS (SELECT 1 FROM {view} AS k WHERE {same})")


def _within(target: Target, incoming: Incoming, facts: KeyFacts) -> DataFrame:
    """The part of the table that the keys of the new rows can be in: whole files are skipped by it."""
    near = _near(target, incoming, facts)
    key = target.stored(incoming.options.key_columns[0])
    rows = target.rows
    return rows.where(own(key.name).between(f.expr(near[0]), f.expr(near[1]))) if near else rows


def _near(target: Target, incoming: Incoming, facts: KeyFacts) -> tuple[str, str] | None:
    """The least and the greatest first key, as SQL; None where that says nothing."""
    name = incoming.options.key_columns[0]
    key, given = target.stored(name), incoming.field(name).field_type
    if facts.null_key or facts.least_key is None or facts.greatest_key is None or not isinstance(key.field_type, ORDERED):
        return None
    if not _same_order(given, key.field_type):
        return None  # bounds of one type are none of another: as text, 10 comes before 9
    of = spark_type(key.field_type).simpleString()
    return f"CAST({literal(facts.least_key)} AS {of})", f"CAST({literal(facts.greatest_key)} AS {of})"


def _same_order(given: IcebergType, stored: IcebergType) -> bool:
    """Whether the text of a bound of the query is the same bound in the table's type; that of a float is no double's."""
    return same(given, stored) or (widens(given, stored) and not isinstance(given, FloatType))


def key_span(incoming: Incoming) -> KeyFacts:
    """The bounds of the keys; rows may share one here."""
    first = own(incoming.options.key_columns[0])
    facts = incoming.rows.agg(
        f.count(f.lit(1)).alias("rows"),
        f.min(first).cast("string").alias("least"),
        f.max(first).cast("string").alias("greatest"),
        f.coalesce(f.bool_or(first.isNull()), f.lit(False)).alias("null_key"),
    )
    row = only_row(incoming.model, facts)
    return KeyFacts(int(row["rows"]), None, row["least"], row["greatest"], bool(row["null_key"]))
