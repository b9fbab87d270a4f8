"""Fields of Salesforce's objects as columns of Arrow."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from tidemark.errors import SourceError

# Set with every change of a record, also by Salesforce itself.
STAMP = "SystemModstamp"

# Addresses and locations come a second time as fields of their own, and of binaries a query gives only where they are.
LEFT_OUT = {"address", "location", "base64"}

# Numbers are doubles to the API, whatever precision and scale a field declares: values that programs write may have more
# digits than that, and Salesforce keeps them. A decimal of the declared scale would have to round or refuse them.
TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "currency": pa.float64(),
    "percent": pa.float64(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us", tz="UTC"),
}

# The types of fields that can be a cursor of each type. Text is sorted by language there, and by code point here; only
# ids are the same to both.
CURSORS = {
    "timestamp": {"datetime", "date"},
    "integer": {"int", "long"},
    "decimal": {"int", "long", "double", "currency", "percent"},
    "text": {"id"},
}


@dataclass(frozen=True, slots=True)
class Field:
    """A field as Salesforce describes it."""

    name: str
    declared: str
    nullable: bool
    usable: bool  # in conditions and for sorting

    @property
    def type(self) -> pa.DataType:
        # Times of day too are text: Spark has no type for them.
        return TYPES.get(self.declared, pa.string())


def fields_of(described: Mapping[str, Any]) -> dict[str, Field]:
    return {
        each["name"]: Field(each["name"], each["type"], each["nillable"], each["filterable"] and each["sortable"])
        for each in described["fields"]
        if each["type"] not in LEFT_OUT
    }


def batch_of(records: list[dict[str, Any]], fields: list[Field], stream: str) -> pa.RecordBatch:
    """The records as one batch of the fields' types."""
    return pa.record_batch([_column(records, field, stream) for field in fields], schema=schema_of(fields))


def schema_of(fields: list[Field]) -> pa.Schema:
    return pa.schema([(field.name, field.type) for field in fields])


def _column(records: list[dict[str, Any]], field: Field, stream: str) -> pa.Array:
    convert: Callable[[Any], Any] = CONVERTERS.get(field.declared, _number if field.declared in TYPES else _text)
    try:
        values = [None if record[field.name] is None else convert(record[field.name]) for record in records]
        return pa.array(values, field.type)
    except (pa.ArrowException, ValueError, TypeError, LookupError, OverflowError):
        raise unfit(field, stream) from None


def unfit(field: Field, stream: str) -> SourceError:
    return SourceError(
        f"{stream}: a record lacks the field '{field.name}', or its value is no {field.declared}, as Salesforce describes "
        "it. Was the field changed while it was read? Run again."
    )


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise TypeError
    return value


def _text(value: Any) -> str:
    # What a field history has in OldValue may be of any type.
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _same(value: Any) -> Any:
    return value


CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "boolean": _same,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
}
