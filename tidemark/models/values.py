"""Values of a filter column, kept as text with their type and brought back as they were."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation

from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

Value = str | int | float | Decimal | date | datetime
_MAKERS: dict[str, Callable[[str], Value]] = {
    "text": str,
    "int": int,
    "float": float,
    "decimal": Decimal,
    "moment": datetime.fromisoformat,
    "date": date.fromisoformat,
}
ORDERED = (
    IntegerType, LongType, FloatType, DoubleType, DecimalType, DateType, TimestampType, TimestamptzType, StringType,
)  # fmt: skip

MOMENTS = (DateType, TimestampType, TimestamptzType)


def to_text(value: Value | None) -> list[str] | None:
    """A value as state keeps it: the name of its type, and its text."""
    if value is None:
        return None
    kind = {str: "text", int: "int", float: "float", Decimal: "decimal", datetime: "moment", date: "date"}[type(value)]
    return [kind, value.isoformat() if isinstance(value, date) else str(value)]


def from_text(kept: list[str] | None) -> Value | None:
    if kept is None:
        return None
    kind, text = kept
    return _MAKERS[kind](text)


def in_type(value: Value, of: IcebergType) -> Value:
    """The value as one of the column's type: what a person writes as text is a moment or a number. A ValueError if not."""
    try:
        return _in_type(value, of)
    except (ValueError, TypeError, InvalidOperation):
        raise ValueError(f"is no value of the type {of}") from None


def _in_type(value: Value, of: IcebergType) -> Value:
    if isinstance(of, DateType):
        moment = value if isinstance(value, date) else datetime.fromisoformat(str(value))
        return moment.date() if isinstance(moment, datetime) else moment
    if isinstance(of, TimestampType | TimestamptzType):
        moment = _moment(value)
        if isinstance(of, TimestamptzType):
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        return moment.replace(tzinfo=None) if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, date):
        raise ValueError
    if isinstance(of, IntegerType | LongType):
        return int(Decimal(str(value)))
    if isinstance(of, DecimalType):
        return Decimal(str(value))
    return float(value) if isinstance(of, FloatType | DoubleType) else str(value)


def _moment(value: Value) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime.fromisoformat(value.isoformat())
    return datetime.fromisoformat(str(value))
