"""Columns that the policy keeps though the query no longer has them: what a full load carries over, and what it cannot."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_code.models.align import has_source, own
from spark_code.models.incoming import Incoming
from spark_code.models.target import Target, old_name, same_keys
from tidemark.models.policy import Decision
from tidemark.models.spec import DeleteInsertOptions, Filtered


def carries(options: Filtered) -> bool:
    """Whether a row can be found again by its key. Those that delete_insert puts in place of others are new ones."""
    return bool(options.key_columns) and not isinstance(options, DeleteInsertOptions)


def carried(target: Target, incoming: Incoming, rows: DataFrame) -> DataFrame:
    """All rows of a query that replace those of the table, with the stored values of columns that the query lacks."""
    lacking = [each.name for each in target.fields if not has_source(incoming.rows, each, target.stored_as)]
    if not lacking or not carries(incoming.options):
        return rows
    keys = target.keys(incoming)
    # Several rows of one key are somebody else's: none of their values is the one to keep.
    once = [f.when(f.count(f.lit(1)) == 1, f.first(own(name))).alias(old_name(name)) for name in lacking]
    stored = target.rows.groupBy(*(own(key).alias(old_name(key)) for key in keys)).agg(*once)
    columns = [own(old_name(name)).alias(name) if name in lacking else own(name) for name in rows.columns]
    return rows.join(stored, same_keys(keys), "left").select(*columns)


def kept_columns(decision: Decision) -> list[str]:
    return [step.name for step in decision.of("keep") if not step.change.nested]


def values_of(rows: DataFrame, columns: Sequence[str]) -> dict[str, int]:
    """How many values each column has, NULL aside."""
    if not columns:
        return {}
    counted = rows.agg(*(f.count(own(name)).alias(name) for name in columns)).collect()[0]
    return {name: int(counted[name]) for name in columns}


def lost_values(before: DataFrame, after: DataFrame, decision: Decision) -> dict[str, int]:
    """Kept columns that have fewer values after a full load, and how many fewer."""
    columns = kept_columns(decision)
    had = values_of(before, columns)
    has = values_of(after, [name for name in columns if had[name]])
    return {name: had[name] - has[name] for name in has if has[name] < had[name]}


def told_lost(model: str, lost: dict[str, int], snapshot: int | None) -> tuple[str, ...]:
    """A warning each."""
    return tuple(
        f"{model}: {count:,} values of {name} are not in the table any more: snapshot {snapshot} has them. The query has no "
        f"{name}, and all rows were rebuilt from it."
        for name, count in lost.items()
    )
