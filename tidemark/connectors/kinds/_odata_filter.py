"""Windows and keysets as `$filter`, and the exact cut where a filter is coarser than the values."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.connectors.contract import Window
from tidemark.connectors.cursors import Cursor
from tidemark.connectors.kinds._odata_model import Property, day_from


def bounded(cursor: Sequence[Property], window: Window, zone: str | None) -> str:
    """Records of the window that have a cursor at all, and perhaps some within a tick of its bounds."""
    parts = [f"{each.name} ne null" for each in cursor]
    if window.lower is not None:
        parts.append(_from(cursor, window.lower, zone))
    if window.upper is not None:
        parts.append(_to(cursor, window.upper, zone, window.closed))
    return " and ".join(parts)


def _from(cursor: Sequence[Property], bound: Cursor, zone: str | None) -> str:
    first, *rest = bound.parts or (bound,)
    name, value = cursor[0].name, cursor[0].bound(first, zone, "ge")
    if not rest or first.timestamp is not None:
        return f"{name} ge {value}"
    return f"({name} gt {value} or ({name} eq {value} and {_from(cursor[1:], _joined(bound, rest), zone)}))"


def _to(cursor: Sequence[Property], bound: Cursor, zone: str | None, closed: bool) -> str:
    first, *rest = bound.parts or (bound,)
    name, value = cursor[0].name, cursor[0].bound(first, zone, "lt")
    if not rest or first.timestamp is not None:
        # To below a tick that holds the bound, or with all of it: what is too much is cut off here.
        return f"{name} {'le' if closed or rest else 'lt'} {value}"
    return f"({name} lt {value} or ({name} eq {value} and {_to(cursor[1:], _joined(bound, rest), zone, closed)}))"


def _joined(bound: Cursor, rest: Sequence[Cursor]) -> Cursor:
    return Cursor(bound.type, tuple(each.order for each in rest), "", bound.named, tuple(rest))


def within(field: Property, value: Any) -> str:
    """All records of a tick; without ticks, all that have the value."""
    if field.tick is None:
        return f"{field.name} eq {field.literal(value)}"
    return f"{field.name} ge {field.literal(value)} and {field.name} lt {field.literal(_next(field, value))}"


def behind(field: Property, value: Any) -> str:
    """All records behind a tick; without ticks, behind the value."""
    if field.tick is None:
        return f"{field.name} gt {field.literal(value)}"
    return f"{field.name} ge {field.literal(_next(field, value))}"


def after(order: Sequence[Property], values: Sequence[Any]) -> str:
    """Records behind a place in an order of several fields."""
    name, value = order[0].name, order[0].literal(values[0])
    if len(order) == 1:
        return f"{name} gt {value}"
    return f"({name} gt {value} or ({name} eq {value} and {after(order[1:], values[1:])}))"


def _next(field: Property, value: Any) -> Any:
    return value + timedelta(microseconds=field.tick or 0)


def inside(records: pa.RecordBatch, cursor: Sequence[Property], window: Window, zone: str | None) -> pa.Array:
    """Which records are in the window, to the last digit."""
    keep = pa.repeat(pa.scalar(True), records.num_rows)
    if window.lower is not None:
        keep = pc.and_(keep, pc.invert(_before(records, cursor, window.lower, zone)))
    if window.upper is not None:
        keep = pc.and_(keep, _before(records, cursor, window.upper, zone, window.closed))
    return keep


def _before(
    records: pa.RecordBatch, cursor: Sequence[Property], bound: Cursor, zone: str | None, equal: bool = False
) -> pa.Array:
    """Which records come before the bound, part by part; `equal` takes in those that are at it."""
    result = pa.repeat(pa.scalar(equal), records.num_rows)
    for field, part in reversed(list(zip(cursor, bound.parts or (bound,), strict=False))):
        column, value = records[field.name], _scalar(field, part, zone)
        result = pc.or_(pc.less(column, value), pc.and_(pc.equal(column, value), result))
    return result


def _scalar(field: Property, part: Cursor, zone: str | None) -> pa.Scalar:
    if part.timestamp is not None:
        instant = part.timestamp.instant // 1000
        return pa.scalar(day_from(instant, zone) if field.edm == "Edm.Date" else instant, field.type)
    return pa.scalar(float(part.text) if pa.types.is_floating(field.type) else part.order)
