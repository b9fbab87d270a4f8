"""The records of an answer as Arrow columns of the declared types."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.connectors.http import Answer
from tidemark.connectors.kinds._odata_model import SIMPLE, Property
from tidemark.errors import SourceError

# A decimal of so many digits comes back from a floating-point number as it went in.
DIGITS_OF_A_FLOAT = 15


@dataclass(frozen=True, slots=True)
class Page:
    """Records of one answer, and the link to more of them if the source cut it short."""

    records: pa.RecordBatch
    link: str | None
    answer: Answer


class _DigitsLost(Exception):
    """A number was parsed as floating point and has more digits than that holds."""


def page_of(answer: Answer, properties: Sequence[Property]) -> Page:
    """The records of an answer; a SourceError if it has none or a value is not of its declared type."""
    given = answer.json()
    rows = given.get("value") if isinstance(given, dict) else None
    if not isinstance(rows, list) or not all(type(row) is dict for row in rows):
        raise SourceError(
            f"{answer.what}: the answer is JSON, but no list of records. Is `url` that of an OData v4 service?"
        )
    try:
        records = _records(rows, properties, answer.what)
    except _DigitsLost:
        # Numbers were requested as text, the source sent numbers: read again, every digit kept.
        exact = json.loads(answer.body, parse_float=str)
        records = _records(exact["value"], properties, answer.what)
    return Page(records, given.get("@odata.nextLink") or given.get("@nextLink"), answer)


def _records(rows: list[dict[str, Any]], properties: Sequence[Property], what: str) -> pa.RecordBatch:
    columns = []
    for each in properties:
        try:
            columns.append(_column([row.get(each.name) for row in rows], each))
        except (pa.ArrowException, ValueError, TypeError, AttributeError):
            raise SourceError(f"{what}: a value of '{each.name}' does not fit its declared type {each.edm}.") from None
    return pa.record_batch(columns, schema=pa.schema([pa.field(each.name, each.type) for each in properties]))


def _column(values: list[Any], declared: Property) -> pa.Array:
    if declared.many:
        return _lists(values, declared)
    if declared.parts:
        return _structs(values, declared)
    if declared.edm == "Edm.Decimal":
        return pa.array(_digits(values, declared), pa.string()).cast(declared.type)
    if declared.edm == "Edm.DateTimeOffset":
        return _instants(pa.array(values, pa.string()))
    if declared.edm == "Edm.Date":
        return pa.array(values, pa.string()).cast(declared.type)
    if declared.edm == "Edm.Binary":
        return pa.array([None if each is None else _bytes(each) for each in values], pa.binary())
    if declared.edm not in SIMPLE:
        texts = [each if each is None or isinstance(each, str) else orjson.dumps(each).decode() for each in values]
        return pa.array(texts, pa.string())
    try:
        return pa.array(values, declared.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        if declared.type == pa.string() or declared.type == pa.bool_():
            raise
        # Whole numbers as text, as requested; and INF and NaN, which JSON has no number for.
        return pa.array([None if each is None else str(each) for each in values], pa.string()).cast(declared.type)


def _digits(values: list[Any], declared: Property) -> list[str | None]:
    if (declared.precision or 99) > DIGITS_OF_A_FLOAT and any(type(each) is float for each in values):
        raise _DigitsLost
    return [each if each is None or type(each) is str else repr(each) for each in values]


def _instants(texts: pa.Array) -> pa.Array:
    try:
        return texts.cast(pa.timestamp("us", tz="UTC"))
    except pa.ArrowInvalid:
        # Digits below the microsecond are cut off, which never makes a moment later than it is.
        return pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1").cast(pa.timestamp("us", tz="UTC"))


def _bytes(text: str) -> bytes:
    """Base64, of either alphabet, with or without its padding."""
    plain = text.replace("+", "-").replace("/", "_").rstrip("=")
    return urlsafe_b64decode(plain + "=" * (-len(plain) % 4))


def _structs(values: list[Any], declared: Property) -> pa.Array:
    parts = [_column([None if each is None else each.get(part.name) for each in values], part) for part in declared.parts]
    missing = pa.array([each is None for each in values], pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=list(declared.type), mask=missing)


def _lists(values: list[Any], declared: Property) -> pa.Array:
    (item,) = declared.parts
    flat = _column([each for some in values if some for each in some], item)
    ends = [0]
    for some in values:
        ends.append(ends[-1] + len(some or ()))
    missing = pa.array([some is None for some in values], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat, type=declared.type, mask=missing)
