"""The three ways into a table. Each writes to a branch or to a table that nobody reads yet, and says what it wrote."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from operator import and_

from pyiceberg.types import NestedField
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from spark_code.models.align import aligned, exact_json, has_source, own
from spark_code.models.incoming import Incoming, bound, key_facts, one_a_key
from spark_code.models.kept import carried
from spark_code.models.merge import delete_keys, key_span, merge
from spark_code.models.target import Batch, Target, Written, renamed, same_keys, write
from spark_code.models.types import spark_type
from spark_code.models.window import remade
from tidemark.faults import fault_point
from tidemark.models.place import quoted
from tidemark.models.spec import AppendOptions, DeleteInsertOptions, MergeOptions
from tidemark.models.sql import literal


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
    if batch.incoming.end is not None:
        return remade(target, batch)
    if isinstance(options, MergeOptions):
        return merge(target, batch)
    return delete_insert(target, batch) if isinstance(options, DeleteInsertOptions) else append(target, batch)


# --- append ----------------------------------------------------------------------------------------------------------


def load(target: Target, batch: Batch, *, replacing: bool) -> Written:
    """Everything that the query has; with `replacing`, in place of all that is there, in the same snapshot."""
    rows = aligned(batch.rows, target.fields, target.stored_as)
    if replacing:
        rows = carried(target, batch.incoming, rows)
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


def _not_there_yet(target: Target, incoming: Incoming, rows: DataFrame) -> DataFrame:
    """Rows of the look-back that are not in the table: by key, or by content and how often."""
    stored = target.rows
    field = incoming.filter_field
    if field is not None and incoming.start is not None:
        column = target.stored(field.name)
        stored = stored.where(own(column.name) >= bound(incoming.start, column.field_type))
    if incoming.options.key_columns:
        keys = target.keys(incoming)
        return rows.join(stored.select(*renamed(keys)), same_keys(keys), "left_anti")
    shared = [each for each in target.fields if has_source(incoming.rows, each, target.stored_as)]
    first = [each for each in shared if target.identity is None or each.name in target.identity]
    later = [each for each in shared if each not in first]
    if not later:
        return _without(rows, stored, shared)
    # A row from before a column came is NULL in it for ever, and still is the row that comes again.
    older = reduce(and_, (own(each.name).isNull() for each in later))
    return _without(_without(rows, stored.where(~older), shared), stored.where(older), first)


def _without(rows: DataFrame, stored: DataFrame, fields: Sequence[NestedField]) -> DataFrame:
    """Rows that are not stored, by the content of these columns: each stored row stands for one."""
    there = _numbered(stored, fields).select("__content", "__nth")
    return _numbered(rows, fields).join(there, ["__content", "__nth"], "left_anti").drop("__content", "__nth")


def _numbered(rows: DataFrame, fields: Sequence[NestedField]) -> DataFrame:
    """Equal rows counted: two that are alike are two rows."""
    content = f.xxhash64(exact_json(*(own(each.name) for each in fields)))
    marked = rows.withColumn("__content", content)
    return marked.withColumn("__nth", f.row_number().over(Window.partitionBy("__content").orderBy("__content")))


# --- merge -----------------------------------------------------------------------------------------------------------


def delete_insert(target: Target, batch: Batch) -> Written:
    """Deletes by key, by condition or by range, and puts the new rows in place. Published, the two are one snapshot."""
    rows = aligned(batch.rows, target.fields, target.stored_as)
    if batch.facts is not None:
        if not batch.facts.rows:
            return Written()
        delete_keys(target, batch.incoming, rows, batch.facts)
    else:
        target.spark.sql(f"DELETE FROM {target.stage()} WHERE {condition(target, batch.incoming)}")
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
        return "true"  # a run that begins at the beginning is of everything
    of = spark_type(field.field_type).simpleString()
    return text.replace("@start", f"CAST({literal(str(incoming.start))} AS {of})")
