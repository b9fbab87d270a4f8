"""JSON lines as Arrow tables, and types that Iceberg has a word for."""

from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa
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


def parsed_lines(block: bytes, schema: pa.Schema | None) -> tuple[pa.Table, list[str]]:
    """The objects of some lines, and the lines that are none."""
    how = pa.json.ReadOptions(block_size=max(len(block), 1))
    words = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore" if schema else "infer")
    try:
        return pa.json.read_json(pa.py_buffer(block), how, words), []
    except pa.ArrowInvalid:
        good: list[bytes] = []
        broken: list[bytes] = []
        for line in block.splitlines():
            try:
                is_object = isinstance(orjson.loads(line), dict) if line.strip() else None
                if is_object and schema is not None:
                    pa.json.read_json(pa.py_buffer(line), how, words)
            except (orjson.JSONDecodeError, pa.ArrowInvalid):
                is_object = False
            if is_object is not None:
                (good if is_object else broken).append(line)
        if not good:
            empty = schema if schema is not None else pa.schema([])
            return empty.empty_table(), [line.decode(errors="replace") for line in broken]
        table = pa.json.read_json(pa.py_buffer(b"\n".join(good)), how, words)
        return table, [line.decode(errors="replace") for line in broken]


def plain(field: pa.Field) -> pa.Field:
    """Types that Iceberg has a word for."""
    if pa.types.is_null(field.type):
        return pa.field(field.name, pa.string())
    if pa.types.is_timestamp(field.type):
        return pa.field(field.name, pa.timestamp("us", tz="UTC") if field.type.tz else pa.timestamp("us"))
    if pa.types.is_dictionary(field.type):
        return pa.field(field.name, field.type.value_type)
    return pa.field(field.name, field.type)
