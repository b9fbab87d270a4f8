"""Tables of a listing in Arrow's form. Apart from what a pack is made of: a configuration is read without Arrow."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.catalog.packs.facts import Partitioning, TableFacts

_MOMENT = pa.timestamp("us", tz="UTC")
_TABLE_NAME = pa.list_(pa.string())
# The fields of TableFacts, in their order. What repeats in all tables of a batch is kept once.
_SCHEMA = pa.schema(
    [
        ("database", pa.dictionary(pa.int32(), pa.string())),
        ("schema", pa.dictionary(pa.int32(), pa.string())),
        ("name", pa.string()),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("object_id", pa.string()),
        ("digest", pa.string()),
        ("comment", pa.string()),
        ("definition", pa.string()),
        ("column_count", pa.int64()),
        ("created_at", _MOMENT),
        ("changed_at", _MOMENT),
        ("partitioning", pa.struct([("strategy", pa.string()), ("keys", pa.string()), ("count", pa.int64())])),
        ("partition_of", _TABLE_NAME),
        ("partition_bound", pa.string()),
        ("inherits", pa.list_(_TABLE_NAME)),
    ]
)


def packed(tables: list[TableFacts]) -> pa.RecordBatch:
    arrays = []
    for field in _SCHEMA:
        values: list[Any] = [getattr(table, field.name) for table in tables]
        if field.name == "partitioning":
            values = [None if each is None else _fields(each) for each in values]
        elif field.name == "inherits":
            values = [each or None for each in values]
        plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        array = pa.array(values, plain)
        arrays.append(array.dictionary_encode() if pa.types.is_dictionary(field.type) else array)
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _fields(each: Partitioning) -> dict[str, Any]:
    return {"strategy": each.strategy, "keys": each.keys, "count": each.count}


def unpacked(batch: pa.RecordBatch) -> Iterator[TableFacts]:
    columns = []
    for field, column in zip(_SCHEMA, batch.columns, strict=True):
        values: list[Any] = [None] * len(column) if column.null_count == len(column) else column.to_pylist()
        if field.name == "partitioning":
            values = [each and Partitioning(**each) for each in values]
        elif field.name == "partition_of":
            values = [each and tuple(each) for each in values]
        elif field.name == "inherits":
            values = [tuple(map(tuple, each or ())) for each in values]
        columns.append(values)
    return (TableFacts(*facts) for facts in zip(*columns, strict=True))


def column_of(batches: list[pa.RecordBatch], name: str) -> pa.ChunkedArray:
    """One field of all tables, as text."""
    return pa.chunked_array([batch[name].cast(pa.string()) for batch in batches], pa.string())


def listed_twice(batches: list[pa.RecordBatch]) -> tuple[int, tuple[str, ...]] | None:
    """How many names stand for more than one table, and the first of them."""
    fields = ("database", "schema", "name")
    names = pa.table([column_of(batches, each) for each in fields], fields)
    # Lengths before texts: no character need be one that no name has.
    lengths = [pc.binary_length(names[each]).cast(pa.string()) for each in ("database", "schema")]
    joined = pc.binary_join_element_wise(*lengths, *names.columns, " ")
    if pc.count_distinct(joined).as_py() == len(joined):
        return None
    counts = pa.table({"name": joined}).group_by("name", use_threads=False).aggregate([([], "count_all")])
    several = counts.filter(pc.greater(counts["count_all"], 1))
    first = names.slice(pc.index(joined, several["name"][0]).as_py(), 1).to_pylist()[0]
    return several.num_rows, tuple(first.values())


def qualified_names(start: str, *parts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Many of them at once, the same as one by one. `start` is the qualified name of what they all lie in."""
    written = (pc.replace_substring(pc.replace_substring(part, "%", "%25"), "/", "%2F") for part in parts)
    return pc.binary_join_element_wise(pa.scalar(start), *written, "/")
