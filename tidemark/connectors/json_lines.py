"""JSON lines as Arrow tables, and types that Iceberg has a word for."""

from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

BLOCK = 8 * 1024 * 1024


def line_blocks(text: Any) -> Iterator[bytes]:
    """Whole lines, some megabytes at a time."""
    rest = b""
    while block := text.read(BLOCK):
        rest += block
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
    if rest.strip():
        yield rest + b"\n"


def lines_of(block: bytes) -> tuple[list[bytes], list[bytes]]:
    """The lines of a block that are JSON objects, and those that are something else; empty ones left out."""
    lines = [line for line in block.splitlines() if line.strip()]
    objects = [line for line in lines if is_object(line)]
    return objects, [] if len(objects) == len(lines) else [line for line in lines if not is_object(line)]


def is_object(text: bytes) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def plain(field: pa.Field) -> pa.Field:
    """Types that Iceberg has a word for."""
    if pa.types.is_null(field.type):
        return pa.field(field.name, pa.string())
    if pa.types.is_timestamp(field.type):
        return pa.field(field.name, pa.timestamp("us", tz="UTC") if field.type.tz else pa.timestamp("us"))
    if pa.types.is_dictionary(field.type):
        return pa.field(field.name, field.type.value_type)
    return pa.field(field.name, field.type)


# --- objects that fit and objects that do not -------------------------------------------------------------------------


def objects_that_fit(objects: list[bytes], schema: pa.Schema, first: int = 0) -> tuple[pa.Table, list[int]]:
    """The objects as records of the schema, and the places of those that do not fit it."""
    try:
        return _typed(objects, schema), []
    except pa.ArrowInvalid:
        if len(objects) == 1:
            return schema.empty_table(), [first]
        half = len(objects) // 2
        before, unfit_before = objects_that_fit(objects[:half], schema, first)
        after, unfit_after = objects_that_fit(objects[half:], schema, first + half)
        return pa.concat_tables([before, after]), unfit_before + unfit_after


def fields_of_objects(objects: list[bytes]) -> dict[str, pa.DataType]:
    """The fields of objects. Where two do not agree on a type, the earlier one is right."""
    if not objects:
        return {}
    try:
        found = _parsed(objects, pa.json.ParseOptions()).schema
        return {field.name: untimed(field.type) for field in found}
    except pa.ArrowInvalid:
        if len(objects) == 1:
            return {}
        half = len(objects) // 2
        return merged_fields(fields_of_objects(objects[:half]), fields_of_objects(objects[half:]))


def merged_fields(before: dict[str, pa.DataType], now: dict[str, pa.DataType]) -> dict[str, pa.DataType]:
    return before | {name: merged_type(before.get(name, pa.null()), type_) for name, type_ in now.items()}


def merged_type(before: pa.DataType, now: pa.DataType) -> pa.DataType:
    """A type for both; where there is none, the first of them."""
    if pa.types.is_null(before):
        return now
    if before == pa.int64() and now == pa.float64():
        return now
    if pa.types.is_list(before) and pa.types.is_list(now):
        return pa.list_(merged_type(before.value_type, now.value_type))
    if pa.types.is_struct(before) and pa.types.is_struct(now):
        both = merged_fields({each.name: each.type for each in before}, {each.name: each.type for each in now})
        return pa.struct(list(both.items()))
    return before


def untimed(type_: pa.DataType) -> pa.DataType:
    """The type with text for what only looked like a time: the next object's may not, and JSON has no word for times."""
    if pa.types.is_timestamp(type_):
        return pa.string()
    if pa.types.is_list(type_):
        return pa.list_(untimed(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(each.name, untimed(each.type)) for each in type_])
    return type_


def settled(type_: pa.DataType) -> pa.DataType | None:
    """The type without the parts that never had a value; None if that is all of it. The first value will give their type."""
    if pa.types.is_null(type_):
        return None
    if pa.types.is_list(type_):
        inner = settled(type_.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(type_):
        parts = [(each.name, part) for each in type_ if (part := settled(each.type)) is not None]
        return pa.struct(parts) if parts else None
    return type_


def _typed(objects: list[bytes], schema: pa.Schema) -> pa.Table:
    if not objects:
        return schema.empty_table()
    # Of days and times of day the parser only takes numbers; in JSON they are text.
    as_read = [pa.field(each.name, pa.string()) if _is_day_or_time(each.type) else each for each in schema]
    words = pa.json.ParseOptions(explicit_schema=pa.schema(as_read), unexpected_field_behavior="ignore")
    read = _parsed(objects, words)
    return pa.table([_cast(read[each.name], each.type) for each in schema], schema=schema)


def _is_day_or_time(type_: pa.DataType) -> bool:
    return bool(pa.types.is_date(type_) or pa.types.is_time(type_))


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_time(type_):
        column = pc.binary_join_element_wise("1970-01-01", column, "T").cast(pa.timestamp("us"))
    return column.cast(type_)


def _parsed(objects: list[bytes], words: pa.json.ParseOptions) -> pa.Table:
    block = b"\n".join(objects)
    return pa.json.read_json(pa.py_buffer(block), pa.json.ReadOptions(block_size=len(block) + 1), words)
