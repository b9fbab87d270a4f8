"""The rows that a run brings: those of the query beyond the last value, each key once, every value fit for its column."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pyiceberg.types import DateType, IcebergType, NestedField
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as f

from spark_code.models.adapter import first_words
from spark_code.models.align import comparable, misfit, own
from spark_code.models.types import spark_type
from tidemark.errors import ConfigError, DuplicateKeys, QueryInvalid, SchemaChangeRefused, ValueMisfit
from tidemark.models.policy import SchemaStep
from tidemark.models.spec import AppendOptions, Filtered, MergeOptions, Partitions
from tidemark.models.values import MOMENTS, ORDERED, Value, in_type
from tidemark.models.windows import TimeWindow

EXAMPLES = 3


@dataclass(frozen=True)
class Incoming:
    """Rows of the query as the query has them, and where they begin."""

    model: str
    rows: DataFrame
    fields: tuple[NestedField, ...]
    options: Filtered
    # None: from the beginning.
    start: Value | None = None
    # Where a window ends that is to be rebuilt, itself excluded; None: with all there is.
    end: Value | None = None

    def field(self, name: str) -> NestedField:
        """The query's column of that name, whatever its letter case."""
        return next(field for field in self.fields if field.name.lower() == name.lower())

    @property
    def filter_field(self) -> NestedField | None:
        return self.field(self.options.filter_column) if self.options.filter_column else None

    def greatest(self) -> Column:
        """The greatest value of the filter column."""
        field = self.filter_field
        return f.max(f.lit(None) if field is None else own(field.name))

    def value(self, text: str | None) -> Value | None:
        """A value of the filter column from its text: Spark gives moments themselves in the zone of the machine."""
        field = self.filter_field
        return None if text is None or field is None else in_type(text, field.field_type)


def checked_columns(model: str, fields: tuple[NestedField, ...], options: Filtered, others: Iterable[str] = ()) -> None:
    """Columns that the model's options name are in the query, and the filter column has an order."""
    known = {field.name.lower(): field for field in fields}
    named = {"unique_key": options.key_columns, "filter_column": (options.filter_column,) if options.filter_column else ()}
    named["dedupe_by"] = tuple(column for column, _ in order_of(options))
    named["no_update_columns"] = options.no_update_columns if isinstance(options, MergeOptions) else ()
    named["full_incremental_refresh"] = tuple(others)
    for role, columns in named.items():
        lacking = [column for column in columns if column.lower() not in known]
        if lacking:
            raise QueryInvalid(
                f"{model}: its query has no column {', '.join(lacking)}, which {role} names. "
                f"It has: {', '.join(field.name for field in fields)}. Nothing was written."
            )
    for column in [*named["filter_column"], *others]:
        kind = known[column.lower()].field_type
        if not isinstance(kind, ORDERED):
            raise QueryInvalid(
                f"{model}: the column {column} is {kind}, which has no order to go by. Nothing was written. "
                "Use a number, a date, a timestamp or text."
            )


def checked_partitions(model: str, field: NestedField, partitions: Partitions) -> None:
    """Windows of time are of a column that has time."""
    if not isinstance(field.field_type, MOMENTS):
        raise QueryInvalid(
            f"{model}: partitions are windows of time, and filter_column names {field.name} ({field.field_type}). Nothing "
            "was written. Use a date or a timestamp."
        )
    if partitions.by == "hour" and isinstance(field.field_type, DateType):
        raise QueryInvalid(f"{model}: {field.name} is a date, and has no hours. Nothing was written. Use partitions by day.")


def order_of(options: Filtered) -> list[tuple[str, bool]]:
    """The columns of dedupe_by, and whether the greatest wins."""
    given = options.dedupe_by if isinstance(options, MergeOptions) and options.dedupe_by else ()
    words = [text.split() for text in given]
    return [(each[0], not (len(each) > 1 and each[-1].lower() == "asc")) for each in words]


def bound(value: Value, of: IcebergType) -> Column:
    """A value as a literal of the column's type, so that files can be skipped by it."""
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return f.lit(text).cast(spark_type(of))


def start_of(model: str, options: Filtered, last: Value | None, of: IcebergType | None) -> Value | None:
    """Where a run begins: the last value less the look-back, and never before the model says that time begins."""
    if of is None:
        return None
    given = options.start_value if last is None else last
    if given is None:
        return None
    try:
        start = in_type(given, of)
        if last is None or options.lookback is None:
            return start
        start = in_type(options.lookback.before(start), of)  # type: ignore[arg-type]
        first = None if options.start_value is None else in_type(options.start_value, of)
        return start if first is None else max(start, first)
    except ValueError as wrong:
        what = "start_value" if last is None else "the last value or the lookback"
        raise ConfigError(f"{model}: {what} does not go with {options.filter_column} ({of}): {wrong}.") from None


def since(incoming: Incoming, last: Value | None) -> Incoming:
    """Only the rows that are new. The last value itself is read again where that does no harm."""
    field = incoming.filter_field
    start = start_of(incoming.model, incoming.options, last, field.field_type if field else None)
    if start is None or field is None or incoming.options.by_condition:
        # A condition names the rows that go and those that come: filtered too, fewer would come than go.
        return replace(incoming, start=start)
    column, least = own(field.name), bound(start, field.field_type)
    strictly = last is not None and isinstance(incoming.options, AppendOptions) and not incoming.options.deduplicates
    return replace(incoming, rows=incoming.rows.where(column > least if strictly else column >= least), start=start)


def inside(incoming: Incoming, window: TimeWindow) -> Incoming:
    """Only the rows of a window."""
    field = incoming.filter_field
    assert field is not None, "the metadata are refused without"
    start, end = in_type(window.start, field.field_type), in_type(window.end, field.field_type)
    column = own(field.name)
    rows = incoming.rows.where((column >= bound(start, field.field_type)) & (column < bound(end, field.field_type)))
    return replace(incoming, rows=rows, start=start, end=end)


@dataclass(frozen=True)
class KeyFacts:
    """What is known of the rows after one look at their keys."""

    rows: int
    greatest: str | None
    least_key: str | None
    greatest_key: str | None
    null_key: bool


def one_a_key(incoming: Incoming) -> Incoming:
    """With dedupe_by, the row that wins of each key; where it leaves several, their content decides, always the same way."""
    order = [
        own(name).desc_nulls_last() if greatest else own(name).asc_nulls_last()
        for name, greatest in order_of(incoming.options)
    ]
    if not order:
        return incoming
    order += [comparable(own(each.name), each.dataType).desc_nulls_last() for each in incoming.rows.schema.fields]
    place = f.row_number().over(Window.partitionBy(*map(own, incoming.options.key_columns)).orderBy(*order))
    winners = incoming.rows.withColumn("__place", place).where("__place = 1").drop("__place")
    return replace(incoming, rows=winners)


def key_facts(incoming: Incoming) -> KeyFacts:
    """Counts and bounds in one job; rows that share a key are an error with examples."""
    keys = [own(name) for name in incoming.options.key_columns]
    first = keys[0]
    groups = incoming.rows.groupBy(*keys).agg(f.count("*").alias("__rows"), incoming.greatest().alias("__greatest"))
    facts = groups.agg(
        f.sum("__rows").alias("rows"),
        f.max("__rows").alias("most"),
        f.max("__greatest").cast("string").alias("greatest"),
        f.min(first).cast("string").alias("least_key"),
        f.max(first).cast("string").alias("greatest_key"),
        f.coalesce(f.bool_or(first.isNull()), f.lit(False)).alias("null_key"),
    )
    row = only_row(incoming.model, facts)
    if (row["most"] or 0) > 1:
        raise _duplicates(incoming, groups)
    return KeyFacts(int(row["rows"] or 0), row["greatest"], row["least_key"], row["greatest_key"], bool(row["null_key"]))


def only_row(model: str, rows: DataFrame) -> Row:
    """The one row of an aggregate over a query; a query that fails while it runs is named."""
    try:
        return rows.collect()[0]
    except PySparkException as wrong:
        raise QueryInvalid(f"{model}: its query fails, nothing was published: {first_words(wrong)}") from wrong


def _duplicates(incoming: Incoming, groups: DataFrame) -> DuplicateKeys:
    columns = [own(name) for name in incoming.options.key_columns]
    shared = groups.where("__rows > 1")
    shown = shared.select(f.to_json(f.struct(*columns)).alias("key"), "__rows").orderBy("key").limit(EXAMPLES).collect()
    examples = ", ".join(f"{row['key']} in {row['__rows']} rows" for row in shown)
    return DuplicateKeys(
        f"{incoming.model}: new rows share a key ({', '.join(incoming.options.key_columns)}): {examples}. Nothing was "
        "written. Fix the query, or say with dedupe_by which row wins."
    )


def refuse_misfits(model: str, rows: DataFrame, steps: Iterable[SchemaStep], target: Mapping[str, NestedField]) -> None:
    """Values of new rows that would not be the same in the table's type are an error with a count and an example."""
    checked = [step for step in steps if step.change.kind != "narrower"]
    types = {field.name.lower(): field for field in rows.schema.fields}
    bad = {}
    for name in dict.fromkeys(step.change.column for step in checked):
        source, wanted = types[name.lower()], spark_type(target[name.lower()].field_type)
        bad[name] = (own(source.name), misfit(own(source.name), source.dataType, wanted), wanted.simpleString())
    for name, (count, example) in _counted(model, rows, {name: each[:2] for name, each in bad.items()}).items():
        raise ValueMisfit(
            f"{model}: {count:,} new values of {name} do not fit into {bad[name][2]}, such as {example}. Nothing was "
            "written. Fix the query, or choose another `on_schema_change`."
        )


def refuse_inexact(model: str, rows: DataFrame, steps: Iterable[SchemaStep], wanted: Mapping[str, NestedField]) -> None:
    """Stored values that would not convert exactly are an error with a count: nothing is dropped and added instead."""
    types = {field.name.lower(): field for field in rows.schema.fields}
    bad = {}
    for name in dict.fromkeys(step.change.column for step in steps):
        stored, into = types[name.lower()], spark_type(wanted[name.lower()].field_type)
        bad[name] = (own(stored.name), misfit(own(stored.name), stored.dataType, into), into.simpleString())
    for name, (count, example) in _counted(model, rows, {name: each[:2] for name, each in bad.items()}).items():
        raise SchemaChangeRefused(
            f"{model}: {name} cannot be converted to {bad[name][2]}: {count:,} stored values are not exactly such, for "
            f"example {example}. Nothing was written. Change the query, or rebuild the table with full_refresh."
        )


def _counted(model: str, rows: DataFrame, bad: Mapping[str, tuple[Column, Column]]) -> dict[str, tuple[int, str]]:
    """Columns with misfits: how many, and one of them."""
    if not bad:
        return {}
    aggregates = []
    for place, (value, wrong) in enumerate(bad.values()):
        aggregates.append(f.count_if(wrong).alias(f"count_{place}"))
        one = f.first(f.when(wrong, value), ignorenulls=True)
        aggregates.append(f.to_json(f.struct(one.alias("value"))).alias(f"one_{place}"))
    try:
        facts = rows.agg(*aggregates)
    except AnalysisException as wrong:
        raise SchemaChangeRefused(
            f"{model}: {', '.join(bad)}: there is no way from the one type to the other. Nothing was written. "
            f"Change the query, or rebuild the table with full_refresh. ({str(wrong).splitlines()[0][:200]})"
        ) from None
    row, found = only_row(model, facts), {}
    for place, name in enumerate(bad):
        if row[f"count_{place}"]:
            found[name] = (int(row[f"count_{place}"]), row[f"one_{place}"].removeprefix('{"value":').removesuffix("}"))
    return found
