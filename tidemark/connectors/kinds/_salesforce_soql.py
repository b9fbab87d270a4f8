"""The questions that are asked about one stream, in SOQL.

SOQL compares no tuples, so an order by several fields is written out. It has no parameters: values are written as literals
of the field's type, and datetimes without quotes, to the millisecond, which is all that Salesforce keeps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import quote_plus
from zoneinfo import ZoneInfo

from simple_salesforce.format import quote_soql_value

from tidemark.connectors.contract import Slice, Window
from tidemark.connectors.cursors import Cursor
from tidemark.connectors.kinds._salesforce_fields import CURSORS, STAMP, Field, unfit
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import ConfigError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What a datetime literal may say.
EARLIEST, LATEST = (
    (datetime(*day, tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1) for day in ((1700, 1, 1), (4000, 12, 31))
)
# The address and the headers of a request have 16,384 bytes together.
LONGEST_SELECT = 12_000

Position = tuple[str, ...]


@dataclass(frozen=True)
class Soql:
    """The stream's object with its fields. Pages are in the order of the cursor and the Id, which all objects have."""

    stream: StreamSpec
    fields: dict[str, Field]

    @property
    def cursor(self) -> list[Field]:
        """The fields of the cursor. ConfigError if Salesforce cannot order by them as Tidemark does."""
        types = self.stream.cursor_types
        names = self.stream.cursor_fields
        wanted = (types,) * len(names) if isinstance(types, str) else types
        return [self._ordered(name, type_) for name, type_ in zip(names, wanted, strict=True)]

    def _ordered(self, name: str, type_: str) -> Field:
        where = f"{self.stream.id}: the field '{name}' of {self.stream.source_name}"
        if name not in self.fields:
            raise ConfigError(f"{where} is not there, or the user may not see it. There are: {', '.join(self.fields)}.")
        field = self.fields[name]
        if field.declared not in CURSORS[type_]:
            fitting = [cursor_type for cursor_type, declared in CURSORS.items() if field.declared in declared]
            allowed = f"as `cursor_type` {' or '.join(fitting)}" if fitting else "at all: choose a date, a number or the Id"
            raise ConfigError(
                f"{where} is of the type {field.declared}: it cannot be a cursor of type {type_}, only {allowed}."
            )
        if not field.usable:
            raise ConfigError(f"{where} cannot be sorted or compared by Salesforce. Choose another cursor.")
        return field

    def order(self, slice: Slice) -> list[Field]:
        cursor = [] if slice.nulls else self.cursor
        return cursor if any(field.name == "Id" for field in cursor) else [*cursor, self.fields["Id"]]

    # --- questions ---------------------------------------------------------------------------------------------------

    def count(self, window: Window) -> str:
        return f"SELECT COUNT() FROM {self._where(self.inside(window))}"

    def without_cursor(self) -> str:
        return f"SELECT Id FROM {self._where([self._nulls()])} LIMIT 1"

    def extreme(self, window: Window, *, greatest: bool) -> str:
        """The record with the least or the greatest cursor."""
        names = [field.name for field in self.cursor]
        by = ", ".join(f"{name} {'DESC' if greatest else 'ASC'}" for name in names)
        return f"SELECT {', '.join(names)} FROM {self._where(self.inside(window))} ORDER BY {by} LIMIT 1"

    def page(self, slice: Slice, names: Sequence[str], after: Position | None, size: int) -> str:
        """The next so many records behind a position."""
        order = self.order(slice)
        where = self._where(self._part(slice, after))
        return f"SELECT {', '.join(names)} FROM {where} ORDER BY {', '.join(each.name for each in order)} LIMIT {size}"

    def same_page(self, slice: Slice, names: Sequence[str], after: Position | None, last: Position) -> str:
        """Other fields of a page that was read: what lies behind one position and not behind another."""
        upto = compared(self.order(slice), "<=", last)
        return f"SELECT {', '.join(names)} FROM {self._where([*self._part(slice, after), upto])}"

    def keys(self, names: Sequence[str], after: Position | None, size: int) -> str:
        where = self._where([] if after is None else [f"Id > {after[0]}"])
        return f"SELECT {', '.join(names)} FROM {where} ORDER BY Id LIMIT {size}"

    def selections(self) -> list[list[str]]:
        """All fields, in as many parts as the length of an address demands; each says which version it is of."""
        common = list(dict.fromkeys(["Id", *self.stream.cursor_fields, *([STAMP] if STAMP in self.fields else [])]))
        parts, length = [list(common)], 0
        for name in self.fields:
            if name in common:
                continue
            length += len(quote_plus(f"{name}, "))
            if length > LONGEST_SELECT:
                parts, length = [*parts, list(common)], 0
            parts[-1].append(name)
        return parts

    def position(self, record: dict[str, Any], slice: Slice) -> Position:
        """Where a record is in the order, as literals."""
        return tuple(self._literal(field, record) for field in self.order(slice))

    def _literal(self, field: Field, record: dict[str, Any]) -> str:
        try:
            return literal(field, record[field.name])
        except (ValueError, TypeError, LookupError, ArithmeticError):
            raise unfit(field, self.stream.id) from None

    # --- conditions --------------------------------------------------------------------------------------------------

    def _where(self, conditions: list[str]) -> str:
        return self.stream.source_name + (f" WHERE {' AND '.join(conditions)}" if conditions else "")

    def inside(self, window: Window) -> list[str]:
        """Inside the window, and with a cursor at all."""
        cursor = self.cursor
        conditions = [f"{field.name} != null" for field in cursor if field.nullable]
        if window.lower is not None:
            conditions.append(self._bound(cursor, ">=", window.lower))
        if window.upper is not None:
            conditions.append(self._bound(cursor, "<=" if window.closed else "<", window.upper))
        return conditions

    def _part(self, slice: Slice, after: Position | None) -> list[str]:
        conditions = [self._nulls()] if slice.nulls else self.inside(slice.window(self.stream))
        order = self.order(slice)
        if after is not None:
            # The first one is no news, but an index can use it.
            leading = [f"{order[0].name} >= {after[0]}"] if len(order) > 1 else []
            conditions += [*leading, compared(order, ">", after)]
        return conditions

    def _nulls(self) -> str:
        nulls = [f"{field.name} = null" for field in self.cursor if field.nullable]
        return nulls[0] if len(nulls) == 1 else f"({' OR '.join(nulls)})"

    def _bound(self, cursor: list[Field], sign: str, bound: Cursor) -> str:
        # A bound with fewer parts stands for all that begin with it.
        parts = bound.parts or (bound,)
        fields = cursor[: len(parts)]
        last = len(parts) - 1
        # Only in the last part may a bound between two values be moved to the next.
        values = [
            bound_literal(field, part, sign if place == last else ">=", self.stream.cursor_zone)
            for place, (field, part) in enumerate(zip(fields, parts, strict=True))
        ]
        return compared(fields, sign, values)


def compared(fields: Sequence[Field], sign: str, values: Sequence[str]) -> str:
    """The fields compared as a tuple."""
    name, value = fields[0].name, values[0]
    if len(fields) == 1:
        return f"{name} {sign} {value}"
    return f"({name} {sign[0]} {value} OR ({name} = {value} AND {compared(fields[1:], sign, values[1:])}))"


def literal(field: Field, value: Any) -> str:
    """A value as a record has it."""
    if field.declared == "datetime":
        return moment_literal(datetime.fromisoformat(value))
    if field.declared == "date":
        return str(value)
    return str(quote_soql_value(value)) if isinstance(value, str) else format(Decimal(repr(value)), "f")


def moment_literal(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def bound_literal(field: Field, bound: Cursor, sign: str, zone: str | None) -> str:
    """A bound of a window. What lies between two values of the field is the later one, or the earlier one for `<=`."""
    if bound.timestamp is None:
        return str(quote_soql_value(str(bound))) if bound.type == "text" else format(Decimal(str(bound)), "f")
    instant = bound.timestamp.instant
    milliseconds = instant // 10**6 if sign == "<=" else -(-instant // 10**6)
    moment = EPOCH + timedelta(milliseconds=min(max(milliseconds, EARLIEST), LATEST))
    if field.declared == "datetime":
        return moment_literal(moment)
    local = moment.astimezone(ZoneInfo(zone or "UTC")).replace(tzinfo=None)
    day = local.replace(hour=0, minute=0, second=0, microsecond=0)
    return (day if day == local or sign == "<=" else day + timedelta(days=1)).date().isoformat()
