"""Steps along a column: a number, or minutes to years by the calendar. Chunks and look-backs are made of them."""

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

Point = int | float | Decimal | date | datetime

UNITS = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
MONTHS = {"month": 1, "quarter": 3, "year": 12}
ALLOWED = f'Allowed: a number, or a number of {", ".join([*UNITS, *MONTHS])}s, such as "1 month".'

_TEXT = re.compile(r"(?:interval\s+)?'?\s*(-?\d+)?\s*'?\s*([a-z]+?)s?", re.IGNORECASE)
_ISO = {"D": "day", "W": "week", "M": "month", "Y": "year", "TH": "hour", "TM": "minute", "TS": "second"}
_ISO_TEXT = re.compile(r"P(T?)(\d+)([DWMYHS])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Step:
    """How far it is from one point to the next. Months are the calendar's, not thirty days."""

    count: Decimal
    unit: str | None = None

    @classmethod
    def parse(cls, given: Any) -> "Step":
        """The step that is meant; a ValueError says what is wrong with it."""
        if isinstance(given, bool) or not isinstance(given, str | int | float | Decimal):
            raise ValueError(f"must be a step. {ALLOWED}")
        if not isinstance(given, str):
            return cls(Decimal(str(given)))._forwards()
        text = given.strip()
        iso, words = _ISO_TEXT.fullmatch(text), _TEXT.fullmatch(text)
        if iso:
            return cls(Decimal(iso[2]), _ISO.get(f"{iso[1]}{iso[3]}".upper()))._known()
        if re.fullmatch(r"-?\d+(\.\d+)?", text):
            return cls(Decimal(text))._forwards()
        if words is None:
            raise ValueError(f"is no step. {ALLOWED}")
        return cls(Decimal(words[1] or 1), words[2].lower())._known()

    def _known(self) -> "Step":
        if self.unit not in UNITS and self.unit not in MONTHS:
            raise ValueError(f"is no step. {ALLOWED}")
        return self._forwards()

    def _forwards(self) -> "Step":
        if self.count <= 0:
            raise ValueError("a step must lead forwards: more than 0.")
        return self

    def __str__(self) -> str:
        return str(self.count) if self.unit is None else f"{self.count} {self.unit}{'s' if self.count != 1 else ''}"

    def after(self, start: Point, times: int = 1) -> Point:
        """The point so many steps behind the start, always counted from there: the 31st stays the last of its month."""
        return self._moved(start, times)

    def before(self, point: Point) -> Point:
        """One step back."""
        return self._moved(point, -1)

    def _moved(self, start: Point, times: int) -> Point:
        if isinstance(start, date):
            return self._by_calendar(start, times)
        if isinstance(start, str):
            raise ValueError(f"the step is {self}, and the column's values are text, along which there are no steps.")
        if self.unit is not None:
            raise ValueError(f"the step is {self}, and the column's values are numbers. Give a number.")
        moved = Decimal(str(start)) + self.count * times
        return int(moved) if isinstance(start, int) and moved == int(moved) else moved

    def _by_calendar(self, start: date, times: int) -> date:
        if self.unit is None:
            raise ValueError(f"the step is {self}, and the column's values are moments. Give minutes to years.")
        count = int(self.count) * times
        if self.unit in MONTHS:
            months = start.year * 12 + start.month - 1 + count * MONTHS[self.unit]
            year, month = divmod(months, 12)
            return start.replace(year=year, month=month + 1, day=min(start.day, monthrange(year, month + 1)[1]))
        length = UNITS[self.unit] * count
        if not isinstance(start, datetime) and length % timedelta(days=1):
            raise ValueError(f"the step is {self}, and the column's values are whole days.")
        return start + length

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda given: given if isinstance(given, cls) else cls.parse(given),
            serialization=core_schema.to_string_ser_schema(when_used="always"),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": ["string", "number"], "examples": ["1 month", "P1D", 1000]}
