"""A window of time, rebuilt: its rows are those that the query has there, whatever was there before."""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_code.models.align import aligned, own
from spark_code.models.incoming import Incoming, bound
from spark_code.models.merge import FEW, delete_keys, merge
from spark_code.models.target import Batch, Target, Written, old_name, renamed, same_keys, viewed, write
from spark_code.models.types import spark_type
from tidemark.faults import fault_point
from tidemark.models.place import quoted
from tidemark.models.spec import AppendOptions, MergeOptions
from tidemark.models.sql import literal


def without_superseded(target: Target, incoming: Incoming) -> Incoming:
    """Without rows whose key the table has behind the window: those are newer. Append leaves any row outside as it is."""
    keys, field = incoming.options.key_columns, incoming.filter_field
    if not keys or field is None or incoming.start is None or incoming.end is None:
        return incoming
    column = target.stored(field.name)
    start, end = (bound(each, column.field_type) for each in (incoming.start, incoming.end))
    elsewhere = own(column.name) >= end
    if isinstance(incoming.options, AppendOptions):
        elsewhere = f.coalesce(elsewhere | (own(column.name) < start), f.lit(True))
    stored = target.rows.where(elsewhere).select(*renamed(target.keys(incoming)))
    named = {name: target.stored(name).name for name in keys}
    same = f.lit(True)
    for name, there in named.items():
        same = same & own(incoming.field(name).name).eqNullSafe(own(old_name(there)))
    return replace(incoming, rows=incoming.rows.join(stored, same, "left_anti"))


def remade(target: Target, batch: Batch) -> Written:
    """Puts the rows of the query in the place of those of the window; the same key is nowhere else afterwards."""
    incoming = batch.incoming
    rows = aligned(batch.rows, target.fields, target.stored_as)
    if isinstance(incoming.options, MergeOptions):
        did = merge(target, batch)
        _delete_left(target, incoming, rows)
        return did
    target.spark.sql(f"DELETE FROM {target.stage()} WHERE {_inside(target, incoming)}")
    fault_point("models.between_delete_and_insert")
    if batch.facts is not None and batch.facts.rows and not isinstance(incoming.options, AppendOptions):
        delete_keys(target, incoming, rows, batch.facts)
    return write(target, incoming, rows)


def _delete_left(target: Target, incoming: Incoming, rows: DataFrame) -> None:
    """Rows of the window whose key the query no longer has there."""
    keys, inside = target.keys(incoming), _inside(target, incoming)
    known = rows.select(*map(own, keys))
    left = target.rows.where(inside).select(*renamed(keys)).join(known, same_keys(keys), "left_anti").localCheckpoint()
    count = left.count()
    if not count:
        return
    with viewed(f.broadcast(left) if count <= FEW else left, "left") as view:
        same = " AND ".join(f"k.{quoted(old_name(key))} <=> t.{quoted(key)}" for key in keys)
        exists = f"EXISTS (SELECT 1 FROM {view} AS k WHERE {same})"
        target.spark.sql(f"DELETE FROM {target.stage()} AS t WHERE {inside} AND {exists}")


def _inside(target: Target, incoming: Incoming) -> str:
    """The rows of the table that are in the window, as SQL on its own columns."""
    field = incoming.filter_field
    assert field is not None, "a window is of a column"
    column = target.stored(field.name)
    of, name = spark_type(column.field_type).simpleString(), quoted(column.name)
    start, end = (f"CAST({literal(str(each))} AS {of})" for each in (incoming.start, incoming.end))
    return f"{name} >= {start} AND {name} < {end}"
