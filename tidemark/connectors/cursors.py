"""Cursor values and their order: compared as what they mean, kept as they came.

As text, `…45.95Z` sorts before `…45.9Z` and `10` before `9`. A cursor is therefore parsed before anything is compared,
and its `str()`, which is the form kept in state, is the text that it came as.
"""

import json
import re
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import total_ordering
from typing import Any, Literal, NoReturn

from tidemark.connectors import timestamps
from tidemark.connectors.durations import Duration
from tidemark.errors import CursorInvalid

CursorType = Literal["timestamp", "integer", "decimal", "text"]
Types = CursorType | tuple[CursorType, ...]  # more than one: a composite
Fields = str | tuple[str, ...]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")


@dataclass(frozen=True, slots=True)
class Named:
    """Which cursor is spoken of, for messages: they never carry the value."""

    stream: str = "?"
    field: str = "?"

    def refuse(self, why: str) -> NoReturn:
        # `from None`: what was caught on the way may quote the value.
        raise CursorInvalid(f"{self.stream}: a value of the cursor '{self.field}' {why}.") from None


@total_ordering
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Cursor:
    """One value of a cursor. Ordered within its type; equal if it means the same, however it is written.

    A composite cursor has parts and is compared part by part. One with fewer parts comes before all that begin with it.
    """

    type: Types
    order: Any
    text: str
    named: Named = field(default=Named())
    parts: tuple["Cursor", ...] = ()
    timestamp: timestamps.Timestamp | None = None

    @classmethod
    def parse(cls, type: Types, raw: Any, *, zone: str | None = None, stream: str = "?", field: Fields = "?") -> "Cursor":
        """The value as a cursor of the type. `raw` is what a source gave, or the text kept in state.

        `field` is the name of the cursor's field, or the names of a composite's. `zone` is that of timestamps without
        an offset. CursorInvalid if the value is none of the type.
        """
        if isinstance(type, tuple):
            fields = (field,) * len(type) if isinstance(field, str) else tuple(field)
            named = Named(stream, field if isinstance(field, str) else ", ".join(fields))
            return _composite(type, raw, zone, named, fields)
        named = Named(stream, str(field))
        return _timestamp(raw, zone, named) if type == "timestamp" else _READERS[type](raw, named)

    def minus(self, span: Duration) -> "Cursor":
        """The cursor a span earlier, rounded down to the precision it was written with.

        Of a composite, only the first part is left: that is the lower end of all values which begin that much earlier.
        """
        if not span:
            return self
        if self.parts:
            first = self.parts[0].minus(span)
            return _of_parts(self.type, (first,), self.named)
        if self.timestamp is None:
            self.named.refuse("has no time to take a duration from: only a timestamp has")
        return _of_timestamp(self.timestamp.minus(span.nanoseconds), self.named)

    @property
    def microseconds(self) -> int | None:
        """The moment since 1970, of a timestamp or of a composite that begins with one."""
        first = self.parts[0] if self.parts else self
        return None if first.timestamp is None else first.timestamp.instant // 1000

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        # Values of state stay out of logs.
        return f"Cursor({self.named.stream}, {self.named.field}: {self.type})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cursor) and self.type == other.type and bool(self.order == other.order)

    def __hash__(self) -> int:
        return hash((self.type, self.order))

    def __lt__(self, other: "Cursor") -> bool:
        if not isinstance(other, Cursor):
            return NotImplemented
        if self.type != other.type:
            self.named.refuse(f"is {_words(self.type)} and was compared with {_words(other.type)}")
        return bool(self.order < other.order)


def field_text(fields: Fields) -> str:
    """The name of a cursor's field as it stands in state; of a composite, the names as a JSON list."""
    return fields if isinstance(fields, str) else _json(list(fields))


def _words(type: Types) -> str:
    return type if isinstance(type, str) else f"({', '.join(type)})"


def _integer(raw: Any, named: Named) -> Cursor:
    if isinstance(raw, Decimal) and raw.is_finite() and raw.adjusted() < 1000 and raw == raw.to_integral_value():
        raw = int(raw)  # databases hand out NUMBER and NUMERIC(20) as decimals
    text = _text_of_number(raw, int, named)
    if not _INTEGER.fullmatch(text):
        named.refuse("is not a whole number")
    try:
        return Cursor("integer", int(text), text, named)
    except ValueError:
        named.refuse("has more digits than can be read")


def _decimal(raw: Any, named: Named) -> Cursor:
    if isinstance(raw, float | Decimal) and not Decimal(raw).is_finite():
        named.refuse("is NaN or infinite")
    text = _text_of_number(raw, int | float | Decimal, named)
    if not _DECIMAL.fullmatch(text):
        named.refuse("is not a decimal number")
    try:
        return Cursor("decimal", Decimal(text), text, named)
    except InvalidOperation:
        named.refuse("is a decimal number out of range")


def _text_of_number(raw: Any, kinds: Any, named: Named) -> str:
    _refuse_nothing_and_switches(raw, named)
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, kinds):
        named.refuse(f"is of the type {type(raw).__name__}")
    try:
        return str(raw)
    except ValueError:
        named.refuse("has more digits than can be written")


def _text(raw: Any, named: Named) -> Cursor:
    _refuse_nothing_and_switches(raw, named)
    if not isinstance(raw, str):
        named.refuse(f"is of the type {type(raw).__name__}, not text")
    try:
        raw.encode()
    except UnicodeEncodeError:
        named.refuse("is text that cannot be written as UTF-8")
    return Cursor("text", raw, raw, named)


def _timestamp(raw: Any, zone: str | None, named: Named) -> Cursor:
    _refuse_nothing_and_switches(raw, named)
    if isinstance(raw, date):  # a datetime is one
        raw = timestamps.text_of(raw)
    if not isinstance(raw, str):
        named.refuse(f"is of the type {type(raw).__name__}, not a timestamp")
    try:
        return _of_timestamp(timestamps.parsed(raw, zone), named)
    except timestamps.NotATimestamp as error:
        named.refuse(str(error))


def _of_timestamp(moment: timestamps.Timestamp, named: Named) -> Cursor:
    return Cursor("timestamp", moment.instant, moment.text, named, timestamp=moment)


def _refuse_nothing_and_switches(raw: Any, named: Named) -> None:
    if raw is None:
        named.refuse("is NULL; `null_cursor` in the manifest says what becomes of such records")
    if isinstance(raw, bool):
        named.refuse("is true or false, which has no order")


def _composite(types: tuple[CursorType, ...], raw: Any, zone: str | None, named: Named, fields: tuple[str, ...]) -> Cursor:
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            raw = None
    if not isinstance(raw, list | tuple) or not 1 <= len(raw) <= len(types):
        named.refuse(f"is not a list of {len(types)} values")
    parts = tuple(
        Cursor.parse(each, value, zone=zone, stream=named.stream, field=name)
        for each, value, name in zip(types, raw, fields, strict=False)
    )
    return _of_parts(types, parts, named)


def _of_parts(types: Types, parts: tuple[Cursor, ...], named: Named) -> Cursor:
    return Cursor(types, tuple(part.order for part in parts), _json([str(part) for part in parts]), named, parts)


def _json(words: list[str]) -> str:
    return json.dumps(words, ensure_ascii=False, separators=(",", ":"))


_READERS = {"integer": _integer, "decimal": _decimal, "text": _text}
